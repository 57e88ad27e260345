//! Products in f32 on dequantised weights.
//!
//! ```text
//! w = fma(scale, code, bias)       with scales of 16 bits the same as two steps: their product is exact
//! y = fma(x[k], w[k], y)           for k = 0, 1, 2, ... starting from 0
//! ```
//!
//! Each output has exactly this chain of operations on every instruction set: vectors hold sixteen outputs, never
//! sixteen inputs of one. Weights are decoded once per tile and stretch of inputs into a panel of f32 in the
//! first cache, and used for all rows of the part.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
pub(super) use {avx2::widen as widen_avx2, avx512::widen as widen_avx512};

#[cfg(target_arch = "x86_64")]
use super::fast::fetch;
use super::format::{Format, LANES};
use super::output::Output;
use super::segment::Segment;
use crate::isa::Isa;
use crate::pool::Scratch;

/// Inputs decoded at once: a multiple of every group size.
const DEPTH: usize = 128;

/// Tiles decoded at once, so that a single row has several independent chains to compute.
pub(super) const TILES: usize = 4;

/// One segment's product for some rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact<'a> {
    pub(super) segment: &'a Segment,
    pub(super) expert: usize,
    /// Inputs of a row.
    pub(super) width: usize,
    /// `[rows, width]`
    pub(super) x: &'a [f32],
    pub(super) output: Output<'a>,
}

/// A stretch of inputs: `sums[row, tile, lane] = fma(x[row, k], panel[tile, k, lane], sums[..])` for ascending `k`.
struct Stretch<'a> {
    /// `[tiles, DEPTH, LANES]`, of which the first `depth` of each tile are used.
    panel: &'a [f32],
    tiles: usize,
    depth: usize,
    /// From the stretch's first input of the first row.
    x: &'a [f32],
    /// From one row's input to the next row's.
    stride: usize,
    rows: usize,
    /// `[rows, tiles, LANES]`
    sums: &'a mut [f32],
}

impl Stretch<'_> {
    /// Whether every index that a kernel forms lies within the slices.
    fn holds(&self) -> bool {
        self.panel.len() >= self.tiles * DEPTH * LANES
            && self.depth <= DEPTH
            && self.sums.len() >= self.rows * self.tiles * LANES
            && (self.rows == 0 || self.x.len() >= (self.rows - 1) * self.stride + self.depth)
    }
}

impl Exact<'_> {
    /// Computes some tiles for some rows.
    ///
    /// # Safety
    ///
    /// Nobody else uses these tiles' and rows' cells of the output meanwhile.
    pub(super) unsafe fn run(
        &self,
        isa: Isa,
        tiles: Range<usize>,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let panel = TILES * DEPTH * LANES;
        let (panel, sums) = scratch.lend(panel + rows.len() * TILES * LANES).split_at_mut(panel);
        for first in tiles.clone().step_by(TILES) {
            let tiles = first..tiles.end.min(first + TILES);
            let sums = &mut sums[..rows.len() * tiles.len() * LANES];
            sums.fill(0.0);
            for start in (0..self.width).step_by(DEPTH) {
                let depth = DEPTH.min(self.width - start);
                for (tile, panel) in tiles.clone().zip(panel.chunks_exact_mut(DEPTH * LANES)) {
                    self.decode(isa, tile, start, &mut panel[..depth * LANES]);
                }
                let x = &self.x[rows.start * self.width + start..];
                let (stride, rows, tiles) = (self.width, rows.len(), tiles.len());
                accumulate(isa, Stretch { panel, tiles, depth, x, stride, rows, sums });
            }
            let mut sums = sums.chunks_exact(LANES);
            for row in rows.clone() {
                for tile in tiles.clone() {
                    // SAFETY: the caller's promise.
                    let cells = unsafe { self.output.lanes(row, tile) };
                    if let Some(sums) = sums.next() {
                        cells.copy_from_slice(&sums[..cells.len()]);
                    }
                }
            }
        }
    }

    /// Dequantises the inputs of a tile from `start` on into `panel`, `[depth, LANES]`.
    fn decode(&self, isa: Isa, tile: usize, start: usize, panel: &mut [f32]) {
        let tile_bytes = self.segment.tile_bytes;
        let tile = &self.segment.expert(self.expert)[tile * tile_bytes..][..tile_bytes];
        // The next stretch of this tile; those of other tiles come first, and the processor does not see this far.
        #[cfg(target_arch = "x86_64")]
        {
            let next = self.segment.format.tile_bytes(DEPTH);
            fetch(tile.as_ptr().wrapping_add(self.segment.format.tile_bytes(start) + next), next);
        }
        match self.segment.format {
            Format::Affine(affine) => {
                let blocks =
                    tile[start / affine.group * affine.block_bytes()..].chunks_exact(affine.block_bytes());
                for (block, panel) in blocks.zip(panel.chunks_exact_mut(affine.group * LANES)) {
                    match isa.limited() {
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: the machine has it; the block is whole and the panel holds the group.
                        Isa::Amx | Isa::Avx512Vnni => unsafe { avx512::decode_affine(affine, block, panel) },
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: as above.
                        Isa::Avx2 => unsafe { avx2::decode_affine(affine, block, panel) },
                        _ => portable::decode_affine(affine, block, panel),
                    }
                }
            }
            Format::Dense(number) => {
                let bytes = &tile[start * LANES * number.bytes()..][..panel.len() * number.bytes()];
                match isa.limited() {
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the machine has it; there are as many numbers as the panel holds.
                    Isa::Amx | Isa::Avx512Vnni => unsafe { avx512::decode_dense(number, bytes, panel) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: as above.
                    Isa::Avx2 => unsafe { avx2::decode_dense(number, bytes, panel) },
                    _ => portable::decode_dense(number, bytes, panel),
                }
            }
        }
    }
}

fn accumulate(isa: Isa, stretch: Stretch<'_>) {
    assert!(stretch.holds(), "a stretch beyond its slices");
    match isa.limited() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has it; the slices hold every index.
        Isa::Amx | Isa::Avx512Vnni => unsafe { avx512::accumulate(stretch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2::accumulate(stretch) },
        _ => portable::accumulate(stretch),
    }
}
