//! Vectors as two 256-bit registers.

use super::{Kernel, LANES, Simd};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2, FMA and F16C; made by [`run`] alone.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The lower and the upper eight lanes.
type Pair = (__m256, __m256);

/// Runs a kernel with AVX2.
///
/// # Safety
/// The machine has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// The same, never inlined.
///
/// # Safety
/// As [`run`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn apart<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Methods of vectors that are one expression of intrinsics on each half.
macro_rules! lanes {
    ($($name:ident($($argument:ident),*) $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: Pair),*) -> Pair {
            #[inline(always)]
            // SAFETY: called with a token at hand, which exists only where the machine has the instructions.
            fn half($($argument: __m256),*) -> __m256 { unsafe { $body } }
            (half($($argument.0),*), half($($argument.1),*))
        }
    )*};
}

impl Simd for Avx2 {
    type Lanes = Pair;
    type Mask = Pair;
    const WIDE: bool = false;

    lanes! {
        add(a, b) _mm256_add_ps(a, b);
        sub(a, b) _mm256_sub_ps(a, b);
        mul(a, b) _mm256_mul_ps(a, b);
        div(a, b) _mm256_div_ps(a, b);
        fma(a, b, c) _mm256_fmadd_ps(a, b, c);
        min(a, b) _mm256_min_ps(a, b);
        max(a, b) _mm256_max_ps(a, b);
        sqrt(x) _mm256_sqrt_ps(x);
        round(x) _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        floor(x) _mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
        abs(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0), x);
        with_sign(x, sign) _mm256_or_ps(
            _mm256_andnot_ps(_mm256_set1_ps(-0.0), x), _mm256_and_ps(_mm256_set1_ps(-0.0), sign));
        // Two steps, of which the first is exact, because 2^n itself may lie outside the normal numbers.
        scale(x, n) {
            let half = _mm256_floor_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5)));
            _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_ps(n, half)))
        };
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        let half = unsafe { _mm256_set1_ps(x) };
        (half, half)
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Pair {
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { (_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())) }
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> Pair {
        // SAFETY: each half reads 16 of the array's 32 bytes.
        unsafe {
            let (low, high) = (from.as_ptr().cast(), from[8..].as_ptr().cast());
            (_mm256_cvtph_ps(_mm_loadu_si128(low)), _mm256_cvtph_ps(_mm_loadu_si128(high)))
        }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> Pair {
        // SAFETY: each half reads 16 of the array's 32 bytes.
        unsafe {
            let (low, high) = (from.as_ptr().cast(), from[8..].as_ptr().cast());
            (widen_bf16(_mm_loadu_si128(low)), widen_bf16(_mm_loadu_si128(high)))
        }
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Pair {
        // SAFETY: the array has the 16 bytes that are read.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            let high = _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes));
            (_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Pair {
        // SAFETY: the array has the 16 bytes that are read.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            let high = _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes));
            (_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn look_up(self, table: Pair, words: [u32; 2], shifts: &[u32; LANES]) -> Pair {
        let (low, high) = shifts.split_at(8);
        (look_up_eight(table, words[0], low), look_up_eight(table, words[1], high))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Pair) {
        // SAFETY: the array has the 64 bytes that are written.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), x.0);
            _mm256_storeu_ps(to[8..].as_mut_ptr(), x.1);
        }
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [f16; LANES], x: Pair) {
        let (low, high) = to.split_at_mut(8);
        // SAFETY: each half writes 16 of the array's 32 bytes.
        unsafe {
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.0);
            _mm_storeu_si128(low.as_mut_ptr().cast(), half);
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.1);
            _mm_storeu_si128(high.as_mut_ptr().cast(), half);
        }
    }

    #[inline(always)]
    fn store_bf16(self, to: &mut [bf16; LANES], x: Pair) {
        // Packing works on halves of 128 bits; the permutation puts them in order again.
        // SAFETY: the array has the 32 bytes that are written.
        unsafe {
            let words = _mm256_packus_epi32(narrow_bf16(x.0), narrow_bf16(x.1));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(words));
        }
    }

    #[inline(always)]
    fn less(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { (_mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0), _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)) }
    }

    #[inline(always)]
    fn is_nan(self, x: Pair) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { (_mm256_cmp_ps::<_CMP_UNORD_Q>(x.0, x.0), _mm256_cmp_ps::<_CMP_UNORD_Q>(x.1, x.1)) }
    }

    #[inline(always)]
    fn any(self, mask: Pair) -> bool {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm256_movemask_ps(_mm256_or_ps(mask.0, mask.1)) != 0 }
    }

    #[inline(always)]
    fn select(self, mask: Pair, a: Pair, b: Pair) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { (_mm256_blendv_ps(b.0, a.0, mask.0), _mm256_blendv_ps(b.1, a.1, mask.1)) }
    }

    #[inline(always)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { apart(kernel) }
    }

    #[inline(always)]
    fn prefetch(self, soon: *const u8) {
        // SAFETY: a hint that reads nothing and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(soon.cast()) }
    }

    #[inline(always)]
    fn sum(self, x: Pair) -> f32 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let eight = _mm256_add_ps(x.0, x.1);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn sums(self, xs: &[Pair; LANES]) -> Pair {
        (eight_sums(xs, 0), eight_sums(xs, 8))
    }

    #[inline(always)]
    fn transpose(self, xs: &[Pair; LANES]) -> [Pair; LANES] {
        let zero = self.splat(0.0);
        let mut out = [zero; LANES];
        for half in [0, 8] {
            let (mut low, mut high) = ([zero.0; 8], [zero.0; 8]);
            for (i, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
                (*low, *high) = xs[half + i];
            }
            let (low, high) = (transpose_eight(&low), transpose_eight(&high));
            for j in 0..8 {
                if half == 0 {
                    (out[j].0, out[8 + j].0) = (low[j], high[j]);
                } else {
                    (out[j].1, out[8 + j].1) = (low[j], high[j]);
                }
            }
        }
        out
    }

    #[inline(always)]
    fn largest(self, x: Pair) -> f32 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let eight = _mm256_max_ps(x.0, x.1);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

/// 2^n for integral `n` in the range of normal numbers. Called with a token at hand, as all that follow.
#[inline(always)]
fn power(n: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
    }
}

/// Entries of a table at the lowest four bits of a word shifted by each of eight distances.
#[inline(always)]
fn look_up_eight(table: Pair, word: u32, shifts: &[u32]) -> __m256 {
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

/// Eight words as the upper halves of floats.
#[inline(always)]
fn widen_bf16(words: __m128i) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words))) }
}

/// The upper halves of floats, rounded to nearest even, in the lower halves of the lanes.
#[inline(always)]
fn narrow_bf16(x: __m256) -> __m256i {
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

/// The sums of eight vectors from `first` on.
#[inline(always)]
fn eight_sums(xs: &[Pair; LANES], first: usize) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    let mut four = [unsafe { _mm256_setzero_ps() }; 4];
    for (i, four) in four.iter_mut().enumerate() {
        let (x, y) = (xs[first + i], xs[first + i + 4]);
        // Lane i with i + 8, then with i + 4: two vectors' halves side by side.
        // SAFETY: as above.
        *four = unsafe {
            let (a, b) = (_mm256_add_ps(x.0, x.1), _mm256_add_ps(y.0, y.1));
            _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
        };
    }
    let (a, b) = (add_pairs(four[0], four[1]), add_pairs(four[2], four[3]));
    // SAFETY: as above.
    unsafe { _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b)) }
}

/// In each half: lanes 0 and 2, then 1 and 3 of `a`, then those of `b`.
#[inline(always)]
fn add_pairs(a: __m256, b: __m256) -> __m256 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b)) }
}

/// Lane `i` of vector `j` of the result is lane `j` of vector `i`.
#[inline(always)]
fn transpose_eight(xs: &[__m256; 8]) -> [__m256; 8] {
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
