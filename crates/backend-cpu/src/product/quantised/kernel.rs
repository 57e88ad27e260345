//! Quantising one row, for each instruction set.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::Row;
use crate::isa::Isa;

/// The largest code: 16 times the largest signed byte.
const MOST: f32 = 2032.0;

/// Groups of smaller values count as zeros: 2^-115.
const SMALLEST: f32 = f32::from_bits(12 << 23);

/// Quantises a row.
///
/// # Safety
///
/// `x` holds whole groups, and `row` has a place for each of them that nobody else uses meanwhile.
pub(super) unsafe fn quantise(isa: Isa, x: &[f32], row: Row) {
    // SAFETY: the caller's promise; `limited` gives only what the machine has.
    unsafe {
        match isa.limited() {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx | Isa::Avx512Vnni => avx512::quantise(x, row),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => groups(x, row, |x, codes| avx2::quantise(x, codes)),
            _ => groups(x, row, portable),
        }
    }
}

/// Quantises a row group by group, with a function that fills a group's high and low parts and gives `d` and
/// `d * sum`.
///
/// # Safety
///
/// As [`quantise`].
unsafe fn groups(x: &[f32], row: Row, group: impl Fn(&[f32], [&mut [i8]; 2]) -> (f32, f32)) {
    for (index, x) in x.chunks_exact(row.group).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let high = std::slice::from_raw_parts_mut(row.codes.add(index * row.code_step), row.group);
            let low =
                std::slice::from_raw_parts_mut(row.codes.add(index * row.code_step + row.group), row.group);
            let factors = row.factors.add(index * row.factor_step);
            let (d, d_sum) = group(x, [high, low]);
            factors.write(d);
            factors.add(row.sum).write(d_sum);
        }
    }
}

/// `d` and the factor for the inputs, from the bits of the largest magnitude; no factor when all codes are 0, then
/// with the `d` that says why.
fn scale(largest: u32) -> (f32, Option<f32>) {
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        (f32::NAN, None)
    } else if largest < SMALLEST {
        (0.0, None)
    } else {
        (largest / MOST, Some(MOST / largest))
    }
}

fn portable(x: &[f32], [high, low]: [&mut [i8]; 2]) -> (f32, f32) {
    // Magnitudes order like their bits, infinity and NaN above all.
    let largest = x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff));
    let (d, factor) = scale(largest);
    let Some(factor) = factor else {
        high.fill(0);
        low.fill(0);
        return (d, d);
    };
    let mut sum = 0;
    for ((high, low), x) in high.iter_mut().zip(low).zip(x) {
        let code = (x * factor).round_ties_even() as i32;
        *high = ((code + 8) >> 4) as i8;
        *low = (code - 16 * i32::from(*high)) as i8;
        sum += code;
    }
    (d, d * sum as f32)
}
