//! Element formats of GGUF, and block-quantised ones as affine codes.
//!
//! A block of 32 elements shares its scale, which is exactly affine quantisation with groups of 32:
//!
//! | format | block | element | affine |
//! |---|---|---|---|
//! | Q4_0 | `d: f16`, 16 bytes of codes | `d * (q - 8)` | 4 bits, scale `d`, bias `-8 d` |
//! | Q4_1 | `d, m: f16`, 16 bytes of codes | `d * q + m` | 4 bits, scale `d`, bias `m` |
//! | Q8_0 | `d: f16`, 32 signed codes | `d * q` | 8 bits of `q + 128`, scale `d`, bias `-128 d` |
//!
//! (ggml's `ggml-common.h` and `ggml-quants.c`.) The products by 8 and 128 are exact in f16 short of overflow, so no
//! value changes. Invariant: the byte `i` of a 4-bit block holds elements `i` (low bits) and `i + 16`; affine codes
//! stand in order, lowest bits first.

use super::Packed;
use crate::{
    error::{Error, Result},
    weights::Encoding,
};
use half::f16;
use tandem_contracts::tensor::{Affine, Dtype};

/// Elements of a block.
const BLOCK: usize = 32;

/// A block-quantised format that is affine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Q4_0,
    Q4_1,
    Q8_0,
}

/// Scales and biases of affine codes, row-major.
#[derive(Debug)]
pub(crate) struct Factors {
    pub(crate) scales: Vec<u8>,
    pub(crate) biases: Vec<u8>,
    /// Of both.
    pub(crate) dtype: Dtype,
}

/// Formats of ggml that are not read, by code.
const OTHERS: [(u32, &str); 20] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

/// The encoding behind a type code.
///
/// # Errors
/// It is not read, or does not exist.
pub(super) fn encoding(code: u32) -> Result<Encoding> {
    Ok(match code {
        0 => Encoding::Plain(Dtype::F32),
        1 => Encoding::Plain(Dtype::F16),
        30 => Encoding::Plain(Dtype::Bf16),
        2 => Encoding::Block(Block::Q4_0),
        3 => Encoding::Block(Block::Q4_1),
        8 => Encoding::Block(Block::Q8_0),
        6 => Encoding::Packed(Packed::Q5_0),
        7 => Encoding::Packed(Packed::Q5_1),
        10 => Encoding::Packed(Packed::Q2K),
        11 => Encoding::Packed(Packed::Q3K),
        12 => Encoding::Packed(Packed::Q4K),
        13 => Encoding::Packed(Packed::Q5K),
        14 => Encoding::Packed(Packed::Q6K),
        _ => {
            let name = OTHERS.iter().find(|other| other.0 == code).map_or("unknown", |other| other.1);
            let known = "F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K are read";
            return Err(Error::unsupported(format!("{known}, its element type is: {name} ({code})")));
        }
    })
}

/// Bytes of a tensor.
///
/// # Errors
/// Too many elements, or rows that are no whole number of blocks.
pub(super) fn bytes(encoding: Encoding, shape: &[usize]) -> Result<usize> {
    let (elements, size) = match encoding {
        Encoding::Plain(dtype) => (1, dtype.size()),
        Encoding::Block(block) => (BLOCK, block.bytes()),
        Encoding::Packed(packed) => (packed.elements(), packed.bytes()),
    };
    let width = shape.last().copied().unwrap_or(1);
    if !width.is_multiple_of(elements) {
        return Err(Error::format(format!("rows are no whole number of blocks of {elements}: {width}")));
    }
    let count = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    count
        .and_then(|count| (count / elements).checked_mul(size))
        .ok_or_else(|| Error::format(format!("too many elements: {shape:?}")))
}

impl Block {
    /// Bytes of one block.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 2 + BLOCK / 2,
            Self::Q4_1 => 4 + BLOCK / 2,
            Self::Q8_0 => 2 + BLOCK,
        }
    }

    /// The affine format of the same values.
    pub(crate) fn affine(self) -> Affine {
        let bits = match self {
            Self::Q4_0 | Self::Q4_1 => 4,
            Self::Q8_0 => 8,
        };
        Affine { bits, group: BLOCK as u16 }
    }

    /// Writes the codes of blocks in order, as bytes of `u32` planes; there is room for exactly those of all blocks.
    pub(crate) fn unpack(self, blocks: &[u8], codes: &mut [u8]) {
        let (stored, size) = (self.bytes(), self.affine().words(BLOCK) * 4);
        for (block, codes) in blocks.chunks_exact(stored).zip(codes.chunks_exact_mut(size)) {
            let block = &block[stored - size..];
            match self {
                Self::Q4_0 | Self::Q4_1 => in_order(block, codes),
                // Adding 128 to a signed byte turns its highest bit.
                Self::Q8_0 => codes.iter_mut().zip(block).for_each(|(code, signed)| *code = signed ^ 0x80),
            }
        }
    }

    /// The scales and biases of blocks, in order.
    pub(crate) fn factors(self, blocks: &[u8]) -> Factors {
        let bytes = blocks.len() / self.bytes() * 2;
        let mut factors = Factors { scales: vec![0; bytes], biases: vec![0; bytes], dtype: Dtype::F16 };
        let planes = factors.scales.chunks_exact_mut(2).zip(factors.biases.chunks_exact_mut(2));
        for (block, (scale, bias)) in blocks.chunks_exact(self.bytes()).zip(planes) {
            scale.copy_from_slice(&block[..2]);
            match self {
                Self::Q4_0 => bias.copy_from_slice(&times(-8.0, block).to_le_bytes()),
                Self::Q4_1 => bias.copy_from_slice(&block[2..4]),
                Self::Q8_0 => bias.copy_from_slice(&times(-128.0, block).to_le_bytes()),
            }
        }
        factors
    }
}

/// Sixteen bytes that hold elements `i` and `i + 16` become sixteen that hold elements `2 i` and `2 i + 1`.
fn in_order(stored: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(BLOCK / 4);
    for ((low, high), pair) in low.iter_mut().zip(high).zip(stored.chunks_exact(2)) {
        *low = (pair[0] & 15) | (pair[1] << 4);
        *high = (pair[0] >> 4) | (pair[1] & 0xf0);
    }
}

/// The scale of a block, multiplied.
fn times(factor: f32, block: &[u8]) -> f16 {
    f16::from_f32(factor * f16::from_le_bytes([block[0], block[1]]).to_f32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_4_bit_block_becomes_codes_in_order() {
        let mut block = f16::from_f32(0.5).to_le_bytes().to_vec();
        // Element i is i % 16 below 16, and 15 - i % 16 above.
        block.extend((0..16u8).map(|i| i | ((15 - i) << 4)));
        let mut codes = [0; 16];
        Block::Q4_0.unpack(&block, &mut codes);
        let codes: Vec<u8> = codes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
        assert_eq!(codes[..16], (0..16).collect::<Vec<_>>()[..]);
        assert_eq!(codes[16..], (0..16).rev().collect::<Vec<_>>()[..]);
        let factors = Block::Q4_0.factors(&block);
        assert_eq!(factors.scales, f16::from_f32(0.5).to_le_bytes());
        assert_eq!(factors.biases, f16::from_f32(-4.0).to_le_bytes());
    }

    #[test]
    fn signed_codes_become_unsigned_ones() {
        let mut block = f16::from_f32(2.0).to_le_bytes().to_vec();
        block.extend([-128i8, -1, 0, 1, 127].iter().cycle().take(32).map(|code| code.to_le_bytes()[0]));
        let mut codes = [0; 32];
        Block::Q8_0.unpack(&block, &mut codes);
        assert_eq!(codes[..5], [0, 127, 128, 129, 255]);
        assert_eq!(Block::Q8_0.factors(&block).biases, f16::from_f32(-256.0).to_le_bytes());
    }

    #[test]
    fn sizes_are_checked() {
        let large = encoding(14).unwrap();
        assert_eq!(bytes(large, &[3, 512]).unwrap(), 3 * 2 * 210);
        assert!(bytes(large, &[3, 128]).is_err());
        let (blocks, floats) = (encoding(3).unwrap(), encoding(0).unwrap());
        assert_eq!(bytes(blocks, &[3, 64]).unwrap(), 3 * 2 * 20);
        assert!(bytes(blocks, &[3, 48]).is_err());
        assert!(bytes(floats, &[usize::MAX, 2]).is_err());
        assert!(bytes(floats, &[usize::MAX]).is_err());
        assert_eq!(bytes(floats, &[]).unwrap(), 4);
        assert!(encoding(4).is_err());
        assert!(encoding(15).unwrap_err().to_string().ends_with("Q8_K (15)"));
    }
}
