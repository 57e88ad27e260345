//! Weights of block-scaled small floats, decoded on load: MXFP8, MXFP4 (OCP Microscaling Formats 1.0) and NVFP4, as
//! MLX stores them: codes packed in order into `u32` words, lowest bits first, and one byte of scale for each group.
//!
//! | format | element | group | scale |
//! |---|---|---|---|
//! | MXFP8 | E4M3 | 32 | E8M0: `2^(s - 127)` |
//! | MXFP4 | E2M1 | 32 | E8M0 |
//! | NVFP4 | E2M1 | 16 | E4M3 |
//!
//! A product of element and scale has at most 6 significant bits, so bf16 holds it exactly (short of its smallest
//! subnormals).

use crate::error::{Error, Result};
use half::bf16;

/// A block-scaled format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 8-bit elements in groups of 32.
    Mxfp8,
    /// 4-bit elements in groups of 32.
    Mxfp4,
    /// 4-bit elements in groups of 16.
    Nvfp4,
}

impl Format {
    /// Elements that share a scale.
    pub(crate) fn group(self) -> usize {
        match self {
            Self::Mxfp8 | Self::Mxfp4 => 32,
            Self::Nvfp4 => 16,
        }
    }

    /// Bits of a code.
    pub(crate) fn bits(self) -> usize {
        match self {
            Self::Mxfp8 => 8,
            Self::Mxfp4 | Self::Nvfp4 => 4,
        }
    }

    /// Codes in a `u32` word.
    pub(crate) fn codes_in_word(self) -> usize {
        32 / self.bits()
    }

    /// Decodes codes to bf16 elements, row-major; there is one scale for each group of codes.
    ///
    /// # Errors
    /// A code or scale that stands for no number.
    pub(crate) fn decode(self, codes: &[u8], scales: &[u8]) -> Result<Vec<u8>> {
        let group_bytes = self.group() * self.bits() / 8;
        let mut values = Vec::with_capacity(codes.len() * 16 / self.bits());
        for (group, &scale) in codes.chunks_exact(group_bytes).zip(scales) {
            let scale = match self {
                Self::Mxfp8 | Self::Mxfp4 => power(scale)?,
                Self::Nvfp4 => e4m3(scale)?,
            };
            let mut push = |element: f32| values.extend(bf16::from_f32(element * scale).to_le_bytes());
            for &byte in group {
                match self {
                    Self::Mxfp8 => push(e4m3(byte)?),
                    Self::Mxfp4 | Self::Nvfp4 => {
                        push(e2m1(byte & 15));
                        push(e2m1(byte >> 4));
                    }
                }
            }
        }
        Ok(values)
    }
}

/// E8M0: a power of two without sign; 255 is no number.
fn power(scale: u8) -> Result<f32> {
    match scale {
        // 2^-127 is subnormal in f32.
        0 => Ok(f32::from_bits(1 << 22)),
        255 => Err(Error::format("a scale is not a number")),
        exponent => Ok(f32::from_bits(u32::from(exponent) << 23)),
    }
}

/// Sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinity, and all ones is no number.
fn e4m3(code: u8) -> Result<f32> {
    let (exponent, mantissa) = (i32::from((code >> 3) & 15), f32::from(code & 7) / 8.0);
    let magnitude = match exponent {
        15 if code & 7 == 7 => return Err(Error::format("a code is not a number")),
        0 => mantissa * 2f32.powi(-6),
        _ => (1.0 + mantissa) * 2f32.powi(exponent - 7),
    };
    Ok(if code & 0x80 == 0 { magnitude } else { -magnitude })
}

/// Sign, 2 bits of exponent (bias 1), 1 of mantissa.
fn e2m1(code: u8) -> f32 {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(2).map(|it| bf16::from_le_bytes([it[0], it[1]]).to_f32()).collect()
    }

    #[test]
    fn eight_bit_elements_are_those_of_the_format_tables() {
        // Smallest subnormal, largest subnormal, smallest normal, one, largest.
        for (code, expected) in
            [(1, 2f32.powi(-9)), (7, 7.0 * 2f32.powi(-9)), (8, 2f32.powi(-6)), (0x38, 1.0), (0x7e, 448.0)]
        {
            assert_eq!(e4m3(code).unwrap(), expected);
            assert_eq!(e4m3(code | 0x80).unwrap(), -expected);
        }
        assert!(e4m3(0x7f).is_err() && e4m3(0xff).is_err());
    }

    #[test]
    fn scales_are_powers_of_two() {
        assert_eq!(power(127).unwrap(), 1.0);
        assert_eq!(power(128).unwrap(), 2.0);
        assert_eq!(power(0).unwrap(), 2f32.powi(-127));
        assert_eq!(power(254).unwrap(), 2f32.powi(127));
        assert!(power(255).is_err());
    }

    #[test]
    fn groups_take_their_own_scale() {
        let mut codes = vec![0x38; 32];
        codes.extend([0xb8; 32]);
        let decoded = values(&Format::Mxfp8.decode(&codes, &[127, 129]).unwrap());
        assert_eq!(decoded[..32], [1.0; 32]);
        assert_eq!(decoded[32..], [-4.0; 32]);

        let decoded = values(&Format::Mxfp4.decode(&[0xe1; 16], &[126]).unwrap());
        assert_eq!(decoded[..4], [0.25, -2.0, 0.25, -2.0]);

        let decoded = values(&Format::Nvfp4.decode(&[0x72; 16], &[0x38, 0xc0]).unwrap());
        assert_eq!(decoded[..2], [1.0, 6.0]);
        assert_eq!(decoded[16..18], [-2.0, -12.0]);
    }
}
