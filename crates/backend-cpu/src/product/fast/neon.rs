//! Fast products with NEON: `sdot` adds four byte products to each of four lanes, so a tile is four vectors.
//!
//! Both factors of `sdot` are signed. Nibbles are; bytes are taken as two nibbles. The instruction is written in
//! `asm!`, because the compiler's own name for it is not stable yet.

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use super::{Fast, portable};
use crate::product::format::{Affine, Code, LANES};

/// Vectors of a tile.
const VECTORS: usize = 4;
/// Codes of activations in a vector.
const CODES: usize = 16;

/// # Safety
///
/// As [`Fast::run`], on a machine with these instructions.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn run(product: &Fast<'_>, tiles: Range<usize>, block: usize) {
    // SAFETY: the caller's promise.
    unsafe { portable::run_with(product, tiles, block, |affine, block, codes| dots(affine, block, codes)) }
}

/// The integer products of a block's rows with a group of activations, high parts and then low ones.
#[target_feature(enable = "neon,dotprod")]
fn dots(affine: Affine, block: &[u8], codes: &[i8]) -> [i32; LANES] {
    let (high, low) = codes.split_at(affine.group);
    let block = &block[..affine.code_bytes()];
    let (high, low) = match affine.code {
        Code::Nibble => (nibbles(block, high), nibbles(block, low)),
        Code::Byte => (bytes(block, high), bytes(block, low)),
    };
    let mut dots = [0; LANES];
    for (vector, to) in dots.chunks_exact_mut(VECTORS).enumerate() {
        let sum = vaddq_s32(vshlq_n_s32::<4>(high[vector]), low[vector]);
        // SAFETY: four numbers from `to` on.
        unsafe { vst1q_s32(to.as_mut_ptr(), sum) }
    }
    dots
}

/// Sums over lines of nibbles: sixteen codes meet two lines.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn nibbles(lines: &[u8], codes: &[i8]) -> [int32x4_t; VECTORS] {
    let mut sums = [vdupq_n_s32(0); VECTORS];
    for (lines, codes) in lines.chunks_exact(8 * CODES).zip(codes.chunks_exact(CODES)) {
        // SAFETY: sixteen codes.
        let codes = unsafe { vld1q_s8(codes.as_ptr()) };
        for (vector, sum) in sums.iter_mut().enumerate() {
            let [lower, upper] = halves(&lines[vector * 16..]);
            *sum = dot::<1>(dot::<0>(*sum, lower, codes), upper, codes);
            let [lower, upper] = halves(&lines[64 + vector * 16..]);
            *sum = dot::<3>(dot::<2>(*sum, lower, codes), upper, codes);
        }
    }
    sums
}

/// Sums over lines of bytes: sixteen codes meet four lines.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn bytes(lines: &[u8], codes: &[i8]) -> [int32x4_t; VECTORS] {
    let mut lowers = [vdupq_n_s32(0); VECTORS];
    let mut uppers = [vdupq_n_s32(0); VECTORS];
    for (lines, codes) in lines.chunks_exact(16 * CODES).zip(codes.chunks_exact(CODES)) {
        // SAFETY: sixteen codes.
        let codes = unsafe { vld1q_s8(codes.as_ptr()) };
        for vector in 0..VECTORS {
            let line = |index: usize| &lines[index * 64 + vector * 16..];
            let [lower, upper] = halves(line(0));
            let mut sums = [dot::<0>(lowers[vector], lower, codes), dot::<0>(uppers[vector], upper, codes)];
            let [lower, upper] = halves(line(1));
            sums = [dot::<1>(sums[0], lower, codes), dot::<1>(sums[1], upper, codes)];
            let [lower, upper] = halves(line(2));
            sums = [dot::<2>(sums[0], lower, codes), dot::<2>(sums[1], upper, codes)];
            let [lower, upper] = halves(line(3));
            sums = [dot::<3>(sums[0], lower, codes), dot::<3>(sums[1], upper, codes)];
            (lowers[vector], uppers[vector]) = (sums[0], sums[1]);
        }
    }
    for (lower, upper) in lowers.iter_mut().zip(uppers) {
        *lower = vaddq_s32(*lower, vshlq_n_s32::<4>(upper));
    }
    lowers
}

/// The lower and the upper halves of the first sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
fn halves(bytes: &[u8]) -> [int8x16_t; 2] {
    let bytes: &[u8; 16] = bytes.first_chunk().unwrap_or(&[0; 16]);
    // SAFETY: sixteen bytes.
    let bytes = unsafe { vld1q_u8(bytes.as_ptr()) };
    let lower = vandq_u8(bytes, vdupq_n_u8(15));
    [vreinterpretq_s8_u8(lower), vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes))]
}

/// Adds to each lane its four weights times the four codes at `4 * INDEX`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot<const INDEX: usize>(sum: int32x4_t, weights: int8x16_t, codes: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: the instruction touches registers alone, and the machine has it.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {weights:v}.16b, {codes:v}.4b[{index}]",
            sum = inout(vreg) sum,
            weights = in(vreg) weights,
            codes = in(vreg) codes,
            index = const INDEX,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
