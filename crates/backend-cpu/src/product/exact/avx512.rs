//! Exact products with 512-bit vectors: one vector is one tile.

use std::arch::x86_64::*;

use super::{DEPTH, Stretch};
use crate::product::format::{Affine, Code, LANES, Number};

/// Sixteen numbers, widened.
///
/// # Safety
///
/// `bytes` points at sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(in crate::product) unsafe fn widen(number: Number, bytes: *const u8) -> __m512 {
    // SAFETY: the caller's promise; 32 or 64 bytes are read.
    unsafe {
        match number {
            Number::Bf16 => {
                let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
            }
            Number::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(bytes.cast())),
            Number::F32 => _mm512_loadu_ps(bytes.cast()),
        }
    }
}

/// # Safety
///
/// `block` is a whole block and `panel` holds its group for sixteen rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn decode_affine(affine: Affine, block: &[u8], panel: &mut [f32]) {
    debug_assert!(block.len() == affine.block_bytes() && panel.len() == affine.group * LANES);
    // SAFETY: lines lie within the codes, factors behind them; each input has sixteen places in the panel.
    unsafe {
        let factors = block.as_ptr().add(affine.code_bytes());
        let scale = widen(affine.number, factors);
        let bias = widen(affine.number, factors.add(affine.scale_bytes()));
        let mut weights = panel.as_mut_ptr();
        let mut put = |code: __m512| {
            _mm512_storeu_ps(weights, _mm512_fmadd_ps(scale, code, bias));
            weights = weights.add(LANES);
        };
        // A permutation looks at the low four bits of an index alone, and so turns nibbles into floats.
        let floats = _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
        let nibble = |shifted: __m512i| _mm512_permutexvar_ps(shifted, floats);
        let low = _mm512_set1_epi32(255);
        let byte = |shifted: __m512i| _mm512_cvtepi32_ps(_mm512_and_si512(shifted, low));
        for line in 0..affine.code_bytes() / 64 {
            let line = _mm512_loadu_si512(block.as_ptr().add(line * 64).cast());
            match affine.code {
                Code::Nibble => {
                    put(nibble(line));
                    put(nibble(_mm512_srli_epi32::<8>(line)));
                    put(nibble(_mm512_srli_epi32::<16>(line)));
                    put(nibble(_mm512_srli_epi32::<24>(line)));
                    put(nibble(_mm512_srli_epi32::<4>(line)));
                    put(nibble(_mm512_srli_epi32::<12>(line)));
                    put(nibble(_mm512_srli_epi32::<20>(line)));
                    put(nibble(_mm512_srli_epi32::<28>(line)));
                }
                Code::Byte => {
                    put(byte(line));
                    put(byte(_mm512_srli_epi32::<8>(line)));
                    put(byte(_mm512_srli_epi32::<16>(line)));
                    put(byte(_mm512_srli_epi32::<24>(line)));
                }
            }
        }
    }
}

/// # Safety
///
/// `bytes` holds as many numbers as `panel`, a multiple of sixteen.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn decode_dense(number: Number, bytes: &[u8], panel: &mut [f32]) {
    debug_assert!(bytes.len() == panel.len() * number.bytes() && panel.len().is_multiple_of(LANES));
    for at in (0..panel.len()).step_by(LANES) {
        // SAFETY: sixteen numbers from `at` lie within both slices.
        unsafe {
            let weights = widen(number, bytes.as_ptr().add(at * number.bytes()));
            _mm512_storeu_ps(panel.as_mut_ptr().add(at), weights);
        }
    }
}

/// # Safety
///
/// `stretch.holds()`.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn accumulate(stretch: Stretch<'_>) {
    let sums = stretch.sums.as_mut_ptr();
    // SAFETY: the caller's promise.
    unsafe {
        match stretch.tiles {
            4 => rows::<4>(&stretch, sums),
            3 => rows::<3>(&stretch, sums),
            2 => rows::<2>(&stretch, sums),
            _ => rows::<1>(&stretch, sums),
        }
    }
}

/// All rows, up to six at a time: with four tiles, 24 of the 32 registers hold sums.
#[target_feature(enable = "avx512f")]
unsafe fn rows<const T: usize>(stretch: &Stretch<'_>, sums: *mut f32) {
    let mut row = 0;
    while row < stretch.rows {
        let count = (stretch.rows - row).min(6);
        // SAFETY: `stretch.holds()`, and `row + count` is at most its rows.
        unsafe {
            let cells = sums.add(row * T * LANES);
            match count {
                6 => chains::<T, 6>(stretch, row, cells),
                5 => chains::<T, 5>(stretch, row, cells),
                4 => chains::<T, 4>(stretch, row, cells),
                3 => chains::<T, 3>(stretch, row, cells),
                2 => chains::<T, 2>(stretch, row, cells),
                _ => chains::<T, 1>(stretch, row, cells),
            }
        }
        row += count;
    }
}

/// `T` tiles and `R` rows from `row` on, whose sums lie at `cells`.
#[target_feature(enable = "avx512f")]
unsafe fn chains<const T: usize, const R: usize>(stretch: &Stretch<'_>, row: usize, cells: *mut f32) {
    // SAFETY: `stretch.holds()` bounds every index: tiles below `T`, rows below `row + R`, inputs below `depth`.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); T]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(cells.add((r * T + t) * LANES));
            }
        }
        let x = stretch.x.as_ptr().add(row * stretch.stride);
        let panel = stretch.panel.as_ptr();
        for k in 0..stretch.depth {
            let mut weights = [_mm512_setzero_ps(); T];
            for (t, weights) in weights.iter_mut().enumerate() {
                *weights = _mm512_loadu_ps(panel.add((t * DEPTH + k) * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(r * stretch.stride + k));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_fmadd_ps(x, weights, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                _mm512_storeu_ps(cells.add((r * T + t) * LANES), *sum);
            }
        }
    }
}
