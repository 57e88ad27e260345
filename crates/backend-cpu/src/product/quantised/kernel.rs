//! Quantising one group, for each instruction set.

use super::GroupCodes;
use crate::isa::Isa;

/// Groups of smaller values count as zeros.
const SMALLEST: f32 = f32::from_bits(8 << 23);

/// Quantises a group of the row `x`; gives `d` and `d * sum of codes`.
pub(super) fn group(isa: Isa, x: &[f32], group: GroupCodes<'_>) -> (f32, f32) {
    let x = &x[group.start..][..group.codes.len()];
    match isa.limited() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `limited` gives only what the machine has; a group is a multiple of 32 inputs.
        Isa::Amx | Isa::Avx512Vnni => unsafe { x86::quantise_avx512(x, group.codes) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { x86::quantise_avx2(x, group.codes) },
        _ => quantise(x, group.codes),
    }
}

/// `d` and the factor for the inputs, from the bits of the largest magnitude; `None` when all codes are 0, then
/// with the `d` that says why.
fn scale(largest: u32) -> (f32, Option<f32>) {
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        (f32::NAN, None)
    } else if largest < SMALLEST {
        (0.0, None)
    } else {
        (largest / 127.0, Some(127.0 / largest))
    }
}

fn quantise(x: &[f32], codes: &mut [i8]) -> (f32, f32) {
    // Magnitudes order like their bits, infinity and NaN above all.
    let largest = x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff));
    let (d, factor) = scale(largest);
    let Some(factor) = factor else {
        codes.fill(0);
        return (d, d);
    };
    let mut sum = 0;
    for (code, x) in codes.iter_mut().zip(x) {
        let rounded = (x * factor).round_ties_even() as i32;
        *code = rounded as i8;
        sum += rounded;
    }
    (d, d * sum as f32)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::scale;

    /// # Safety
    ///
    /// The slices have one length, a multiple of 16.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn quantise_avx512(x: &[f32], codes: &mut [i8]) -> (f32, f32) {
        debug_assert!(x.len() == codes.len() && x.len().is_multiple_of(16));
        let magnitude = _mm512_set1_epi32(0x7fff_ffff);
        let mut largest = _mm512_setzero_si512();
        for at in (0..x.len()).step_by(16) {
            // SAFETY: 16 inputs from `at` lie within the slice.
            let bits = unsafe { _mm512_loadu_si512(x.as_ptr().add(at).cast()) };
            largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
        }
        let (d, factor) = scale(_mm512_reduce_max_epu32(largest));
        let Some(factor) = factor else {
            codes.fill(0);
            return (d, d);
        };
        let factor = _mm512_set1_ps(factor);
        let mut sum = _mm512_setzero_si512();
        for at in (0..x.len()).step_by(16) {
            // SAFETY: 16 inputs and codes from `at` lie within the slices.
            unsafe {
                let scaled = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr().add(at)), factor);
                // Rounds half to even, the mode that Rust guarantees.
                let rounded = _mm512_cvtps_epi32(scaled);
                sum = _mm512_add_epi32(sum, rounded);
                _mm_storeu_si128(codes.as_mut_ptr().add(at).cast(), _mm512_cvtepi32_epi8(rounded));
            }
        }
        (d, d * _mm512_reduce_add_epi32(sum) as f32)
    }

    /// # Safety
    ///
    /// The slices have one length, a multiple of 16.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn quantise_avx2(x: &[f32], codes: &mut [i8]) -> (f32, f32) {
        debug_assert!(x.len() == codes.len() && x.len().is_multiple_of(16));
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
            codes.fill(0);
            return (d, d);
        };
        let factor = _mm256_set1_ps(factor);
        let mut sum = _mm256_setzero_si256();
        for at in (0..x.len()).step_by(16) {
            // SAFETY: 16 inputs and codes from `at` lie within the slices.
            unsafe {
                let low = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at)), factor);
                let high = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at + 8)), factor);
                let (low, high) = (_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
                sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
                // Packing works within halves: put the four quarters back in order before the last step.
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
                let bytes =
                    _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                _mm_storeu_si128(codes.as_mut_ptr().add(at).cast(), bytes);
            }
        }
        (d, d * lanes(sum).into_iter().sum::<i32>() as f32)
    }

    #[target_feature(enable = "avx2")]
    fn lanes(vector: __m256i) -> [i32; 8] {
        let mut lanes = [0; 8];
        // SAFETY: the array has the vector's size.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
        lanes
    }
}
