//! Fast products with 256-bit vectors: a tile is two halves of eight rows.
//!
//! `vpmaddubsw` adds two byte products in 16 bits, which must not saturate: a nibble times a high part is at most
//! 15 * 127 = 1905 in magnitude, so 16 of them fit (30480); so do 16 of a byte times a low part, at most
//! 255 * 8 = 2040 each (32640). For high parts bytes are taken as two nibbles.

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
            let codes = rows.codes.as_ptr().add((group * rows.rows + row) * 2 * G);
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
/// `block` points at the half tile in the first of a block's lines; `R` runs of `G` high and `G` low parts lie at
/// `codes`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dots<const G: usize, const NIBBLE: bool, const R: usize>(
    block: *const u8,
    codes: *const i8,
) -> [__m256i; R] {
    let (one, sixteen) = (_mm256_set1_epi16(1), _mm256_set1_epi16(16));
    let lines = if NIBBLE { G / 8 } else { G / 4 };
    // As many as 16 bits have room for.
    let together = if NIBBLE { 4 } else { 8 };
    let (mut high, mut low) = ([_mm256_setzero_si256(); R], [_mm256_setzero_si256(); R]);
    for first in (0..lines).step_by(together) {
        let mut sums = Sums::<R>::new();
        for line in first..first + together {
            // SAFETY: the caller's promise; a block has `lines` lines of 64 bytes, a multiple of `together`.
            unsafe {
                let weights = _mm256_loadu_si256(block.add(line * 64).cast());
                if NIBBLE {
                    sums.nibbles::<G>(weights, codes, line)
                } else {
                    sums.bytes::<G>(weights, codes, line)
                }
            }
        }
        for r in 0..R {
            let upper = _mm256_madd_epi16(sums.high[r], one);
            high[r] = _mm256_add_epi32(high[r], upper);
            if !NIBBLE {
                high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(sums.upper[r], sixteen));
            }
            low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(sums.low[r], one));
        }
    }
    for (high, low) in high.iter_mut().zip(&low) {
        *high = _mm256_add_epi32(_mm256_slli_epi32::<4>(*high), *low);
    }
    high
}

/// Sums of products in 16 bits.
struct Sums<const R: usize> {
    /// With high parts: of nibbles, or of the lower halves of bytes.
    high: [__m256i; R],
    /// With high parts: of the upper halves of bytes.
    upper: [__m256i; R],
    /// With low parts.
    low: [__m256i; R],
}

impl<const R: usize> Sums<R> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        let zero = [_mm256_setzero_si256(); R];
        Self { high: zero, upper: zero, low: zero }
    }

    /// A line of nibbles: inputs `8 * line..`.
    ///
    /// # Safety
    ///
    /// As [`dots`]; the group has the line.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn nibbles<const G: usize>(&mut self, weights: __m256i, codes: *const i8, line: usize) {
        let (lower, upper) = halves(weights);
        for r in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                let codes = codes.add(r * 2 * G);
                let first = _mm256_maddubs_epi16(lower, four(codes, 2 * line));
                let second = _mm256_maddubs_epi16(upper, four(codes, 2 * line + 1));
                self.high[r] = _mm256_add_epi16(self.high[r], _mm256_add_epi16(first, second));
                let first = _mm256_maddubs_epi16(lower, four(codes.add(G), 2 * line));
                let second = _mm256_maddubs_epi16(upper, four(codes.add(G), 2 * line + 1));
                self.low[r] = _mm256_add_epi16(self.low[r], _mm256_add_epi16(first, second));
            }
        }
    }

    /// A line of bytes: inputs `4 * line..`.
    ///
    /// # Safety
    ///
    /// As [`dots`]; the group has the line.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn bytes<const G: usize>(&mut self, weights: __m256i, codes: *const i8, line: usize) {
        let (lower, upper) = halves(weights);
        for r in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                let codes = codes.add(r * 2 * G);
                let high = four(codes, line);
                self.high[r] = _mm256_add_epi16(self.high[r], _mm256_maddubs_epi16(lower, high));
                self.upper[r] = _mm256_add_epi16(self.upper[r], _mm256_maddubs_epi16(upper, high));
                let low = _mm256_maddubs_epi16(weights, four(codes.add(G), line));
                self.low[r] = _mm256_add_epi16(self.low[r], low);
            }
        }
    }
}

/// The lower and the upper half of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(bytes: __m256i) -> (__m256i, __m256i) {
    let mask = _mm256_set1_epi8(15);
    (_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask))
}

/// The four codes `4 * index..`, in every lane.
///
/// # Safety
///
/// They are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four(codes: *const i8, index: usize) -> __m256i {
    // SAFETY: the caller's promise.
    _mm256_set1_epi32(unsafe { codes.cast::<i32>().add(index).read_unaligned() })
}
