//! Quantising with 512-bit vectors: sixteen groups at a time, because what is done once for a group (reducing its
//! lanes, dividing) would otherwise cost more than what is done for its inputs.

use std::arch::x86_64::*;

use super::{MOST, Row, SMALLEST};

/// Groups handled together, one for each lane.
const GROUPS: usize = 16;

/// Quantises a row.
///
/// # Safety
///
/// As [`super::quantise`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn quantise(x: &[f32], row: Row) {
    // SAFETY: the caller's promise.
    unsafe {
        match row.group {
            32 => quantise_groups::<32>(x, row),
            64 => quantise_groups::<64>(x, row),
            _ => quantise_groups::<128>(x, row),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn quantise_groups<const G: usize>(x: &[f32], row: Row) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let groups = x.len() / G;
    for first in (0..groups).step_by(GROUPS) {
        let count = GROUPS.min(groups - first);
        let input = x[first * G..].as_ptr();
        let mut reduced = [_mm512_setzero_si512(); GROUPS];
        for (group, largest) in reduced.iter_mut().enumerate().take(count) {
            for at in (0..G).step_by(16) {
                // SAFETY: the group lies within `x`.
                let bits = unsafe { _mm512_loadu_si512(input.add(group * G + at).cast()) };
                *largest = _mm512_max_epu32(*largest, _mm512_and_si512(bits, magnitude));
            }
        }
        let scales = Scales::new(reduce(reduced, |a, b| _mm512_max_epu32(a, b)));
        let mut factors = [0.0f32; GROUPS];
        // SAFETY: the array has the vector's size.
        unsafe { _mm512_storeu_ps(factors.as_mut_ptr(), scales.factor) };
        for (group, sum) in reduced.iter_mut().enumerate().take(count) {
            *sum = _mm512_setzero_si512();
            let factor = _mm512_set1_ps(factors[group]);
            for at in (0..G).step_by(16) {
                // SAFETY: the group lies within `x`, its codes at their place in the row.
                unsafe {
                    let scaled = _mm512_mul_ps(_mm512_loadu_ps(input.add(group * G + at)), factor);
                    // Rounds half to even, the mode that Rust guarantees.
                    let rounded = _mm512_cvtps_epi32(scaled);
                    *sum = _mm512_add_epi32(*sum, rounded);
                    let high = _mm512_srai_epi32::<4>(_mm512_add_epi32(rounded, _mm512_set1_epi32(8)));
                    let low = _mm512_sub_epi32(rounded, _mm512_slli_epi32::<4>(high));
                    let codes = row.codes.add((first + group) * row.code_step + at);
                    _mm_storeu_si128(codes.cast(), _mm512_cvtepi32_epi8(high));
                    _mm_storeu_si128(codes.add(G).cast(), _mm512_cvtepi32_epi8(low));
                }
            }
        }
        let sums = reduce(reduced, |a, b| _mm512_add_epi32(a, b));
        let (mut d, mut d_sum) = ([0.0f32; GROUPS], [0.0f32; GROUPS]);
        // SAFETY: the arrays have the vectors' size.
        unsafe {
            _mm512_storeu_ps(d.as_mut_ptr(), scales.d);
            _mm512_storeu_ps(d_sum.as_mut_ptr(), scales.times(sums));
        }
        for group in 0..count {
            // SAFETY: the group's place in the row.
            unsafe {
                let factors = row.factors.add((first + group) * row.factor_step);
                factors.write(d[group]);
                factors.add(row.sum).write(d_sum[group]);
            }
        }
    }
}

/// What belongs to the scales of sixteen groups.
#[derive(Clone, Copy)]
struct Scales {
    d: __m512,
    /// For the inputs; 0 makes a code 0 of anything, for what is not a number becomes the least integer, whose low
    /// bytes are 0.
    factor: __m512,
    /// Groups with an infinity or a NaN.
    strange: __mmask16,
}

impl Scales {
    /// From the bits of the largest magnitudes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn new(largest: __m512i) -> Self {
        let strange = _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(f32::INFINITY.to_bits() as i32));
        let tiny = _mm512_cmplt_epu32_mask(largest, _mm512_set1_epi32(SMALLEST.to_bits() as i32));
        let (largest, most) = (_mm512_castsi512_ps(largest), _mm512_set1_ps(MOST));
        let d = _mm512_maskz_div_ps(!tiny, largest, most);
        let d = _mm512_mask_blend_ps(strange, d, _mm512_set1_ps(f32::NAN));
        Self { d, factor: _mm512_maskz_div_ps(!(tiny | strange), most, largest), strange }
    }

    /// `d * sum`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn times(self, sums: __m512i) -> __m512 {
        let product = _mm512_mul_ps(self.d, _mm512_cvtepi32_ps(sums));
        _mm512_mask_blend_ps(self.strange, product, self.d)
    }
}

/// Reduces each of sixteen vectors to one number: lane `i` of the result is that of vector `i`. Four rounds, each
/// of which folds two vectors into one by halves, quarters and so on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn reduce(vectors: [__m512i; GROUPS], fold: impl Fn(__m512i, __m512i) -> __m512i) -> __m512i {
    let halves = |a, b| fold(_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b));
    let quarters = |a, b| fold(_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b));
    let pairs = |a, b| fold(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let ones = |a, b| {
        let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
        let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
        fold(_mm512_castps_si512(even), _mm512_castps_si512(odd))
    };
    // Vectors `p, 4 + p, 8 + p, 12 + p` become the four quarters of one.
    let four =
        |p: usize| quarters(halves(vectors[p], vectors[p + 4]), halves(vectors[p + 8], vectors[p + 12]));
    ones(pairs(four(0), four(1)), pairs(four(2), four(3)))
}
