//! Weights as they come from a model file: MLX's affine layout, or dense.
//!
//! Affine (`mlx.core.quantize`, mode "affine"): a row of `width` inputs is cut into groups; input `k` of a row
//! stands for `scale * code + bias` with the scale and bias of its group and an unsigned code. Codes lie one
//! after the other along the inputs, least significant bits first, in little-endian 32-bit words.

use half::{bf16, f16};

use super::error::{ErrorKind, ProductError, check_length};

/// Numbers in one of three formats.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// IEEE 16-bit floats.
    F16(&'a [f16]),
    /// The upper halves of 32-bit floats.
    Bf16(&'a [bf16]),
}

impl Values<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them, widened without loss.
    ///
    /// # Panics
    ///
    /// When there is none at this index.
    pub fn at(&self, index: usize) -> f32 {
        match self {
            Self::F32(values) => values[index],
            Self::F16(values) => values[index].to_f32(),
            Self::Bf16(values) => values[index].to_f32(),
        }
    }
}

/// The numbers of a weight.
#[derive(Clone, Copy, Debug)]
pub enum Weight<'a> {
    /// Codes with a scale and a bias for each group of inputs.
    Affine {
        /// Bits of a code: 2, 3, 4, 5, 6 or 8.
        bits: u32,
        /// Inputs that share a scale and a bias: 32, 64 or 128.
        group: usize,
        /// `[experts * rows, width * bits / 32]`.
        codes: &'a [u32],
        /// `[experts * rows, width / group]`.
        scales: Values<'a>,
        /// `[experts * rows, width / group]`.
        biases: Values<'a>,
    },
    /// `[experts * rows, width]`.
    Dense(Values<'a>),
}

/// One weight of shape `[rows, width]` (for each expert), to be joined with others by rows.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub width: usize,
    /// The numbers.
    pub weight: Weight<'a>,
}

impl Part<'_> {
    /// Whether the slices fit the shape and kernels know the format.
    pub(super) fn check(&self, experts: usize) -> Result<(), ProductError> {
        let rows = self.rows * experts;
        match self.weight {
            Weight::Affine { bits, group, codes, scales, biases } => {
                if !matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) {
                    return Err(ErrorKind::Bits(bits).into());
                }
                if !matches!(group, 32 | 64 | 128) {
                    return Err(ErrorKind::Group(group).into());
                }
                if !self.width.is_multiple_of(group) {
                    return Err(ErrorKind::Width { width: self.width, group }.into());
                }
                check_length("codes", rows * self.width * bits as usize / 32, codes.len())?;
                check_length("scales", rows * (self.width / group), scales.len())?;
                check_length("biases", rows * (self.width / group), biases.len())
            }
            Weight::Dense(values) => check_length("weights", rows * self.width, values.len()),
        }
    }
}

/// Unpacks the codes of consecutive inputs, one byte each.
///
/// `words` starts at a code's first bit and holds at least `codes.len()` codes of `bits` bits.
pub(super) fn unpack(bits: u32, words: &[u32], codes: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    let mut words = words.iter();
    let (mut held, mut count) = (0u64, 0u32);
    for code in codes {
        if count < bits {
            held |= u64::from(words.next().copied().unwrap_or(0)) << count;
            count += u32::BITS;
        }
        *code = (held & mask) as u8;
        held >>= bits;
        count -= bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_each_other_from_the_lowest_bit() {
        let mut codes = [0; 8];
        unpack(4, &[0x8765_4321], &mut codes);
        assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut codes = [0; 4];
        unpack(8, &[0x0403_02ff], &mut codes);
        assert_eq!(codes, [255, 2, 3, 4]);
    }

    #[test]
    fn codes_may_straddle_words() {
        for bits in [2u32, 3, 5, 6] {
            let expected: Vec<u8> = (0..64u32).map(|index| (index * 7 % (1 << bits)) as u8).collect();
            let mut words = vec![0u32; 64 * bits as usize / 32];
            for (index, code) in expected.iter().enumerate() {
                for bit in 0..bits as usize {
                    let position = index * bits as usize + bit;
                    words[position / 32] |= u32::from(code >> bit & 1) << (position % 32);
                }
            }
            let mut codes = vec![0; 64];
            unpack(bits, &words, &mut codes);
            assert_eq!(codes, expected, "{bits} bits");
        }
    }

    #[test]
    fn unknown_formats_and_wrong_lengths_are_refused() {
        let ones = [1.0; 4];
        let affine = |bits, group, width, codes| {
            let (scales, biases) = (Values::F32(&ones), Values::F32(&ones));
            Part { rows: 2, width, weight: Weight::Affine { bits, group, codes, scales, biases } }
        };
        let codes = [0; 16];
        assert!(affine(4, 32, 64, &codes).check(1).is_ok());
        let message = |part: Part<'_>| part.check(1).unwrap_err().to_string();
        assert_eq!(message(affine(7, 32, 64, &codes)), "bits per code must be 2, 3, 4, 5, 6 or 8: 7");
        assert_eq!(message(affine(4, 16, 64, &codes)), "group size must be 32, 64 or 128: 16");
        assert_eq!(message(affine(4, 32, 40, &codes)), "input width is no multiple of the group size 32: 40");
        assert_eq!(message(affine(4, 32, 64, &codes[1..])), "codes must have 16 elements: 15");
        assert_eq!(message(affine(4, 32, 128, &[0; 32])), "scales must have 8 elements: 4");
        let dense = Part { rows: 3, width: 2, weight: Weight::Dense(Values::F32(&ones)) };
        assert_eq!(message(dense), "weights must have 6 elements: 4");
    }
}
