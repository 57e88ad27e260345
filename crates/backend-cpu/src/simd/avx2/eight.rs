//! Steps on the halves of vectors.
//!
//! Invariant: each is called with a token at hand, which exists only where the machine has the instructions.

use super::Pair;
use std::arch::x86_64::*;

/// 2^n for integral `n` in the range of normal numbers.
#[inline(always)]
pub(super) fn power(n: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
    }
}

/// Entries of a table at the lowest four bits of a word shifted by each of eight distances.
#[inline(always)]
pub(super) fn look_up_eight(table: Pair, word: u32, shifts: &[u32]) -> __m256 {
    debug_assert_eq!(shifts.len(), 8);
    // SAFETY: a token exists only where the machine has the instructions, and there are eight distances.
    unsafe {
        let shifts = _mm256_loadu_si256(shifts.as_ptr().cast());
        let indices = _mm256_srlv_epi32(_mm256_set1_epi32(word as i32), shifts);
        let low = _mm256_permutevar8x32_ps(table.0, indices);
        let high = _mm256_permutevar8x32_ps(table.1, indices);
        // The fourth bit, where blending looks for it.
        _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(indices)))
    }
}

/// The lanes with even indices of both, and those with odd ones.
#[inline(always)]
pub(super) fn deal_eight(a: __m256, b: __m256) -> (__m256, __m256) {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let (low, high) = (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
        (_mm256_shuffle_ps::<0x88>(low, high), _mm256_shuffle_ps::<0xdd>(low, high))
    }
}

/// Undoes [`deal_eight`].
#[inline(always)]
pub(super) fn zip_eight(even: __m256, odd: __m256) -> Pair {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
        (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
    }
}

/// Eight words as the upper halves of floats.
#[inline(always)]
pub(super) fn widen_bf16(words: __m128i) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words))) }
}

/// The upper halves of floats, rounded to nearest even, in the lower halves of the lanes.
#[inline(always)]
pub(super) fn narrow_bf16(x: __m256) -> __m256i {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
    }
}

/// The halves of `a`, then those of `b`.
#[inline(always)]
pub(super) fn add_halves(a: __m256, b: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)) }
}

/// In each half: lanes 0 and 1, then 2 and 3 of `a`, then those of `b`.
#[inline(always)]
pub(super) fn add_singles(a: __m256, b: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b)) }
}

/// In each half: lanes 0 and 2, then 1 and 3 of `a`, then those of `b`.
#[inline(always)]
pub(super) fn add_pairs(a: __m256, b: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b)) }
}

/// Lane `i` of vector `j` of the result is lane `j` of vector `i`.
#[inline(always)]
pub(super) fn transpose_eight(xs: &[__m256; 8]) -> [__m256; 8] {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        // Within halves first: half h of `within[4 a + j]` holds lane 4 h + j of the vectors 4 a .. 4 a + 4.
        let mut within = [_mm256_setzero_ps(); 8];
        for (to, from) in within.chunks_exact_mut(4).zip(xs.chunks_exact(4)) {
            let (a, b) = (_mm256_unpacklo_ps(from[0], from[1]), _mm256_unpacklo_ps(from[2], from[3]));
            let (c, d) = (_mm256_unpackhi_ps(from[0], from[1]), _mm256_unpackhi_ps(from[2], from[3]));
            (to[0], to[1]) = (_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b));
            (to[2], to[3]) = (_mm256_shuffle_ps::<0x44>(c, d), _mm256_shuffle_ps::<0xee>(c, d));
        }
        let mut out = [_mm256_setzero_ps(); 8];
        for j in 0..4 {
            out[j] = _mm256_permute2f128_ps::<0x20>(within[j], within[4 + j]);
            out[4 + j] = _mm256_permute2f128_ps::<0x31>(within[j], within[4 + j]);
        }
        out
    }
}
