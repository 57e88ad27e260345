//! Kernels over vectors of sixteen f32, written once and compiled for each instruction set.
//!
//! A [`Kernel`] is generic over a [`Simd`] token, whose existence proves that the machine has its
//! instructions; [`dispatch`] is the only place that makes one. A vector always has sixteen lanes, whatever
//! the registers hold: AVX-512 one register, AVX2 two, the portable one an array.
//!
//! Invariants, on which every promise of equal bits rests:
//! - each operation is one IEEE 754 operation on each lane (`fma` rounds once, also where it is slow);
//! - a vector is summed by one tree: lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`;
//! - a long row is summed as [`fold`] says. So instruction sets differ in speed alone.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod fold;
pub(crate) mod math;
mod portable;
#[cfg(test)]
mod tests;

use crate::isa::Isa;
use half::{bf16, f16};
use portable::Portable;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Bytes of sixteen words.
pub(crate) const LINE: usize = 64;

/// The largest number that products with bytes take: two digits, the higher one within 127 and worth 128 times the
/// lower one, which is within -64 and 63.
pub(crate) const MOST: f32 = 127.0 * 128.0;

/// 64 numbers in the two halves that an instruction set multiplies with.
pub(crate) type Digits = [[u32; LANES]; 2];

/// Instructions on vectors of [`LANES`] floats; see the [module](self).
pub(crate) trait Simd: Copy + Send + Sync {
    /// A vector.
    type Lanes: Copy;
    /// A truth value for each lane.
    type Mask: Copy;
    /// Sixteen i32.
    type Ints: Copy;
    /// Sixteen words of four bytes, as [`Simd::dot`] takes them.
    type Words: Copy;
    /// Sixteen running sums of products with bytes.
    type Dots: Copy;
    /// Whether 32 vectors fit the registers; else 8.
    const WIDE: bool;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::Lanes;
    /// Sixteen floats.
    fn load(self, from: &[f32; LANES]) -> Self::Lanes;
    /// Sixteen floats, widened.
    fn load_f16(self, from: &[f16; LANES]) -> Self::Lanes;
    /// Sixteen floats, widened.
    fn load_bf16(self, from: &[bf16; LANES]) -> Self::Lanes;
    /// 32 floats, widened: those with even indices, then those with odd ones.
    fn load_bf16_dealt(self, from: &[bf16; 2 * LANES]) -> [Self::Lanes; 2];
    /// Sixteen bytes as numbers.
    fn load_u8(self, from: &[u8; LANES]) -> Self::Lanes;
    /// Sixteen signed bytes as numbers.
    fn load_i8(self, from: &[u8; LANES]) -> Self::Lanes;
    /// Lane `i` is the entry of `table` at the lowest four bits of `words[i / 8] >> shifts[i]`.
    fn look_up(self, table: Self::Lanes, words: [u32; 2], shifts: &[u32; LANES]) -> Self::Lanes;
    /// Writes sixteen floats.
    fn store(self, to: &mut [f32; LANES], x: Self::Lanes);
    /// Writes sixteen floats, rounded to nearest, halves to even.
    fn store_f16(self, to: &mut [f16; LANES], x: Self::Lanes);
    /// Writes sixteen floats, rounded to nearest, halves to even.
    fn store_bf16(self, to: &mut [bf16; LANES], x: Self::Lanes);

    /// `a + b`.
    fn add(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a - b`.
    fn sub(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a * b`.
    fn mul(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a / b`.
    fn div(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;
    /// `a` where `a < b`, else `b`; so `b` where either is NaN.
    fn min(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a` where `a > b`, else `b`; so `b` where either is NaN.
    fn max(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Square root.
    fn sqrt(self, x: Self::Lanes) -> Self::Lanes;
    /// To the nearest integer, halves to even.
    fn round(self, x: Self::Lanes) -> Self::Lanes;
    /// To the next lower integer.
    fn floor(self, x: Self::Lanes) -> Self::Lanes;
    /// Without its sign.
    fn abs(self, x: Self::Lanes) -> Self::Lanes;
    /// The magnitude of `x` with the sign of `sign`.
    fn with_sign(self, x: Self::Lanes, sign: Self::Lanes) -> Self::Lanes;
    /// `x * 2^n`, rounded once, for `|x|` in `0.5..=2` and integral `n` in `-126..=130`.
    fn scale(self, x: Self::Lanes, n: Self::Lanes) -> Self::Lanes;
    /// Where `a < b`.
    fn less(self, a: Self::Lanes, b: Self::Lanes) -> Self::Mask;
    /// Where `x` is NaN.
    fn is_nan(self, x: Self::Lanes) -> Self::Mask;
    /// Whether any lane is true.
    fn any(self, mask: Self::Mask) -> bool;
    /// `a` where the mask holds, else `b`.
    fn select(self, mask: Self::Mask, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;

    /// The sum of the lanes, by the module's tree.
    fn sum(self, x: Self::Lanes) -> f32;
    /// The first two levels of four vectors' sums: lanes `4 b .. 4 b + 4` hold what is left of vector `b`.
    fn begin_sums(self, xs: &[Self::Lanes; 4]) -> Self::Lanes;
    /// The other levels: lane `4 b + i` is the sum of what lanes `4 b .. 4 b + 4` of vector `i` hold.
    fn end_sums(self, xs: &[Self::Lanes; 4]) -> Self::Lanes;
    /// Lane `i` of the result is the [`Simd::sum`] of vector `i`.
    #[inline(always)]
    fn sums(self, xs: &[Self::Lanes; LANES]) -> Self::Lanes {
        let mut four = [xs[0]; 4];
        for (i, four) in four.iter_mut().enumerate() {
            *four = self.begin_sums(&[xs[i], xs[i + 4], xs[i + 8], xs[i + 12]]);
        }
        self.end_sums(&four)
    }
    /// Lane `i` of vector `j` of the result is lane `j` of vector `i`.
    fn transpose(self, xs: &[Self::Lanes; LANES]) -> [Self::Lanes; LANES];
    /// The largest lane; some lane where one is NaN.
    fn largest(self, x: Self::Lanes) -> f32;

    // ---- exact products of bytes ----

    /// Sixteen words.
    fn words(self, from: &[u8; LINE]) -> Self::Words;
    /// The same word in every lane.
    fn repeat(self, word: u32) -> Self::Ints;
    /// Nothing summed yet.
    fn no_dots(self) -> Self::Dots;
    /// Adds to each lane the products of its word's bytes with four numbers. `by` is [`Simd::digits`] of these, in
    /// every lane where all words meet the same.
    fn dot(self, sums: Self::Dots, words: Self::Words, by: [Self::Ints; 2]) -> Self::Dots;
    /// The sums less some, in this order made floats.
    fn total(self, sums: Self::Dots, less: Self::Ints) -> Self::Lanes;
    /// Integral floats of at most [`MOST`] as `dot` takes them: words `k` of both are those of numbers `4 k .. 4 k + 4`.
    fn digits(self, xs: &[Self::Lanes; 4]) -> Digits;
    /// The first in lanes 0 to 7, the second in the others.
    fn halves(self, first: Self::Lanes, second: Self::Lanes) -> Self::Lanes;
    /// The same of integers.
    fn int_halves(self, first: Self::Ints, second: Self::Ints) -> Self::Ints;
    /// The lanes with even indices of both, then those with odd ones.
    fn deal(self, a: Self::Lanes, b: Self::Lanes) -> [Self::Lanes; 2];
    /// Undoes [`Simd::deal`].
    fn zip(self, even: Self::Lanes, odd: Self::Lanes) -> [Self::Lanes; 2];
    /// The bits of sixteen words.
    fn load_bits(self, from: &[u8; LINE]) -> Self::Lanes;
    /// Each byte with its highest bit turned over.
    fn flip(self, x: Self::Lanes) -> Self::Lanes;
    /// Writes the bits of sixteen words.
    fn store_bits(self, to: &mut [u8; LINE], x: Self::Lanes);
    /// Words of which each holds four rows' bytes of one column: lane `4 q + r` of vector `j` is that of column
    /// `16 q + 4 j + r`.
    fn weave(self, rows: [&[u8; LINE]; 4], to: &mut [[u8; LINE]; 4]);
    /// Four vectors in the order that [`Simd::weave`] leaves, each of sixteen columns again.
    fn unweave(self, xs: [Self::Lanes; 4]) -> [Self::Lanes; 4];

    /// Runs a kernel in a function of its own, so that the one it is called from stays of a size that compiles well.
    fn apart<K: Kernel>(self, kernel: K) -> K::Output;

    /// Asks for the cache line at an address, which may be any. Changes nothing else.
    #[inline(always)]
    fn prefetch(self, _soon: *const u8) {}

    /// Up to sixteen floats, the other lanes `rest`.
    #[inline(always)]
    fn load_part(self, from: &[f32], rest: f32) -> Self::Lanes {
        let mut lanes = [rest; LANES];
        lanes[..from.len()].copy_from_slice(from);
        self.load(&lanes)
    }

    /// Writes the first lanes.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], x: Self::Lanes) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, x);
        let count = to.len();
        to.copy_from_slice(&lanes[..count]);
    }
}

/// Something to compute with whatever instructions there are. `run` and what it calls must be inlined
/// (`#[inline(always)]`), or the compiler has no leave to use them.
pub(crate) trait Kernel {
    /// What comes out.
    type Output;

    /// Computes it.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs a kernel with the instructions of `isa`, or of the best lesser one that the machine has.
#[inline]
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa.limited() {
        Isa::Portable => kernel.run(Portable),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `limited` gives AVX2 only where the machine has what it stands for.
        Isa::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512Vnni | Isa::Amx => unsafe { avx512::run(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => kernel.run(Portable),
    }
}
