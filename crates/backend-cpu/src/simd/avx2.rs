//! Vectors as two 256-bit registers.

mod eight;

use super::portable::pairs;
use super::{Digits, Kernel, LANES, LINE, Simd};
use eight::{
    add_halves, add_pairs, add_singles, deal_eight, look_up_eight, narrow_bf16, power, transpose_eight,
    widen_bf16, zip_eight,
};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2, FMA and F16C; made by [`run`] alone.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The lower and the upper eight lanes.
type Pair = (__m256, __m256);

/// The lower and the upper eight integers.
type Integers = (__m256i, __m256i);

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
    type Ints = Integers;
    /// Even bytes, then odd ones, as 16-bit numbers.
    type Words = [Integers; 2];
    type Dots = Integers;
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
    fn load_bf16_dealt(self, from: &[bf16; 2 * LANES]) -> [Pair; 2] {
        // SAFETY: each half reads 32 of the array's 64 bytes.
        unsafe {
            let low = _mm256_loadu_si256(from.as_ptr().cast());
            let high = _mm256_loadu_si256(from[LANES..].as_ptr().cast());
            let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let even = (_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high));
            let odd = (_mm256_and_si256(low, upper), _mm256_and_si256(high, upper));
            [even, odd].map(|half| (_mm256_castsi256_ps(half.0), _mm256_castsi256_ps(half.1)))
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
    fn words(self, from: &[u8; LINE]) -> [Integers; 2] {
        // SAFETY: each half reads 32 of the array's 64 bytes.
        unsafe {
            let low = _mm256_loadu_si256(from.as_ptr().cast());
            let high = _mm256_loadu_si256(from[32..].as_ptr().cast());
            let even = _mm256_set1_epi32(0x00ff_00ff);
            [
                (_mm256_and_si256(low, even), _mm256_and_si256(high, even)),
                (_mm256_srli_epi16::<8>(low), _mm256_srli_epi16::<8>(high)),
            ]
        }
    }

    #[inline(always)]
    fn repeat(self, word: u32) -> Integers {
        // SAFETY: a token exists only where the machine has the instructions.
        let half = unsafe { _mm256_set1_epi32(word as i32) };
        (half, half)
    }

    #[inline(always)]
    fn no_dots(self) -> Integers {
        self.repeat(0)
    }

    #[inline(always)]
    fn dot(self, sums: Integers, words: [Integers; 2], by: [Integers; 2]) -> Integers {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let low = _mm256_add_epi32(
                _mm256_madd_epi16(words[0].0, by[0].0),
                _mm256_madd_epi16(words[1].0, by[1].0),
            );
            let high = _mm256_add_epi32(
                _mm256_madd_epi16(words[0].1, by[0].1),
                _mm256_madd_epi16(words[1].1, by[1].1),
            );
            (_mm256_add_epi32(sums.0, low), _mm256_add_epi32(sums.1, high))
        }
    }

    #[inline(always)]
    fn total(self, sums: Integers, less: Integers) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            (
                _mm256_cvtepi32_ps(_mm256_sub_epi32(sums.0, less.0)),
                _mm256_cvtepi32_ps(_mm256_sub_epi32(sums.1, less.1)),
            )
        }
    }

    #[inline(always)]
    fn digits(self, xs: &[Pair; 4]) -> Digits {
        let mut numbers = [0; LINE];
        for (numbers, x) in numbers.chunks_exact_mut(LANES).zip(xs) {
            // SAFETY: each half writes 32 of the 64 bytes of sixteen numbers.
            unsafe {
                _mm256_storeu_si256(numbers.as_mut_ptr().cast(), _mm256_cvtps_epi32(x.0));
                _mm256_storeu_si256(numbers[8..].as_mut_ptr().cast(), _mm256_cvtps_epi32(x.1));
            }
        }
        pairs(&numbers)
    }

    #[inline(always)]
    fn halves(self, first: Pair, second: Pair) -> Pair {
        (first.0, second.1)
    }

    #[inline(always)]
    fn int_halves(self, first: Integers, second: Integers) -> Integers {
        (first.0, second.1)
    }

    #[inline(always)]
    fn deal(self, a: Pair, b: Pair) -> [Pair; 2] {
        let (low, high) = (deal_eight(a.0, a.1), deal_eight(b.0, b.1));
        [(low.0, high.0), (low.1, high.1)]
    }

    #[inline(always)]
    fn zip(self, even: Pair, odd: Pair) -> [Pair; 2] {
        [zip_eight(even.0, odd.0), zip_eight(even.1, odd.1)]
    }

    #[inline(always)]
    fn load_bits(self, from: &[u8; LINE]) -> Pair {
        // SAFETY: each half reads 32 of the array's 64 bytes.
        unsafe { (_mm256_loadu_ps(from.as_ptr().cast()), _mm256_loadu_ps(from[32..].as_ptr().cast())) }
    }

    #[inline(always)]
    fn flip(self, x: Pair) -> Pair {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let highest = _mm256_castsi256_ps(_mm256_set1_epi8(i8::MIN));
            (_mm256_xor_ps(x.0, highest), _mm256_xor_ps(x.1, highest))
        }
    }

    #[inline(always)]
    fn store_bits(self, to: &mut [u8; LINE], x: Pair) {
        // SAFETY: each half writes 32 of the array's 64 bytes.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr().cast(), x.0);
            _mm256_storeu_ps(to[32..].as_mut_ptr().cast(), x.1);
        }
    }

    #[inline(always)]
    fn weave(self, rows: [&[u8; LINE]; 4], to: &mut [[u8; LINE]; 4]) {
        for half in [0, 32] {
            // SAFETY: each half reads and writes 32 of the arrays' 64 bytes.
            unsafe {
                let [a, b, c, d] = rows.map(|row| _mm256_loadu_si256(row[half..].as_ptr().cast()));
                let (ab, cd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
                _mm256_storeu_si256(to[0][half..].as_mut_ptr().cast(), _mm256_unpacklo_epi16(ab, cd));
                _mm256_storeu_si256(to[1][half..].as_mut_ptr().cast(), _mm256_unpackhi_epi16(ab, cd));
                let (ab, cd) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
                _mm256_storeu_si256(to[2][half..].as_mut_ptr().cast(), _mm256_unpacklo_epi16(ab, cd));
                _mm256_storeu_si256(to[3][half..].as_mut_ptr().cast(), _mm256_unpackhi_epi16(ab, cd));
            }
        }
    }

    #[inline(always)]
    fn unweave(self, xs: [Pair; 4]) -> [Pair; 4] {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            [
                (
                    _mm256_permute2f128_ps::<0x20>(xs[0].0, xs[1].0),
                    _mm256_permute2f128_ps::<0x20>(xs[2].0, xs[3].0),
                ),
                (
                    _mm256_permute2f128_ps::<0x31>(xs[0].0, xs[1].0),
                    _mm256_permute2f128_ps::<0x31>(xs[2].0, xs[3].0),
                ),
                (
                    _mm256_permute2f128_ps::<0x20>(xs[0].1, xs[1].1),
                    _mm256_permute2f128_ps::<0x20>(xs[2].1, xs[3].1),
                ),
                (
                    _mm256_permute2f128_ps::<0x31>(xs[0].1, xs[1].1),
                    _mm256_permute2f128_ps::<0x31>(xs[2].1, xs[3].1),
                ),
            ]
        }
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
    fn begin_sums(self, xs: &[Pair; 4]) -> Pair {
        // Lane i with i + 8, then with i + 4: two vectors' halves side by side.
        let mut eight = [xs[0].0; 4];
        for (eight, x) in eight.iter_mut().zip(xs) {
            // SAFETY: a token exists only where the machine has the instructions.
            *eight = unsafe { _mm256_add_ps(x.0, x.1) };
        }
        (add_halves(eight[0], eight[1]), add_halves(eight[2], eight[3]))
    }

    #[inline(always)]
    fn end_sums(self, xs: &[Pair; 4]) -> Pair {
        let low = add_singles(add_pairs(xs[0].0, xs[1].0), add_pairs(xs[2].0, xs[3].0));
        (low, add_singles(add_pairs(xs[0].1, xs[1].1), add_pairs(xs[2].1, xs[3].1)))
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
