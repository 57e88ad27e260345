//! TurboQuant's encoders, tokens finite or not, and the Hadamard transform: step by step as the port's own bodies, so
//! that both give the same bits.

mod finite;
mod hadamard;
mod key;
mod value;

pub(crate) use finite::finite;
pub(crate) use hadamard::{hadamard, transform};
pub(crate) use key::encode_turbo_keys;
pub(crate) use value::encode_turbo_values;

use crate::simd::{LANES, Simd};
use tandem_contracts::tensor::turbo::GROUP;

/// A group of elements.
type Group = [[f32; LANES]; GROUP / LANES];

/// The sum of a group in ascending order.
fn ascending(group: &Group) -> f32 {
    group.as_flattened().iter().fold(0.0, |sum, x| sum + x)
}

/// Packs a group's codes, which are whole numbers below `2^bits`, into `4 * bits` bytes as one stream of bits.
fn pack(bits: usize, codes: &Group, bytes: &mut [u8]) {
    for (codes, bytes) in codes.as_flattened().chunks_exact(8).zip(bytes.chunks_exact_mut(bits)) {
        let mut word = 0_u64;
        for (i, code) in codes.iter().enumerate() {
            word |= (*code as u64) << (i * bits);
        }
        bytes.copy_from_slice(&word.to_le_bytes()[..bits]);
    }
}

/// Writes a vector into a group.
#[inline(always)]
fn put<S: Simd>(simd: S, group: &mut Group, vector: usize, x: S::Lanes) {
    simd.store(&mut group[vector], x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_codes_are_consecutive_bits() {
        let mut codes = Group::default();
        codes.as_flattened_mut().iter_mut().enumerate().for_each(|(i, code)| *code = (i % 8) as f32);
        let mut bytes = [0; 12];
        pack(3, &codes, &mut bytes);
        // 0, 1, .. 7 from the lowest bit on: 111 110 101 100 011 010 001 000.
        assert_eq!(bytes[..3], [0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(bytes[9..], bytes[..3]);
        assert_eq!(ascending(&codes), 4.0 * 28.0);
    }
}
