//! Fast products with 512-bit vectors: one vector is one tile, `vpdpbusd` adds four byte products to each lane.

use std::arch::x86_64::*;
use std::ops::Range;

use super::Fast;
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
pub(super) unsafe fn run(product: &Fast<'_>, tiles: Range<usize>, blocks: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        match (product.affine.code, product.affine.group) {
            (Code::Nibble, 32) => run_format::<32, true>(product, tiles, blocks),
            (Code::Nibble, 64) => run_format::<64, true>(product, tiles, blocks),
            (Code::Nibble, _) => run_format::<128, true>(product, tiles, blocks),
            (Code::Byte, 32) => run_format::<32, false>(product, tiles, blocks),
            (Code::Byte, 64) => run_format::<64, false>(product, tiles, blocks),
            (Code::Byte, _) => run_format::<128, false>(product, tiles, blocks),
        }
    }
}

/// Splits tiles and rows among kernels: one row takes four tiles at once, several rows one or two.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_format<const G: usize, const NIBBLE: bool>(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
) {
    let mut tile = tiles.start;
    while tile < tiles.end {
        let count = match tiles.end - tile {
            _ if product.input.rows() > 1 => 1,
            4.. => 4,
            _ => 1,
        };
        let weights = product.blocks(tile..tile + count).as_ptr();
        for index in blocks.clone() {
            let rows = product.input.block(index);
            let operands = Operands {
                weights,
                tile_bytes: product.segment.tile_bytes,
                number: product.affine.number,
                groups: product.groups(),
                rows,
            };
            let place = Place { product, tile, row: index * BLOCK_ROWS };
            // SAFETY: the tiles and rows are there, and the cells are the caller's to give.
            unsafe {
                if count == 4 {
                    tiles_of_rows::<G, NIBBLE, 4, 1>(operands, 0, place);
                } else {
                    one_tile::<G, NIBBLE>(operands, place);
                }
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn one_tile<const G: usize, const NIBBLE: bool>(operands: Operands<'_>, place: Place<'_>) {
    let mut row = 0;
    while row < operands.rows.rows {
        // SAFETY: the kernel's rows are within the block.
        unsafe {
            row += match operands.rows.rows - row {
                8.. => tiles_of_rows::<G, NIBBLE, 1, 8>(operands, row, place),
                7 => tiles_of_rows::<G, NIBBLE, 1, 7>(operands, row, place),
                6 => tiles_of_rows::<G, NIBBLE, 1, 6>(operands, row, place),
                5 => tiles_of_rows::<G, NIBBLE, 1, 5>(operands, row, place),
                4 => tiles_of_rows::<G, NIBBLE, 1, 4>(operands, row, place),
                3 => tiles_of_rows::<G, NIBBLE, 1, 3>(operands, row, place),
                2 => tiles_of_rows::<G, NIBBLE, 1, 2>(operands, row, place),
                _ => tiles_of_rows::<G, NIBBLE, 1, 1>(operands, row, place),
            };
        }
    }
}

/// `T` tiles and `R` rows from `row` on; gives `R`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tiles_of_rows<const G: usize, const NIBBLE: bool, const T: usize, const R: usize>(
    operands: Operands<'_>,
    row: usize,
    place: Place<'_>,
) -> usize {
    let Operands { weights, tile_bytes, number, groups, rows } = operands;
    let code_bytes = if NIBBLE { G * LANES / 2 } else { G * LANES };
    let block_bytes = code_bytes + 2 * LANES * number.bytes();
    let mut sums = [[_mm512_setzero_ps(); T]; R];
    // SAFETY: `groups` blocks of each of the `T` tiles lie behind `weights`, each `block_bytes` long; the row
    // block holds `groups` times `rows.rows` runs of `G` codes and two factors, and `row + R <= rows.rows`.
    unsafe {
        for group in 0..groups {
            let block = weights.add(group * block_bytes);
            let codes = rows.codes.as_ptr().add((group * rows.rows + row) * G);
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
    R
}

/// The integer products of a group: `[R][T]` vectors of sixteen lanes.
///
/// # Safety
///
/// A block of `T` tiles at `block`, `tile_bytes` apart; `R` runs of `G` codes at `codes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn dots<const G: usize, const NIBBLE: bool, const T: usize, const R: usize>(
    block: *const u8,
    tile_bytes: usize,
    codes: *const i8,
) -> [[__m512i; T]; R] {
    let mut even = [[_mm512_setzero_si512(); T]; R];
    // A second chain hides the latency of the byte products where few sums are under way.
    let mut odd = [[_mm512_setzero_si512(); T]; R];
    let two = T * R <= 4;
    let mask = _mm512_set1_epi8(15);
    let steps = if NIBBLE { G / 8 } else { G / 4 };
    // SAFETY: the caller's promise: `steps` lines of 64 bytes in each block.
    unsafe {
        for step in 0..steps {
            for t in 0..T {
                let line = _mm512_loadu_si512(block.add(t * tile_bytes + step * 64).cast());
                for r in 0..R {
                    let code = codes.add(r * G).cast::<i32>();
                    if NIBBLE {
                        let low = _mm512_set1_epi32(code.add(2 * step).read_unaligned());
                        let high = _mm512_set1_epi32(code.add(2 * step + 1).read_unaligned());
                        even[r][t] = _mm512_dpbusd_epi32(even[r][t], _mm512_and_si512(line, mask), low);
                        let line = _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask);
                        let sum = if two { &mut odd[r][t] } else { &mut even[r][t] };
                        *sum = _mm512_dpbusd_epi32(*sum, line, high);
                    } else {
                        let code = _mm512_set1_epi32(code.add(step).read_unaligned());
                        let sum = if two && step % 2 == 1 { &mut odd[r][t] } else { &mut even[r][t] };
                        *sum = _mm512_dpbusd_epi32(*sum, line, code);
                    }
                }
            }
        }
    }
    if two {
        for (even, odd) in even.iter_mut().zip(&odd) {
            for (even, odd) in even.iter_mut().zip(odd) {
                *even = _mm512_add_epi32(*even, *odd);
            }
        }
    }
    even
}
