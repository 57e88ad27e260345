//! Block formats of GGUF with codes of five bits, and those of 256 elements whose groups have quantised scales of their own.
//!
//! | format | bytes of a block, in order | element |
//! |---|---|---|
//! | Q5_0 | `d: f16`, high bits 4, low 16 | `d * (q - 16)` |
//! | Q5_1 | `d, m: f16`, high bits 4, low 16 | `d * q + m` |
//! | Q2_K | factors 16, codes 64, `d, m: f16` | `d * s * q - m * o`, `s` and `o` of four bits for 16 elements |
//! | Q3_K | high bits 32, low 64, factors 12, `d: f16` | `d * (s - 32) * (q - 4)`, `s` of six bits for 16 elements |
//! | Q4_K | `d, m: f16`, factors 12, codes 128 | `d * s * q - m * o`, `s` and `o` of six bits for 32 elements |
//! | Q5_K | `d, m: f16`, factors 12, high bits 32, low 128 | the same |
//! | Q6_K | low bits 128, high 64, factors 16, `d: f16` | `d * s * (q - 32)`, `s` of eight bits, signed, for 16 elements |
//!
//! (ggml's `ggml-common.h` and `ggml-quants.c`.) Groups of 32 become affine codes: their scales and biases, products of
//! 17 significant bits, are exact in f32. Groups of 16 are shorter than any affine format has them, and become f32.
//! Invariant: every value is the one that ggml computes in f32, to the last bit; weights are rounded nowhere.

use super::Factors;
use half::f16;
use tandem_contracts::tensor::{Affine, Dtype};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    Q5_0,
    Q5_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// Elements of a group of the formats that become floats.
const SHORT: usize = 16;
/// Elements of a group of the affine ones.
const LONG: usize = 32;

impl Packed {
    /// Elements of a block.
    pub(super) const fn elements(self) -> usize {
        match self {
            Self::Q5_0 | Self::Q5_1 => 32,
            _ => 256,
        }
    }

    /// Bytes of a block.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Where a block's numbers of 16 bits begin, and how many there are.
    const fn scales(self) -> (usize, usize) {
        match self {
            Self::Q5_0 => (0, 1),
            Self::Q5_1 | Self::Q4K | Self::Q5K => (0, 2),
            Self::Q2K => (80, 2),
            Self::Q3K => (108, 1),
            Self::Q6K => (208, 1),
        }
    }

    /// Whether no scale of any block is infinite or not a number.
    pub(crate) fn is_finite(self, blocks: &[u8]) -> bool {
        let (at, count) = self.scales();
        let mut numbers = blocks
            .chunks_exact(self.bytes())
            .flat_map(|block| (0..count).map(move |i| number(block, at + 2 * i)));
        numbers.all(f32::is_finite)
    }

    /// The affine format of the same values, where groups are long enough for one.
    pub(crate) fn affine(self) -> Option<Affine> {
        let bits = match self {
            Self::Q4K => 4,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => 5,
            Self::Q2K | Self::Q3K | Self::Q6K => return None,
        };
        Some(Affine { bits, group: LONG as u16 })
    }

    /// The scale and the offset of the group that begins with an element of a block.
    fn group(self, block: &[u8], at: usize) -> (f32, f32) {
        match self {
            Self::Q5_0 => (number(block, 0), -16.0 * number(block, 0)),
            Self::Q5_1 => (number(block, 0), number(block, 2)),
            Self::Q2K => q2k_factors(block, at),
            Self::Q3K => (q3k_factor(block, at), 0.0),
            Self::Q4K | Self::Q5K => q4k_factors(block, at),
            Self::Q6K => (q6k_factor(block, at), 0.0),
        }
    }

    /// The code of an element, and what is to be taken from it.
    fn code(self, block: &[u8], at: usize) -> (u8, f32) {
        match self {
            Self::Q5_0 => (five(&block[2..], at), 0.0),
            Self::Q5_1 => (five(&block[4..], at), 0.0),
            Self::Q2K => (two(&block[16..80], at), 0.0),
            Self::Q3K => (q3k_code(block, at), 4.0),
            Self::Q4K => (four(&block[16..], at), 0.0),
            Self::Q5K => (q5k_code(block, at), 0.0),
            Self::Q6K => (q6k_code(block, at), 32.0),
        }
    }

    /// Scales and biases of blocks of an affine format, in order, in f32.
    pub(crate) fn factors(self, blocks: &[u8]) -> Factors {
        let mut factors = Factors { scales: Vec::new(), biases: Vec::new(), dtype: Dtype::F32 };
        for block in blocks.chunks_exact(self.bytes()) {
            for at in (0..self.elements()).step_by(LONG) {
                let (scale, bias) = self.group(block, at);
                factors.scales.extend(scale.to_le_bytes());
                factors.biases.extend(bias.to_le_bytes());
            }
        }
        factors
    }

    /// Writes the codes of blocks of an affine format in order, lowest bits first, as bytes of `u32` planes; there is room
    /// for exactly those of all blocks.
    pub(crate) fn unpack(self, blocks: &[u8], codes: &mut [u8]) {
        let Some(Affine { bits, .. }) = self.affine() else { return };
        let mut codes = codes.iter_mut();
        for block in blocks.chunks_exact(self.bytes()) {
            // A block's codes end with a whole byte.
            let (mut word, mut held) = (0u16, 0);
            for at in 0..self.elements() {
                word |= u16::from(self.code(block, at).0) << held;
                held += bits;
                if held >= 8 {
                    codes.next().into_iter().for_each(|byte| *byte = word as u8);
                    (word, held) = (word >> 8, held - 8);
                }
            }
        }
    }

    /// Writes the elements of blocks in order, as f32; there is room for exactly all of them.
    pub(crate) fn decode(self, blocks: &[u8], values: &mut [u8]) {
        let outputs = values.chunks_exact_mut(4 * self.elements());
        for (block, values) in blocks.chunks_exact(self.bytes()).zip(outputs) {
            for (group, values) in values.chunks_exact_mut(4 * SHORT).enumerate() {
                let (scale, offset) = self.group(block, group * SHORT);
                for (at, value) in values.chunks_exact_mut(4).enumerate() {
                    let (code, centre) = self.code(block, group * SHORT + at);
                    let decoded = scale * (f32::from(code) - centre) + offset;
                    value.copy_from_slice(&decoded.to_le_bytes());
                }
            }
        }
    }
}

/// The number of 16 bits at a byte.
fn number(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Five bits: 32 high ones, then low ones of elements `i` and `i + 16` in byte `i`.
fn five(block: &[u8], at: usize) -> u8 {
    let low = (block[4 + at % 16] >> (4 * (at / 16))) & 15;
    let high = (block[at / 8] >> (at % 8)) & 1;
    low | (high << 4)
}

/// Two bits: each 32 bytes hold 128 elements, those 32 apart in one byte.
fn two(codes: &[u8], at: usize) -> u8 {
    (codes[32 * (at / 128) + at % 32] >> (2 * (at % 128 / 32))) & 3
}

/// Four bits: each 32 bytes hold 64 elements, those 32 apart in one byte.
fn four(codes: &[u8], at: usize) -> u8 {
    (codes[32 * (at / 64) + at % 32] >> (4 * (at % 64 / 32))) & 15
}

fn q2k_factors(block: &[u8], at: usize) -> (f32, f32) {
    let factors = block[at / 16];
    (number(block, 80) * f32::from(factors & 15), -(number(block, 82) * f32::from(factors >> 4)))
}

fn q3k_factor(block: &[u8], at: usize) -> f32 {
    let (factors, group) = (&block[96..108], at / 16);
    let low = (factors[group % 8] >> (4 * (group / 8))) & 15;
    let high = (factors[8 + group % 4] >> (2 * (group / 4))) & 3;
    number(block, 108) * (f32::from(low | (high << 4)) - 32.0)
}

fn q3k_code(block: &[u8], at: usize) -> u8 {
    let high = (block[at % 32] >> (at / 32)) & 1;
    two(&block[32..96], at) | (high << 2)
}

fn q4k_factors(block: &[u8], at: usize) -> (f32, f32) {
    let (factors, group) = (&block[4..16], at / 32);
    let (scale, offset) = if group < 4 {
        (factors[group] & 63, factors[group + 4] & 63)
    } else {
        let low = factors[group + 4];
        ((low & 15) | ((factors[group - 4] >> 6) << 4), (low >> 4) | ((factors[group] >> 6) << 4))
    };
    (number(block, 0) * f32::from(scale), -(number(block, 2) * f32::from(offset)))
}

fn q5k_code(block: &[u8], at: usize) -> u8 {
    let high = (block[16 + at % 32] >> (at / 32)) & 1;
    four(&block[48..], at) | (high << 4)
}

fn q6k_factor(block: &[u8], at: usize) -> f32 {
    number(block, 208) * f32::from(i8::from_le_bytes([block[192 + at / 16]]))
}

fn q6k_code(block: &[u8], at: usize) -> u8 {
    let (half, within) = (at / 128, at % 128);
    let low = (block[64 * half + within % 64] >> (4 * (within / 64))) & 15;
    let high = (block[128 + 32 * half + within % 32] >> (2 * (within / 32))) & 3;
    low | (high << 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_scales_are_seen_wherever_they_stand() {
        for format in
            [Packed::Q5_0, Packed::Q5_1, Packed::Q2K, Packed::Q3K, Packed::Q4K, Packed::Q5K, Packed::Q6K]
        {
            let mut blocks = vec![0; 2 * format.bytes()];
            assert!(format.is_finite(&blocks), "{format:?}");
            let (at, count) = format.scales();
            let last = format.bytes() + at + 2 * (count - 1);
            blocks[last..last + 2].copy_from_slice(&f16::INFINITY.to_le_bytes());
            assert!(!format.is_finite(&blocks), "{format:?}");
        }
    }

    #[test]
    fn a_5_bit_block_by_hand() {
        let mut block = f16::from_f32(0.5).to_le_bytes().to_vec();
        // High bits of elements 0 and 17 only; all low bits are 3.
        block.extend([1, 0, 2, 0]);
        block.extend([0x33; 16]);
        let code = |at| if at == 0 || at == 17 { 19 } else { 3 };
        let mut codes = [0; 20];
        Packed::Q5_0.unpack(&block, &mut codes);
        // Bit `i` of the plane is bit `i % 8` of byte `i / 8`; five of them are a code, lowest first.
        let bit = |i: usize| (codes[i / 8] >> (i % 8)) & 1;
        let read: Vec<u8> = (0..32).map(|at| (0..5).map(|i| bit(5 * at + i) << i).sum::<u8>()).collect();
        assert_eq!(read, (0..32).map(code).collect::<Vec<_>>());
        let factors = Packed::Q5_0.factors(&block);
        assert_eq!(factors.scales, 0.5f32.to_le_bytes());
        assert_eq!(factors.biases, (-8.0f32).to_le_bytes());
    }
}
