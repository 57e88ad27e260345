//! Vectors as one 512-bit register.

use super::{Digits, Kernel, LANES, LINE, Simd};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Proof that the machine has AVX-512 (F, BW, DQ, VL, VNNI); made by [`run`] alone.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Runs a kernel with AVX-512.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ, VL and VNNI, FMA and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// The same, never inlined.
///
/// # Safety
/// As [`run`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn apart<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// Methods of vectors that are one expression of intrinsics.
macro_rules! lanes {
    ($($name:ident($($argument:ident),*) $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: __m512),*) -> __m512 {
            // SAFETY: a token exists only where the machine has the instructions.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    type Lanes = __m512;
    type Mask = __mmask16;
    type Ints = __m512i;
    type Words = __m512i;
    /// Of the higher digits and of the lower ones.
    type Dots = [__m512i; 2];
    const WIDE: bool = true;

    lanes! {
        add(a, b) _mm512_add_ps(a, b);
        sub(a, b) _mm512_sub_ps(a, b);
        mul(a, b) _mm512_mul_ps(a, b);
        div(a, b) _mm512_div_ps(a, b);
        fma(a, b, c) _mm512_fmadd_ps(a, b, c);
        min(a, b) _mm512_min_ps(a, b);
        max(a, b) _mm512_max_ps(a, b);
        sqrt(x) _mm512_sqrt_ps(x);
        round(x) _mm512_roundscale_ps::<0x08>(x);
        floor(x) _mm512_roundscale_ps::<0x09>(x);
        abs(x) _mm512_abs_ps(x);
        with_sign(x, sign) _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xb8>(
            _mm512_castps_si512(x), _mm512_set1_epi32(i32::MIN), _mm512_castps_si512(sign)));
        scale(x, n) _mm512_scalef_ps(x, n);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> __m512 {
        // SAFETY: the array has the 32 bytes that are read.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> __m512 {
        // SAFETY: the array has the 32 bytes that are read.
        let words = unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast())) };
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)) }
    }

    #[inline(always)]
    fn load_bf16_dealt(self, from: &[bf16; 2 * LANES]) -> [__m512; 2] {
        // SAFETY: the array has the 64 bytes that are read.
        unsafe {
            let pairs = _mm512_loadu_si512(from.as_ptr().cast());
            let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(odd)]
        }
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> __m512 {
        // SAFETY: the array has the 16 bytes that are read.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> __m512 {
        // SAFETY: the array has the 16 bytes that are read.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn look_up(self, table: __m512, words: [u32; 2], shifts: &[u32; LANES]) -> __m512 {
        // SAFETY: the array has the 64 bytes that are read; permuting heeds the lowest four bits of an index.
        unsafe {
            let words = _mm512_mask_set1_epi32(_mm512_set1_epi32(words[0] as i32), 0xff00, words[1] as i32);
            let indices = _mm512_srlv_epi32(words, _mm512_loadu_si512(shifts.as_ptr().cast()));
            _mm512_permutexvar_ps(indices, table)
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: __m512) {
        // SAFETY: the array has the 64 bytes that are written.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [f16; LANES], x: __m512) {
        // SAFETY: the array has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<0>(x)) }
    }

    #[inline(always)]
    fn store_bf16(self, to: &mut [bf16; LANES], x: __m512) {
        // SAFETY: the array has the 32 bytes that are written.
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
            let words = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(chosen));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
        }
    }

    #[inline(always)]
    fn less(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }

    #[inline(always)]
    fn is_nan(self, x: __m512) -> __mmask16 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x) }
    }

    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }

    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn begin_sums(self, xs: &[__m512; 4]) -> __m512 {
        // Lane i with i + 8: two vectors' halves side by side; then i + 4, their quarters.
        add_quarters(add_halves(xs[0], xs[1]), add_halves(xs[2], xs[3]))
    }

    #[inline(always)]
    fn end_sums(self, xs: &[__m512; 4]) -> __m512 {
        // Lane i with i + 2, then i + 1.
        add_singles(add_pairs(xs[0], xs[1]), add_pairs(xs[2], xs[3]))
    }

    #[inline(always)]
    fn transpose(self, xs: &[__m512; LANES]) -> [__m512; LANES] {
        // Within quarters first: afterwards quarter b of `within[4 a + j]` holds lane 4 b + j of the vectors
        // 4 a .. 4 a + 4. Then the quarters themselves.
        let mut within = [self.splat(0.0); LANES];
        for (four, xs) in within.chunks_exact_mut(4).zip(xs.chunks_exact(4)) {
            transpose_quarters(four, xs);
        }
        let mut out = [self.splat(0.0); LANES];
        for j in 0..4 {
            let (a, b) = (pick_even(within[j], within[4 + j]), pick_even(within[8 + j], within[12 + j]));
            let (c, d) = (pick_odd(within[j], within[4 + j]), pick_odd(within[8 + j], within[12 + j]));
            (out[j], out[8 + j]) = (pick_even(a, b), pick_odd(a, b));
            (out[4 + j], out[12 + j]) = (pick_even(c, d), pick_odd(c, d));
        }
        out
    }

    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_reduce_max_ps(x) }
    }

    #[inline(always)]
    fn words(self, from: &[u8; LINE]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn repeat(self, word: u32) -> __m512i {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn no_dots(self) -> [__m512i; 2] {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { [_mm512_setzero_si512(); 2] }
    }

    #[inline(always)]
    fn dot(self, sums: [__m512i; 2], words: __m512i, by: [__m512i; 2]) -> [__m512i; 2] {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { [_mm512_dpbusd_epi32(sums[0], words, by[0]), _mm512_dpbusd_epi32(sums[1], words, by[1])] }
    }

    #[inline(always)]
    fn total(self, sums: [__m512i; 2], less: __m512i) -> __m512 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let sum = _mm512_add_epi32(_mm512_slli_epi32::<7>(sums[0]), sums[1]);
            _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, less))
        }
    }

    #[inline(always)]
    fn digits(self, xs: &[__m512; 4]) -> Digits {
        let mut digits = [[0; LANES]; 2];
        for (i, &x) in xs.iter().enumerate() {
            // SAFETY: each quarter of both arrays has the 16 bytes that are written.
            unsafe {
                let number = _mm512_cvtps_epi32(x);
                let high = _mm512_srai_epi32::<7>(_mm512_add_epi32(number, _mm512_set1_epi32(64)));
                let low = _mm512_sub_epi32(number, _mm512_slli_epi32::<7>(high));
                _mm_storeu_si128(digits[0].as_mut_ptr().add(4 * i).cast(), _mm512_cvtepi32_epi8(high));
                _mm_storeu_si128(digits[1].as_mut_ptr().add(4 * i).cast(), _mm512_cvtepi32_epi8(low));
            }
        }
        digits
    }

    #[inline(always)]
    fn halves(self, first: __m512, second: __m512) -> __m512 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_mask_blend_ps(0xff00, first, second) }
    }

    #[inline(always)]
    fn int_halves(self, first: __m512i, second: __m512i) -> __m512i {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_mask_blend_epi32(0xff00, first, second) }
    }

    #[inline(always)]
    fn deal(self, a: __m512, b: __m512) -> [__m512; 2] {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            [_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)]
        }
    }

    #[inline(always)]
    fn zip(self, even: __m512, odd: __m512) -> [__m512; 2] {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            [_mm512_permutex2var_ps(even, low, odd), _mm512_permutex2var_ps(even, high, odd)]
        }
    }

    #[inline(always)]
    fn load_bits(self, from: &[u8; LINE]) -> __m512 {
        // SAFETY: the array has the 64 bytes that are read.
        unsafe { _mm512_loadu_ps(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn flip(self, x: __m512) -> __m512 {
        // SAFETY: a token exists only where the machine has the instructions.
        unsafe { _mm512_xor_ps(x, _mm512_castsi512_ps(_mm512_set1_epi8(i8::MIN))) }
    }

    #[inline(always)]
    fn store_bits(self, to: &mut [u8; LINE], x: __m512) {
        // SAFETY: the array has the 64 bytes that are written.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().cast(), x) }
    }

    #[inline(always)]
    fn weave(self, rows: [&[u8; LINE]; 4], to: &mut [[u8; LINE]; 4]) {
        // SAFETY: the arrays have the 64 bytes that are read and written.
        unsafe {
            let [a, b, c, d] = rows.map(|row| _mm512_loadu_si512(row.as_ptr().cast()));
            let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
            _mm512_storeu_si512(to[0].as_mut_ptr().cast(), _mm512_unpacklo_epi16(ab, cd));
            _mm512_storeu_si512(to[1].as_mut_ptr().cast(), _mm512_unpackhi_epi16(ab, cd));
            let (ab, cd) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
            _mm512_storeu_si512(to[2].as_mut_ptr().cast(), _mm512_unpacklo_epi16(ab, cd));
            _mm512_storeu_si512(to[3].as_mut_ptr().cast(), _mm512_unpackhi_epi16(ab, cd));
        }
    }

    #[inline(always)]
    fn unweave(self, xs: [__m512; 4]) -> [__m512; 4] {
        let (a, b) = (pick_even(xs[0], xs[1]), pick_even(xs[2], xs[3]));
        let (c, d) = (pick_odd(xs[0], xs[1]), pick_odd(xs[2], xs[3]));
        [pick_even(a, b), pick_even(c, d), pick_odd(a, b), pick_odd(c, d)]
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
    fn load_part(self, from: &[f32], rest: f32) -> __m512 {
        let mask = part(from.len());
        // SAFETY: lanes outside the mask are not read, and the mask has at most as many lanes as the slice.
        unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask, from.as_ptr()) }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], x: __m512) {
        // SAFETY: lanes outside the mask are not written, and the mask has at most as many lanes as the
        // slice.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), part(to.len()), x) }
    }
}

/// The first `count` lanes, at most all.
#[inline(always)]
fn part(count: usize) -> __mmask16 {
    ((1u32 << count.min(LANES)) - 1) as __mmask16
}

/// Additions of two vectors' parts. Called with a token at hand.
macro_rules! additions {
    ($($(#[$documentation:meta])* $name:ident($a:ident, $b:ident) $first:expr, $second:expr;)*) => {$(
        $(#[$documentation])*
        #[inline(always)]
        fn $name($a: __m512, $b: __m512) -> __m512 {
            // SAFETY: a token exists only where the machine has the instructions.
            unsafe { _mm512_add_ps($first, $second) }
        }
    )*};
}
additions! {
    /// The halves of `a`, then those of `b`.
    add_halves(a, b) _mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b);
    /// Quarters 0 and 1, then 2 and 3 of `a`, then those of `b`.
    add_quarters(a, b) _mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b);
    /// In each quarter: lanes 0 and 2, then 1 and 3 of `a`, then those of `b`.
    add_pairs(a, b) _mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b);
    /// In each quarter: lanes 0 and 1, then 2 and 3 of `a`, then those of `b`.
    add_singles(a, b) _mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b);
}

/// Quarters 0 and 2 of `a`, then those of `b`. Called with a token at hand, as all that follow.
#[inline(always)]
fn pick_even(a: __m512, b: __m512) -> __m512 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm512_shuffle_f32x4::<0x88>(a, b) }
}

/// Quarters 1 and 3 of `a`, then those of `b`.
#[inline(always)]
fn pick_odd(a: __m512, b: __m512) -> __m512 {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe { _mm512_shuffle_f32x4::<0xdd>(a, b) }
}

/// Lane `i` of each quarter of `to[j]` is lane `j` of that quarter of `from[i]`; both have four vectors.
#[inline(always)]
fn transpose_quarters(to: &mut [__m512], from: &[__m512]) {
    // SAFETY: a token exists only where the machine has the instructions.
    unsafe {
        let (a, b) = (_mm512_unpacklo_ps(from[0], from[1]), _mm512_unpacklo_ps(from[2], from[3]));
        let (c, d) = (_mm512_unpackhi_ps(from[0], from[1]), _mm512_unpackhi_ps(from[2], from[3]));
        (to[0], to[1]) = (_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b));
        (to[2], to[3]) = (_mm512_shuffle_ps::<0x44>(c, d), _mm512_shuffle_ps::<0xee>(c, d));
    }
}
