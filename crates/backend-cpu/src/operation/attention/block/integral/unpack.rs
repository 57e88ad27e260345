//! Codes of any number of bits as bytes.

use super::super::super::plane::code::Codes;
use crate::simd::LINE;

/// Writes consecutive rows of `width` codes at even steps, the first at the first byte, each as whole lines. What is
/// beyond the width is arbitrary.
///
/// # Panics
/// The rows do not lie within the bytes.
pub(super) fn rows(codes: &Codes<'_>, (from, step): (&[u8], usize), width: usize, to: &mut [u8]) {
    let columns = width.next_multiple_of(LINE);
    let size = width * codes.bits / 8;
    if codes.bits == 8 {
        for (i, to) in to.chunks_exact_mut(columns).enumerate() {
            to[..size].copy_from_slice(&from[i * step..][..size]);
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the machine has the instructions.
        return unsafe { vector::rows(codes, (from, step), size, to) };
    }
    for (i, to) in to.chunks_exact_mut(columns).enumerate() {
        row(codes, &from[i * step..][..size], to);
    }
}

/// Eight codes at a time: they are as many bytes as a code has bits.
fn row(codes: &Codes<'_>, from: &[u8], to: &mut [u8]) {
    let mask = (1 << codes.bits) - 1;
    for (from, to) in from.chunks_exact(codes.bits).zip(to.as_chunks_mut::<8>().0) {
        let mut word = 0u64;
        for (i, byte) in from.iter().enumerate() {
            word |= u64::from(*byte) << (8 * i);
        }
        for (i, to) in to.iter_mut().enumerate() {
            *to = codes.table[(word >> (i * codes.bits)) as usize & mask];
        }
    }
}

/// 64 codes at a time.
#[cfg(target_arch = "x86_64")]
mod vector {
    use super::{Codes, LINE};
    use std::arch::x86_64::*;

    /// For each of 64 bytes the place of its eight codes' bytes, and at which of their bits its own code begins; by bits.
    static SPREAD: [[[u8; LINE]; 2]; 8] = {
        let mut spread = [[[0; LINE]; 2]; 8];
        let mut at = LINE;
        while at < 8 * LINE {
            let (bits, i) = (at / LINE, at % LINE);
            let within = if i % 8 < bits { i % 8 } else { bits - 1 };
            spread[bits][0][i] = (i / 8 * bits + within) as u8;
            spread[bits][1][i] = (i % 8 * bits) as u8;
            at += 1;
        }
        spread
    };

    /// Rows of `size` bytes.
    ///
    /// # Safety
    /// The machine has AVX-512 BW and VBMI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) unsafe fn rows(codes: &Codes<'_>, (from, step): (&[u8], usize), size: usize, to: &mut [u8]) {
        let whole = 8 * codes.bits;
        let lines = size.div_ceil(whole);
        let count = to.len() / (lines * LINE);
        assert!(count == 0 || (count - 1) * step + size <= from.len(), "rows outside their plane");
        // SAFETY: the arrays have the 64 bytes that are read.
        let (places, shifts, table) = unsafe {
            (
                _mm512_loadu_si512(SPREAD[codes.bits][0].as_ptr().cast()),
                _mm512_loadu_si512(SPREAD[codes.bits][1].as_ptr().cast()),
                _mm512_loadu_si512(codes.table.as_ptr().cast()),
            )
        };
        let mask = _mm512_set1_epi8((1 << codes.bits) - 1);
        for row in 0..count {
            for line in 0..lines {
                let present = (1u64 << whole.min(size - line * whole)) - 1;
                // SAFETY: rows of `size` bytes lie within what is read (asserted), of which as many are read as there
                // are, at most 48; the lines of `count` rows lie within what is written.
                unsafe {
                    let from = from.as_ptr().add(row * step + line * whole);
                    let packed = _mm512_maskz_loadu_epi8(present, from.cast());
                    let eights = _mm512_permutexvar_epi8(places, packed);
                    let loose = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, eights), mask);
                    let bytes = _mm512_permutexvar_epi8(loose, table);
                    _mm512_storeu_si512(to.as_mut_ptr().add((row * lines + line) * LINE).cast(), bytes);
                }
            }
        }
    }
}
