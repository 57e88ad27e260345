//! Block formats of GGUF that are not affine codes of this project: five-bit blocks, and blocks of 256 elements whose
//! sub-blocks have quantised scales of their own. They are decoded on load.
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
//! (ggml's `ggml-common.h` and `ggml-quants.c`.) Values are computed in f32 in ggml's order and rounded once to bf16.

use half::{bf16, f16};

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

/// Elements that share a scale and an offset, in every format a multiple of this.
const GROUP: usize = 16;

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

    /// Writes the elements of blocks in order, as bf16; there is room for exactly all of them.
    pub(crate) fn decode(self, blocks: &[u8], values: &mut [u8]) {
        match self {
            Self::Q5_0 => decode(
                self,
                blocks,
                values,
                |block, _| (number(block, 0), 0.0),
                |block, at| five(&block[2..], at) - 16.0,
            ),
            Self::Q5_1 => decode(
                self,
                blocks,
                values,
                |block, _| (number(block, 0), number(block, 2)),
                |block, at| five(&block[4..], at),
            ),
            Self::Q2K => {
                decode(self, blocks, values, q2k_factors, |block, at| f32::from(two(&block[16..80], at)))
            }
            Self::Q3K => decode(self, blocks, values, q3k_factors, q3k_code),
            Self::Q4K => {
                decode(self, blocks, values, q4k_factors, |block, at| f32::from(four(&block[16..], at)))
            }
            Self::Q5K => decode(self, blocks, values, q4k_factors, q5k_code),
            Self::Q6K => decode(self, blocks, values, q6k_factors, q6k_code),
        }
    }
}

/// `scale * code + offset` of every element, given factors by the first element of a group and codes by element.
fn decode(
    format: Packed,
    blocks: &[u8],
    values: &mut [u8],
    factors: impl Fn(&[u8], usize) -> (f32, f32),
    code: impl Fn(&[u8], usize) -> f32,
) {
    let outputs = values.chunks_exact_mut(2 * format.elements());
    for (block, values) in blocks.chunks_exact(format.bytes()).zip(outputs) {
        for (group, values) in values.chunks_exact_mut(2 * GROUP).enumerate() {
            let (scale, offset) = factors(block, group * GROUP);
            for (at, value) in values.chunks_exact_mut(2).enumerate() {
                let decoded = scale * code(block, group * GROUP + at) + offset;
                value.copy_from_slice(&bf16::from_f32(decoded).to_le_bytes());
            }
        }
    }
}

/// The number of 16 bits at a byte.
fn number(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Five bits: 32 high ones, then low ones of elements `i` and `i + 16` in byte `i`.
fn five(block: &[u8], at: usize) -> f32 {
    let low = (block[4 + at % 16] >> (4 * (at / 16))) & 15;
    let high = (block[at / 8] >> (at % 8)) & 1;
    f32::from(low | (high << 4))
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

fn q3k_factors(block: &[u8], at: usize) -> (f32, f32) {
    let (factors, group) = (&block[96..108], at / 16);
    let low = (factors[group % 8] >> (4 * (group / 8))) & 15;
    let high = (factors[8 + group % 4] >> (2 * (group / 4))) & 3;
    (number(block, 108) * (f32::from(low | (high << 4)) - 32.0), 0.0)
}

fn q3k_code(block: &[u8], at: usize) -> f32 {
    let high = (block[at % 32] >> (at / 32)) & 1;
    f32::from(two(&block[32..96], at) | (high << 2)) - 4.0
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

fn q5k_code(block: &[u8], at: usize) -> f32 {
    let high = (block[16 + at % 32] >> (at / 32)) & 1;
    f32::from(four(&block[48..], at) | (high << 4))
}

fn q6k_factors(block: &[u8], at: usize) -> (f32, f32) {
    (number(block, 208) * f32::from(i8::from_le_bytes([block[192 + at / 16]])), 0.0)
}

fn q6k_code(block: &[u8], at: usize) -> f32 {
    let (half, within) = (at / 128, at % 128);
    let low = (block[64 * half + within % 64] >> (4 * (within / 64))) & 15;
    let high = (block[128 + 32 * half + within % 32] >> (2 * (within / 32))) & 3;
    f32::from(low | (high << 4)) - 32.0
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
        let mut values = [0; 64];
        Packed::Q5_0.decode(&block, &mut values);
        let values: Vec<f32> =
            values.chunks_exact(2).map(|it| bf16::from_le_bytes([it[0], it[1]]).to_f32()).collect();
        let expected = |at| if at == 0 || at == 17 { 0.5 * 3.0 } else { 0.5 * -13.0 };
        assert_eq!(values, (0..32).map(expected).collect::<Vec<_>>());
    }
}
