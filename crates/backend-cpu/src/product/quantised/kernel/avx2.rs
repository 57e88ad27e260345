//! Quantising with 256-bit vectors.

use std::arch::x86_64::*;

use super::scale;

/// Quantises one group.
///
/// # Safety
///
/// The slices have one length, a multiple of 16.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quantise(x: &[f32], [high, low]: [&mut [i8]; 2]) -> (f32, f32) {
    debug_assert!(x.len() == high.len() && x.len() == low.len() && x.len().is_multiple_of(16));
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let mut largest = _mm256_setzero_si256();
    for at in (0..x.len()).step_by(8) {
        // SAFETY: 8 inputs from `at` lie within the slice.
        let bits = unsafe { _mm256_loadu_si256(x.as_ptr().add(at).cast()) };
        largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
    }
    let largest = lanes(largest).into_iter().fold(0, |largest, lane| largest.max(lane as u32));
    let (d, factor) = scale(largest);
    let Some(factor) = factor else {
        high.fill(0);
        low.fill(0);
        return (d, d);
    };
    let factor = _mm256_set1_ps(factor);
    let mut sum = _mm256_setzero_si256();
    for at in (0..x.len()).step_by(16) {
        // SAFETY: 16 inputs and codes from `at` lie within the slices.
        unsafe {
            let first = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at)), factor);
            let second = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at + 8)), factor);
            // Rounds half to even, the mode that Rust guarantees.
            let (first, second) = (_mm256_cvtps_epi32(first), _mm256_cvtps_epi32(second));
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(first, second));
            // Packing works within halves: put the four quarters back in order.
            let codes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(first, second));
            let upper = _mm256_srai_epi16::<4>(_mm256_add_epi16(codes, _mm256_set1_epi16(8)));
            let lower = _mm256_sub_epi16(codes, _mm256_slli_epi16::<4>(upper));
            _mm_storeu_si128(high.as_mut_ptr().add(at).cast(), bytes(upper));
            _mm_storeu_si128(low.as_mut_ptr().add(at).cast(), bytes(lower));
        }
    }
    (d, d * lanes(sum).into_iter().sum::<i32>() as f32)
}

/// Sixteen words that fit bytes, as bytes.
#[target_feature(enable = "avx2")]
fn bytes(words: __m256i) -> __m128i {
    _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
}

#[target_feature(enable = "avx2")]
fn lanes(vector: __m256i) -> [i32; 8] {
    let mut lanes = [0; 8];
    // SAFETY: the array has the vector's size.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}
