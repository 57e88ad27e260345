//! Exact products with 256-bit vectors: two vectors are one tile.

use std::arch::x86_64::*;

use super::{DEPTH, Stretch};
use crate::product::format::{Affine, Code, LANES, Number};

/// Eight numbers, widened.
///
/// # Safety
///
/// `bytes` points at eight numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::product) unsafe fn widen(number: Number, bytes: *const u8) -> __m256 {
    // SAFETY: the caller's promise; 16 or 32 bytes are read.
    unsafe {
        match number {
            Number::Bf16 => {
                let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
            }
            Number::F16 => _mm256_cvtph_ps(_mm_loadu_si128(bytes.cast())),
            Number::F32 => _mm256_loadu_ps(bytes.cast()),
        }
    }
}

/// # Safety
///
/// `block` is a whole block and `panel` holds its group for sixteen rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode_affine(affine: Affine, block: &[u8], panel: &mut [f32]) {
    debug_assert!(block.len() == affine.block_bytes() && panel.len() == affine.group * LANES);
    let mask = _mm256_set1_epi32(if affine.code == Code::Nibble { 15 } else { 255 });
    for half in 0..2 {
        // SAFETY: lines lie within the codes, factors behind them; each input has sixteen places in the panel.
        unsafe {
            let factors = block.as_ptr().add(affine.code_bytes() + half * 8 * affine.number.bytes());
            let scale = widen(affine.number, factors);
            let bias = widen(affine.number, factors.add(affine.scale_bytes()));
            let mut weights = panel.as_mut_ptr().add(half * 8);
            let mut put = |shifted: __m256i| {
                let code = _mm256_cvtepi32_ps(_mm256_and_si256(shifted, mask));
                _mm256_storeu_ps(weights, _mm256_fmadd_ps(scale, code, bias));
                weights = weights.add(LANES);
            };
            for line in 0..affine.code_bytes() / 64 {
                let line = _mm256_loadu_si256(block.as_ptr().add(line * 64 + half * 32).cast());
                put(line);
                put(_mm256_srli_epi32::<8>(line));
                put(_mm256_srli_epi32::<16>(line));
                put(_mm256_srli_epi32::<24>(line));
                if affine.code == Code::Nibble {
                    put(_mm256_srli_epi32::<4>(line));
                    put(_mm256_srli_epi32::<12>(line));
                    put(_mm256_srli_epi32::<20>(line));
                    put(_mm256_srli_epi32::<28>(line));
                }
            }
        }
    }
}

/// # Safety
///
/// `bytes` holds as many numbers as `panel`, a multiple of eight.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode_dense(number: Number, bytes: &[u8], panel: &mut [f32]) {
    debug_assert!(bytes.len() == panel.len() * number.bytes() && panel.len().is_multiple_of(8));
    for at in (0..panel.len()).step_by(8) {
        // SAFETY: eight numbers from `at` lie within both slices.
        unsafe {
            let weights = widen(number, bytes.as_ptr().add(at * number.bytes()));
            _mm256_storeu_ps(panel.as_mut_ptr().add(at), weights);
        }
    }
}

/// # Safety
///
/// `stretch.holds()`.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn accumulate(stretch: Stretch<'_>) {
    let sums = stretch.sums.as_mut_ptr();
    let (rows, tiles) = (stretch.rows, stretch.tiles);
    // Sixteen registers: one row of four tiles, or up to six rows of one tile.
    if rows == 1 && tiles == 4 {
        // SAFETY: the caller's promise; four tiles and one row are there.
        return unsafe { chains::<4, 1>(&stretch, sums, 0, 0) };
    }
    for tile in 0..tiles {
        let mut row = 0;
        while row < rows {
            let count = (rows - row).min(6);
            // SAFETY: the caller's promise; `tile` and `row + count` are within it.
            unsafe {
                match count {
                    6 => chains::<1, 6>(&stretch, sums, tile, row),
                    5 => chains::<1, 5>(&stretch, sums, tile, row),
                    4 => chains::<1, 4>(&stretch, sums, tile, row),
                    3 => chains::<1, 3>(&stretch, sums, tile, row),
                    2 => chains::<1, 2>(&stretch, sums, tile, row),
                    _ => chains::<1, 1>(&stretch, sums, tile, row),
                }
            }
            row += count;
        }
    }
}

/// `T` tiles from `tile` on and `R` rows from `row` on; `cells` are all the sums.
#[target_feature(enable = "avx2,fma")]
unsafe fn chains<const T: usize, const R: usize>(
    stretch: &Stretch<'_>,
    cells: *mut f32,
    tile: usize,
    row: usize,
) {
    // SAFETY: `stretch.holds()` bounds every index: tiles below `tile + T`, rows below `row + R`, inputs below
    // `depth`, lanes below sixteen.
    unsafe {
        let mut sums = [[[_mm256_setzero_ps(); 2]; T]; R];
        let cell =
            |r: usize, t: usize, half: usize| ((row + r) * stretch.tiles + tile + t) * LANES + half * 8;
        for (r, sums) in sums.iter_mut().enumerate() {
            for (t, sums) in sums.iter_mut().enumerate() {
                for (half, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(cells.add(cell(r, t, half)));
                }
            }
        }
        let x = stretch.x.as_ptr().add(row * stretch.stride);
        let panel = stretch.panel.as_ptr().add(tile * DEPTH * LANES);
        for k in 0..stretch.depth {
            for t in 0..T {
                let weights = panel.add((t * DEPTH + k) * LANES);
                let weights = [_mm256_loadu_ps(weights), _mm256_loadu_ps(weights.add(8))];
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_ps(*x.add(r * stretch.stride + k));
                    for (sum, weights) in sums[t].iter_mut().zip(weights) {
                        *sum = _mm256_fmadd_ps(x, weights, *sum);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (t, sums) in sums.iter().enumerate() {
                for (half, sum) in sums.iter().enumerate() {
                    _mm256_storeu_ps(cells.add(cell(r, t, half)), *sum);
                }
            }
        }
    }
}
