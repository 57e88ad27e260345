//! Fast products with AMX tiles: sixteen rows of activations times sixteen outputs in one instruction.
//!
//! For each tile of weights and block of rows, some groups at a time: first the tile products, whose integer sums
//! are stored to the first cache, and then the float arithmetic on them with 512-bit vectors, which keep the sums
//! of a block's rows in registers over all groups. Nibbles are unpacked into a panel on the way through the first
//! block and reused by the later ones; bytes already are what the tiles want.

mod tile;

use std::arch::x86_64::*;
use std::ops::Range;

use super::Fast;
use crate::pool::Scratch;
use crate::product::exact::widen_avx512 as widen;
use crate::product::format::{Code, LANES};
use crate::product::quantised::{BLOCK_ROWS, RowBlock};

/// Groups whose products are computed before the float arithmetic on them.
const STEPS: usize = 16;
/// Bytes of unpacked weights that may wait in the second cache.
const PANELS: usize = 512 << 10;
/// Groups by which weights are fetched ahead of their use: loads in the bursts of unpacking and of tile products
/// would wait for memory one after the other.
const AHEAD: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// # Safety
///
/// As [`Fast::run`], which has checked the operands, on a machine with these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn run(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
    scratch: &mut Scratch,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (product.affine.code, product.affine.group) {
            (Code::Nibble, 32) => run_format::<32, true>(product, tiles, blocks, scratch),
            (Code::Nibble, 64) => run_format::<64, true>(product, tiles, blocks, scratch),
            (Code::Nibble, _) => run_format::<128, true>(product, tiles, blocks, scratch),
            (Code::Byte, 32) => run_format::<32, false>(product, tiles, blocks, scratch),
            (Code::Byte, 64) => run_format::<64, false>(product, tiles, blocks, scratch),
            (Code::Byte, _) => run_format::<128, false>(product, tiles, blocks, scratch),
        }
        tile::release();
    }
}

/// Takes as many tiles at once as fit the second cache when unpacked, and each block of rows through all of them:
/// the block stays in the first cache, and neighbouring tiles' results lie beside each other.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_format<const G: usize, const NIBBLE: bool>(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
    scratch: &mut Scratch,
) {
    // What is used once need not be kept from one run of groups to the next.
    let kept = if blocks.len() == 1 { STEPS } else { product.groups() };
    let codes = if NIBBLE { kept * G * LANES } else { 0 };
    let panel = codes + kept * 2 * LINE;
    // Bytes are used where they are, nibbles where they were unpacked.
    let held = panel + if NIBBLE { 0 } else { product.segment.tile_bytes };
    let panels = if blocks.len() == 1 { 1 } else { (PANELS / held.max(1)).clamp(1, tiles.len().max(1)) };
    let space = scratch.lend::<u8>(tile::space(STEPS) + panels * panel);
    let (sums, space) = space.split_at_mut(tile::space(STEPS));
    let mut shape = 0;
    for first in tiles.clone().step_by(panels) {
        for index in blocks.clone() {
            let rows = product.input.block(index);
            for tile in first..tiles.end.min(first + panels) {
                let space = space[(tile - first) * panel..].as_mut_ptr();
                // SAFETY: the configuration fits the block; each panel has its space; the cells are the caller's
                // to give.
                unsafe {
                    if rows.rows != shape {
                        tile::configure(rows.rows, G);
                        shape = rows.rows;
                    }
                    let panel = Panel {
                        weights: product.blocks(tile..tile + 1),
                        code_bytes: product.affine.code_bytes(),
                        block_bytes: product.affine.block_bytes(),
                        product,
                        codes: space,
                        factors: space.add(codes).cast(),
                        sums: sums.as_mut_ptr().cast(),
                        once: blocks.len() == 1,
                        unpacked: index > blocks.start,
                    };
                    let place = (tile, index * BLOCK_ROWS);
                    match rows.rows {
                        13.. => panel.multiply::<G, NIBBLE, 16>(rows, place),
                        9.. => panel.multiply::<G, NIBBLE, 12>(rows, place),
                        5.. => panel.multiply::<G, NIBBLE, 8>(rows, place),
                        _ => panel.multiply::<G, NIBBLE, 4>(rows, place),
                    }
                }
            }
        }
    }
}

/// A tile of weights on its way through blocks of rows.
struct Panel<'a> {
    /// The tile's blocks.
    weights: &'a [u8],
    code_bytes: usize,
    block_bytes: usize,
    product: &'a Fast<'a>,
    /// Unpacked nibbles, `[groups, G, LANES]` in the order that tiles want; of all groups or, when they are used
    /// once, of one run.
    codes: *mut u8,
    /// Scales and biases as f32, `[groups, 2, LANES]`, of as many groups.
    factors: *mut f32,
    /// Space for the sums of `STEPS` groups, see [`tile::space`].
    sums: *mut i32,
    /// Whether there is one block only.
    once: bool,
    /// Whether `codes` and `factors` are there.
    unpacked: bool,
}

impl Panel<'_> {
    /// Multiplies with a block of at most `R` rows. Where it has fewer, the vectors of the others hold arbitrary
    /// numbers that are not stored.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn multiply<const G: usize, const NIBBLE: bool, const R: usize>(
        &self,
        rows: RowBlock<'_>,
        (tile, first): (usize, usize),
    ) {
        let groups = self.product.groups();
        let most = groups.div_ceil(groups.div_ceil(STEPS).max(1)).max(1);
        let cells = self.product.output.cells(first..first + rows.rows, tile);
        let mask = u16::MAX >> (LANES - cells.columns);
        let mut totals = [_mm512_setzero_ps(); R];
        // SAFETY: groups stay below `groups`, for which weights, codes, factors and the block's rows are there;
        // factors of rows beyond the block's last are read from the space that `Quantised` leaves behind them.
        unsafe {
            for start in (0..groups).step_by(most) {
                let steps = most.min(groups - start);
                let slot = if self.once { 0 } else { start };
                if !self.unpacked {
                    (0..steps).for_each(|step| self.unpack::<G, NIBBLE>(start + step, slot + step));
                }
                let a = rows.codes.as_ptr().add(start * rows.rows * G);
                let (b, b_step) = if NIBBLE {
                    (self.codes.cast_const().add(slot * G * LANES), G * LANES)
                } else {
                    (self.weights.as_ptr().add(start * self.block_bytes), self.block_bytes)
                };
                let products = tile::Products { a, a_step: rows.rows * G, b, b_step, groups: steps };
                let sums = products.run::<G>(self.sums);
                for step in 0..steps {
                    let group = start + step;
                    if !self.unpacked {
                        self.fetch(group + AHEAD);
                    }
                    let factors = self.factors.add((slot + step) * 2 * LANES);
                    let (scale, bias) = (_mm512_load_ps(factors), _mm512_load_ps(factors.add(LANES)));
                    let d = rows.factors.as_ptr().add(group * 2 * rows.rows);
                    for (row, total) in totals.iter_mut().enumerate() {
                        let dot = _mm512_load_si512(sums.add((step * BLOCK_ROWS + row) * LANES).cast());
                        let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*d.add(row)));
                        *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, *total);
                        *total = _mm512_fmadd_ps(bias, _mm512_set1_ps(*d.add(rows.rows + row)), *total);
                    }
                }
            }
            for (row, total) in totals.iter().enumerate() {
                // Not a shorter loop, which would take the sums out of their registers.
                if row < rows.rows {
                    _mm512_mask_storeu_ps(cells.start.add(row * cells.stride), mask, *total);
                }
            }
        }
    }

    /// Asks for a group's block, here or in the tiles that follow.
    #[inline]
    fn fetch(&self, group: usize) {
        for line in 0..self.block_bytes / LINE {
            // Beyond the last tile this is no address of ours.
            let address = self.weights.as_ptr().wrapping_add(group * self.block_bytes + line * LINE);
            // SAFETY: a prefetch reads nothing and may be given any address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
        }
    }

    /// Puts a group's codes into the order that tiles want, and widens its scales and biases; both into the
    /// panel's place `slot`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn unpack<const G: usize, const NIBBLE: bool>(&self, group: usize, slot: usize) {
        let mask = _mm512_set1_epi8(15);
        // SAFETY: the group's block is whole; the panel has space for `G * LANES` codes and two lines of factors.
        unsafe {
            let block = self.weights.as_ptr().add(group * self.block_bytes);
            if NIBBLE {
                let mut codes = self.codes.add(slot * G * LANES);
                for line in 0..G / 8 {
                    let line = _mm512_loadu_si512(block.add(line * LINE).cast());
                    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask);
                    _mm512_store_si512(codes.cast(), _mm512_and_si512(line, mask));
                    _mm512_store_si512(codes.add(LINE).cast(), high);
                    codes = codes.add(2 * LINE);
                }
            }
            let number = self.product.affine.number;
            let scales = block.add(self.code_bytes);
            let factors = self.factors.add(slot * 2 * LANES);
            _mm512_store_ps(factors, widen(number, scales));
            _mm512_store_ps(factors.add(LANES), widen(number, scales.add(LANES * number.bytes())));
        }
    }
}
