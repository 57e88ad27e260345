//! Fast products with 256-bit vectors: a tile is two halves of eight rows.
//!
//! `vpmaddubsw` adds two byte products in 16 bits, which must not saturate: a nibble times a code is at most
//! 15 * 127 = 1905 in magnitude, so 16 of them fit (30480). Bytes are taken as two nibbles.

use std::arch::x86_64::*;
use std::ops::Range;

use super::{AHEAD, Fast, fetch};
use crate::product::exact::widen_avx2 as widen;
use crate::product::format::{Code, LANES, Number};
use crate::product::quantised::{BLOCK_ROWS, RowBlock};

/// Rows of a half tile.
const HALF: usize = 8;

/// # Safety
///
/// As [`Fast::run`], which has checked the operands, on a machine with these instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(product: &Fast<'_>, tiles: Range<usize>, block: usize) {
    let rows = product.input.block(block);
    for tile in tiles {
        let mut row = 0;
        while row < rows.rows {
            let place = Place { product, tile, rows, first: block * BLOCK_ROWS, row };
            // SAFETY: the tile and the rows are there, and the cells are the caller's to give.
            unsafe {
                row += match rows.rows - row {
                    4.. => run_rows::<4>(place),
                    3 => run_rows::<3>(place),
                    2 => run_rows::<2>(place),
                    _ => run_rows::<1>(place),
                };
            }
        }
    }
}

/// A tile and the rows from `row` of a block on.
#[derive(Clone, Copy)]
struct Place<'a> {
    product: &'a Fast<'a>,
    tile: usize,
    rows: RowBlock<'a>,
    /// First row of the block.
    first: usize,
    row: usize,
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_rows<const R: usize>(place: Place<'_>) -> usize {
    let affine = place.product.affine;
    // SAFETY: the caller's promise.
    unsafe {
        match (affine.code, affine.group) {
            (Code::Nibble, 32) => tile::<32, true, R>(place),
            (Code::Nibble, 64) => tile::<64, true, R>(place),
            (Code::Nibble, _) => tile::<128, true, R>(place),
            (Code::Byte, 32) => tile::<32, false, R>(place),
            (Code::Byte, 64) => tile::<64, false, R>(place),
            (Code::Byte, _) => tile::<128, false, R>(place),
        }
    }
    R
}

/// One tile and `R` rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<const G: usize, const NIBBLE: bool, const R: usize>(place: Place<'_>) {
    let Place { product, tile, rows, first, row } = place;
    let number = product.affine.number;
    let weights = product.blocks(tile..tile + 1);
    let mut sums = [[_mm256_setzero_ps(); R]; 2];
    for (group, block) in weights.chunks_exact(product.affine.block_bytes()).enumerate() {
        if row == 0 {
            fetch(block.as_ptr().wrapping_add(AHEAD), block.len());
        }
        // SAFETY: blocks are whole; the row block holds a run of codes and two factors for each group and row,
        // and `row + R` is at most its rows.
        unsafe {
            let codes = rows.codes.as_ptr().add((group * rows.rows + row) * G);
            let factors = rows.factors.as_ptr().add(group * 2 * rows.rows + row);
            for (half, sums) in sums.iter_mut().enumerate() {
                let dots = dots::<G, NIBBLE, R>(block.as_ptr().add(half * 32), codes);
                let (scale, bias) = factors_of(number, block.as_ptr().add(product.affine.code_bytes()), half);
                for r in 0..R {
                    let d = _mm256_set1_ps(*factors.add(r));
                    let d_sum = _mm256_set1_ps(*factors.add(rows.rows + r));
                    let dot = _mm256_cvtepi32_ps(dots[r]);
                    sums[r] = _mm256_fmadd_ps(dot, _mm256_mul_ps(scale, d), sums[r]);
                    sums[r] = _mm256_fmadd_ps(bias, d_sum, sums[r]);
                }
            }
        }
    }
    let [lower, upper] = sums;
    for (r, (lower, upper)) in lower.into_iter().zip(upper).enumerate() {
        let mut lanes = [0.0; LANES];
        // SAFETY: the array holds two vectors; the cells are the caller's to give.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), lower);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(HALF), upper);
            let cells = product.output.lanes(first + row + r, tile);
            cells.copy_from_slice(&lanes[..cells.len()]);
        }
    }
}

/// Scales and biases of one half tile.
///
/// # Safety
///
/// Sixteen scales and sixteen biases lie at `factors`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn factors_of(number: Number, factors: *const u8, half: usize) -> (__m256, __m256) {
    // SAFETY: the caller's promise.
    unsafe {
        let scales = factors.add(half * HALF * number.bytes());
        (widen(number, scales), widen(number, scales.add(LANES * number.bytes())))
    }
}

/// The integer products of a group for one half tile.
///
/// # Safety
///
/// `block` points at the half tile in the first of a block's lines; `R` runs of `G` codes lie at `codes`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dots<const G: usize, const NIBBLE: bool, const R: usize>(
    block: *const u8,
    codes: *const i8,
) -> [__m256i; R] {
    /// Steps whose sums of four products fit 16 bits: both halves of a nibble line share a sum, those of a byte
    /// line have one each.
    const fn steps(nibble: bool) -> usize {
        if nibble { 4 } else { 8 }
    }
    let (mask, one, sixteen) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1), _mm256_set1_epi16(16));
    let lines = if NIBBLE { G / 8 } else { G / 4 };
    let mut dots = [_mm256_setzero_si256(); R];
    for first in (0..lines).step_by(steps(NIBBLE)) {
        let mut low = [_mm256_setzero_si256(); R];
        let mut high = [_mm256_setzero_si256(); R];
        for line in first..first + steps(NIBBLE) {
            // SAFETY: the caller's promise; a block has `lines` lines of 64 bytes, a multiple of the steps.
            unsafe {
                let weights = _mm256_loadu_si256(block.add(line * 64).cast());
                let lower = _mm256_and_si256(weights, mask);
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(weights), mask);
                for r in 0..R {
                    let code = codes.add(r * G).cast::<i32>();
                    let broadcast = |index: usize| _mm256_set1_epi32(code.add(index).read_unaligned());
                    let (for_lower, for_upper) = if NIBBLE {
                        (broadcast(2 * line), broadcast(2 * line + 1))
                    } else {
                        (broadcast(line), broadcast(line))
                    };
                    low[r] = _mm256_add_epi16(low[r], _mm256_maddubs_epi16(lower, for_lower));
                    let sum = if NIBBLE { &mut low[r] } else { &mut high[r] };
                    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(upper, for_upper));
                }
            }
        }
        for r in 0..R {
            dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(low[r], one));
            if !NIBBLE {
                dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(high[r], sixteen));
            }
        }
    }
    dots
}
