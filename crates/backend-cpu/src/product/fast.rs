//! Products on quantised activations.
//!
//! For each output, with the groups in ascending order and everything but the dot product in f32:
//!
//! ```text
//! dot = sum of code of weight * code of activation       an exact integer, below 2^27 in magnitude
//! y   = fma(dot, scale * d, y)                            d and d * sum from the quantised activation
//! y   = fma(bias, d * sum, y)                             starting from 0
//! ```
//!
//! Codes of activations have two parts, and `dot` is 16 times the sum with the high parts plus the sum with the low
//! ones; where weights are nibbles, 16 times the weight is still a byte, and one tile takes both. Integer sums are
//! exact in any order, so byte products of vectors and of tiles agree to the last bit, for one row and for many
//! (turned to f32 they are rounded once). A non-finite activation makes `d` a NaN and with it every output of its row.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::ops::Range;

use super::format::{Affine, Code};
use super::output::Output;
use super::quantised::{BLOCK_ROWS, Quantised};
use super::segment::Segment;
use crate::isa::Isa;
use crate::pool::Scratch;

/// Rows of a block from which on tiles are faster than vectors: a tile costs nearly the same for few rows as for
/// sixteen, and bytes need two of them.
const fn tile_rows(code: Code) -> usize {
    match code {
        Code::Nibble => 7,
        Code::Byte => 12,
    }
}

/// Bytes that vector kernels have asked for ahead of their use, in all tiles that they take at once.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 10 << 10;

/// Bytes of tiles that may wait in the second cache.
const TILES: usize = 256 << 10;

/// Tiles that the kernels for this number of rows take at once: the fewer rows there are, the more tiles, to have
/// enough sums and loads under way.
pub(super) fn together(code: Code, rows: usize) -> usize {
    match (rows, code) {
        (1 | 2, _) => 4,
        (3 | 4, Code::Nibble) => 2,
        _ => 1,
    }
}

/// One segment's product for some rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fast<'a> {
    /// The segment's format.
    pub(super) affine: Affine,
    pub(super) segment: &'a Segment,
    pub(super) expert: usize,
    /// Quantised in the format's groups, as wide as the segment.
    pub(super) input: &'a Quantised,
    pub(super) output: Output<'a>,
}

impl Fast<'_> {
    /// Computes some tiles for some rows, which begin at a multiple of sixteen and end at one or with the last.
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
        assert!(
            tiles.end <= self.segment.tiles && rows.end <= self.input.rows(),
            "a product beyond its operands"
        );
        assert_eq!(self.input.group(), self.affine.group, "activations in other groups");
        assert_eq!(self.groups() * self.affine.block_bytes(), self.segment.tile_bytes, "another width");
        let blocks = rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS);
        let tiled = blocks.start..blocks.end - self.blocks_without_tiles(isa, &blocks);
        let others = tiled.end..blocks.end;
        #[cfg(target_arch = "x86_64")]
        if !tiled.is_empty() {
            // SAFETY: the caller's promise; the machine has it; the operands were checked.
            unsafe { amx::run(self, tiles.clone(), tiled, scratch) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = scratch;
        // SAFETY: the caller's promise.
        unsafe { self.run_vectors(isa, tiles, others) }
    }

    /// How many of some blocks, from the last one on, are computed with vectors rather than tiles: all on most
    /// machines. Where there are tiles, a last block of few rows, unless weights were unpacked for blocks before it.
    fn blocks_without_tiles(&self, isa: Isa, blocks: &Range<usize>) -> usize {
        if isa.limited() != Isa::Amx {
            return blocks.len();
        }
        let few =
            !blocks.is_empty() && { self.input.block(blocks.end - 1).rows < tile_rows(self.affine.code) };
        let alone = blocks.len() == 1 || blocks.len() == 2 && self.affine.code == Code::Nibble;
        usize::from(few && alone)
    }

    /// Computes some tiles for some blocks of rows without tile instructions. Each block meets as many tiles as stay
    /// in the second cache, and stays in the first meanwhile.
    ///
    /// # Safety
    ///
    /// As [`Fast::run`], with checked operands.
    unsafe fn run_vectors(&self, isa: Isa, tiles: Range<usize>, blocks: Range<usize>) {
        let some = (TILES / self.segment.tile_bytes.max(1)).clamp(1, tiles.len().max(1));
        for first in tiles.clone().step_by(some) {
            for block in blocks.clone() {
                let tiles = first..tiles.end.min(first + some);
                // SAFETY: the caller's promise, and `limited` gives only what the machine has.
                unsafe {
                    match isa.limited() {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Amx | Isa::Avx512Vnni => avx512::run(self, tiles, block),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 => avx2::run(self, tiles, block),
                        #[cfg(target_arch = "aarch64")]
                        Isa::NeonDot => neon::run(self, tiles, block),
                        _ => portable::run(self, tiles, block),
                    }
                }
            }
        }
    }

    /// Groups of a row.
    fn groups(&self) -> usize {
        self.input.width() / self.affine.group
    }

    /// The blocks of some tiles, one after the other.
    fn blocks(&self, tiles: Range<usize>) -> &[u8] {
        let bytes = self.segment.tile_bytes;
        &self.segment.expert(self.expert)[tiles.start * bytes..tiles.end * bytes]
    }
}

/// Where a kernel that takes `T` tiles at once, and has come to a byte of the first of them, will be after [`AHEAD`]
/// bytes: in these tiles, or in those that follow all of them (of shorter tiles than that share, in some other one). The
/// processor asks ahead by itself, but only within a page, and a tile is hardly longer: without this, weights that the
/// outer caches do not hold came 20% slower.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) const fn ahead<const T: usize>(at: usize, tile_bytes: usize) -> usize {
    let at = at + AHEAD / T;
    if at < tile_bytes { at } else { at + (T - 1) * tile_bytes }
}

/// Asks for some bytes, which need not exist.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn fetch(start: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for at in (0..bytes).step_by(64) {
        // SAFETY: a prefetch reads nothing and may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast()) }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::ahead;

    #[test]
    fn what_is_asked_for_goes_on_in_the_tiles_that_follow() {
        // Of one tile at once 10 KiB ahead, of four 2.5 KiB; a tile has 5760 bytes here.
        assert_eq!(ahead::<1>(320, 5760), 320 + 10240);
        assert_eq!(ahead::<4>(320, 5760), 320 + 2560);
        // 5440 + 2560 is 2240 bytes in the fifth tile from the first.
        assert_eq!(ahead::<4>(5440, 5760), 4 * 5760 + 2240);
    }
}
