//! Fast products with 512-bit vectors: one vector is one tile, `vpdpbusd` adds four byte products to each lane.

use std::arch::x86_64::*;
use std::ops::Range;

use super::{Fast, ahead, fetch};
use crate::product::exact::widen_avx512 as widen;
use crate::product::format::{Code, LANES, Number};
use crate::product::quantised::{BLOCK_ROWS, RowBlock};

/// What a kernel reads: tiles of blocks and a block of quantised rows.
#[derive(Clone, Copy)]
struct Operands<'a> {
    /// The blocks of the first tile.
    weights: *const u8,
    tile_bytes: usize,
    number: Number,
    groups: usize,
    rows: RowBlock<'a>,
}

/// # Safety
///
/// As [`Fast::run`], which has checked the operands, on a machine with these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn run(product: &Fast<'_>, tiles: Range<usize>, block: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (product.affine.code, product.affine.group) {
            (Code::Nibble, 32) => run_format::<32, true>(product, tiles, block),
            (Code::Nibble, 64) => run_format::<64, true>(product, tiles, block),
            (Code::Nibble, _) => run_format::<128, true>(product, tiles, block),
            (Code::Byte, 32) => run_format::<32, false>(product, tiles, block),
            (Code::Byte, 64) => run_format::<64, false>(product, tiles, block),
            (Code::Byte, _) => run_format::<128, false>(product, tiles, block),
        }
    }
}

/// Splits tiles and rows among kernels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_format<const G: usize, const NIBBLE: bool>(
    product: &Fast<'_>,
    tiles: Range<usize>,
    block: usize,
) {
    let rows = product.input.block(block);
    let most = super::together(product.affine.code, rows.rows);
    let mut tile = tiles.start;
    while tile < tiles.end {
        let count = if tiles.end - tile < most { 1 } else { most };
        let operands = Operands {
            weights: product.blocks(tile..tile + count).as_ptr(),
            tile_bytes: product.segment.tile_bytes,
            number: product.affine.number,
            groups: product.groups(),
            rows,
        };
        let place = Place { product, tile, row: block * BLOCK_ROWS };
        // SAFETY: the tiles and rows are there, and the cells are the caller's to give.
        unsafe {
            match (count, rows.rows) {
                (4, 1) => tiles_of_rows::<G, NIBBLE, 4, 1>(operands, 0, place),
                (4, _) => tiles_of_rows::<G, NIBBLE, 4, 2>(operands, 0, place),
                (2, 3) => tiles_of_rows::<G, NIBBLE, 2, 3>(operands, 0, place),
                (2, _) => tiles_of_rows::<G, NIBBLE, 2, 4>(operands, 0, place),
                _ => one_tile::<G, NIBBLE>(operands, place),
            }
        }
        tile += count;
    }
}

/// Where the results of a kernel's first tile and block row go.
#[derive(Clone, Copy)]
struct Place<'a> {
    product: &'a Fast<'a>,
    tile: usize,
    row: usize,
}

/// All rows of a block, in one or two runs of about the same length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn one_tile<const G: usize, const NIBBLE: bool>(operands: Operands<'_>, place: Place<'_>) {
    let rows = operands.rows.rows;
    let first = if rows > 8 { rows.div_ceil(2) } else { rows };
    for (row, count) in [(0, first), (first, rows - first)] {
        // SAFETY: the kernel's rows are within the block.
        unsafe {
            match count {
                8 => tiles_of_rows::<G, NIBBLE, 1, 8>(operands, row, place),
                7 => tiles_of_rows::<G, NIBBLE, 1, 7>(operands, row, place),
                6 => tiles_of_rows::<G, NIBBLE, 1, 6>(operands, row, place),
                5 => tiles_of_rows::<G, NIBBLE, 1, 5>(operands, row, place),
                4 => tiles_of_rows::<G, NIBBLE, 1, 4>(operands, row, place),
                3 => tiles_of_rows::<G, NIBBLE, 1, 3>(operands, row, place),
                2 => tiles_of_rows::<G, NIBBLE, 1, 2>(operands, row, place),
                1 => tiles_of_rows::<G, NIBBLE, 1, 1>(operands, row, place),
                _ => {}
            }
        }
    }
}

/// `T` tiles and `R` rows from `row` on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tiles_of_rows<const G: usize, const NIBBLE: bool, const T: usize, const R: usize>(
    operands: Operands<'_>,
    row: usize,
    place: Place<'_>,
) {
    let Operands { weights, tile_bytes, number, groups, rows } = operands;
    let code_bytes = if NIBBLE { G * LANES / 2 } else { G * LANES };
    let block_bytes = code_bytes + 2 * LANES * number.bytes();
    let mut sums = [[_mm512_setzero_ps(); T]; R];
    // SAFETY: `groups` blocks of each of the `T` tiles lie behind `weights`, each `block_bytes` long; the row
    // block holds `groups` times `rows.rows` runs of `2 * G` bytes and two factors, and `row + R <= rows.rows`.
    unsafe {
        for group in 0..groups {
            let block = weights.add(group * block_bytes);
            // A later run of rows finds the weights in the first cache.
            if row == 0 {
                let ahead = ahead::<T>(group * block_bytes, tile_bytes);
                (0..T).for_each(|t| fetch(weights.wrapping_add(ahead + t * tile_bytes), block_bytes));
            }
            let codes = rows.codes.as_ptr().add((group * rows.rows + row) * 2 * G);
            let factors = rows.factors.as_ptr().add(group * 2 * rows.rows + row);
            let dots = dots::<G, NIBBLE, T, R>(block, tile_bytes, codes);
            for t in 0..T {
                let factor = block.add(t * tile_bytes + code_bytes);
                let scale = widen(number, factor);
                let bias = widen(number, factor.add(LANES * number.bytes()));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let d = _mm512_set1_ps(*factors.add(r));
                    let d_sum = _mm512_set1_ps(*factors.add(rows.rows + r));
                    let dot = _mm512_cvtepi32_ps(dots[r][t]);
                    sums[t] = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, d), sums[t]);
                    sums[t] = _mm512_fmadd_ps(bias, d_sum, sums[t]);
                }
            }
        }
        for t in 0..T {
            let rows = place.row + row..place.row + row + R;
            let cells = place.product.output.cells(rows, place.tile + t);
            for (r, sums) in sums.iter().enumerate() {
                let mask = u16::MAX >> (LANES - cells.columns);
                _mm512_mask_storeu_ps(cells.start.add(r * cells.stride), mask, sums[t]);
            }
        }
    }
}

/// The integer products of a group: `[R][T]` vectors of sixteen lanes.
///
/// # Safety
///
/// A block of `T` tiles at `block`, `tile_bytes` apart; `R` runs of `G` high and `G` low parts at `codes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn dots<const G: usize, const NIBBLE: bool, const T: usize, const R: usize>(
    block: *const u8,
    tile_bytes: usize,
    codes: *const i8,
) -> [[__m512i; T]; R] {
    let mut high = [[_mm512_setzero_si512(); T]; R];
    let mut low = [[_mm512_setzero_si512(); T]; R];
    let mask = _mm512_set1_epi8(15);
    let steps = if NIBBLE { G / 8 } else { G / 4 };
    // SAFETY: the caller's promise: `steps` lines of 64 bytes in each block.
    unsafe {
        for step in 0..steps {
            let mut lower = [_mm512_setzero_si512(); T];
            let mut upper = [_mm512_setzero_si512(); T];
            for t in 0..T {
                let line = _mm512_loadu_si512(block.add(t * tile_bytes + step * 64).cast());
                lower[t] = if NIBBLE { _mm512_and_si512(line, mask) } else { line };
                upper[t] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask);
            }
            // Row by row, so that codes are in registers only while all tiles use them.
            for r in 0..R {
                let codes = codes.add(r * 2 * G);
                if NIBBLE {
                    let (first, second) = (2 * step, 2 * step + 1);
                    add(&mut high[r], &lower, four(codes, first));
                    add(&mut high[r], &upper, four(codes, second));
                    add(&mut low[r], &lower, four(codes.add(G), first));
                    add(&mut low[r], &upper, four(codes.add(G), second));
                } else {
                    add(&mut high[r], &lower, four(codes, step));
                    add(&mut low[r], &lower, four(codes.add(G), step));
                }
            }
        }
    }
    for (high, low) in high.iter_mut().zip(&low) {
        for (high, low) in high.iter_mut().zip(low) {
            *high = _mm512_add_epi32(_mm512_slli_epi32::<4>(*high), *low);
        }
    }
    high
}

/// Adds four products to each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add<const T: usize>(sums: &mut [__m512i; T], weights: &[__m512i; T], codes: __m512i) {
    for t in 0..T {
        sums[t] = _mm512_dpbusd_epi32(sums[t], weights[t], codes);
    }
}

/// The four codes `4 * index..`, in every lane.
///
/// # Safety
///
/// They are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn four(codes: *const i8, index: usize) -> __m512i {
    // SAFETY: the caller's promise.
    _mm512_set1_epi32(unsafe { codes.cast::<i32>().add(index).read_unaligned() })
}
