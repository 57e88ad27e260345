//! Weights as they come from a model file: MLX's affine layout, or dense.
//!
//! Affine (`mlx.core.quantize`, mode "affine"): a row of `width` inputs is cut into groups; input `k` of a row
//! stands for `scale * code + bias` with the scale and bias of its group and an unsigned code. Codes lie one
//! after the other along the inputs, least significant bits first, in little-endian 32-bit words.

use std::ops::Range;

use half::{bf16, f16};

use super::error::{ErrorKind, ProductError, check_length};
use super::format::{Code, Number};

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

/// Whether a number is one of bf16, bit for bit.
fn is_bf16(value: f32) -> bool {
    value.to_bits() & 0xffff == 0
}

/// Whether a number is one of f16, bit for bit.
fn is_f16(value: f32) -> bool {
    f16::from_f32(value).to_f32().to_bits() == value.to_bits()
}

/// What choosing a format and packing need.
impl<'a> Values<'a> {
    /// The narrowest format that holds all numbers of some runs, bit for bit.
    pub(super) fn narrowest(runs: impl Iterator<Item = Values<'a>> + Clone) -> Number {
        let all_bf16 = |run: Values<'a>| match run {
            Self::F32(values) => values.iter().all(|value| is_bf16(*value)),
            Self::F16(values) => values.iter().all(|value| is_bf16(value.to_f32())),
            Self::Bf16(_) => true,
        };
        let all_f16 = |run: Values<'a>| match run {
            Self::F32(values) => values.iter().all(|value| is_f16(*value)),
            Self::F16(_) => true,
            Self::Bf16(values) => values.iter().all(|value| is_f16(value.to_f32())),
        };
        if runs.clone().all(all_bf16) {
            Number::Bf16
        } else if runs.clone().all(all_f16) {
            Number::F16
        } else {
            Number::F32
        }
    }

    /// Some of them.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::F16(values) => Self::F16(&values[range]),
            Self::Bf16(values) => Self::Bf16(&values[range]),
        }
    }

    /// Writes each into a format that holds it without loss, `step` bytes from one to the next.
    pub(super) fn scatter(&self, number: Number, bytes: &mut [u8], step: usize) {
        fn put<T: Copy, const N: usize>(
            values: &[T],
            bytes: &mut [u8],
            step: usize,
            to: impl Fn(T) -> [u8; N],
        ) {
            for (value, bytes) in values.iter().zip(bytes.chunks_mut(step)) {
                bytes[..N].copy_from_slice(&to(*value));
            }
        }
        match (self, number) {
            (Self::Bf16(values), Number::Bf16) => put(values, bytes, step, bf16::to_le_bytes),
            (Self::F16(values), Number::F16) => put(values, bytes, step, f16::to_le_bytes),
            (Self::F32(values), Number::F32) => put(values, bytes, step, f32::to_le_bytes),
            (Self::F32(values), Number::Bf16) => {
                put(values, bytes, step, |value| ((value.to_bits() >> 16) as u16).to_le_bytes());
            }
            (values, Number::F32) => {
                for (index, bytes) in (0..values.len()).zip(bytes.chunks_mut(step)) {
                    bytes[..4].copy_from_slice(&values.at(index).to_le_bytes());
                }
            }
            (values, _) => {
                for (index, bytes) in (0..values.len()).zip(bytes.chunks_mut(step)) {
                    number.write(&mut bytes[..2], values.at(index));
                }
            }
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

/// Arranges a row's codes as a tile wants them: four bytes for each line of the tile, with eight nibbles (first the
/// low halves, then the high ones) or four bytes. `spare` has space for the row's codes.
pub(super) fn arrange(bits: u32, code: Code, source: &[u32], lines: &mut [u8], spare: &mut [u8]) {
    let lines = lines.chunks_exact_mut(4);
    match (code, bits) {
        (Code::Byte, 8) => {
            lines.zip(source).for_each(|(line, source)| line.copy_from_slice(&source.to_le_bytes()));
        }
        (Code::Nibble, 4) => {
            // Eight nibbles in a row become two runs of four, one in each half of the bytes.
            let spread = |half: u32| {
                let pairs = (half | half << 8) & 0x00ff_00ff;
                (pairs | pairs << 4) & 0x0f0f_0f0f
            };
            for (line, source) in lines.zip(source) {
                let word = spread(source & 0xffff) | spread(source >> 16) << 4;
                line.copy_from_slice(&word.to_le_bytes());
            }
        }
        (Code::Nibble, _) => {
            unpack(bits, source, spare);
            for (line, codes) in lines.zip(spare.chunks_exact(8)) {
                line.copy_from_slice(&std::array::from_fn::<_, 4, _>(|byte| {
                    codes[byte] | codes[byte + 4] << 4
                }));
            }
        }
        (Code::Byte, _) => {
            unpack(bits, source, spare);
            lines.zip(spare.chunks_exact(4)).for_each(|(line, codes)| line.copy_from_slice(codes));
        }
    }
}

/// Unpacks the codes of consecutive inputs, one byte each.
///
/// `words` starts at a code's first bit and holds at least `codes.len()` codes of `bits` bits.
fn unpack(bits: u32, words: &[u32], codes: &mut [u8]) {
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
    fn every_width_is_arranged_alike() {
        let codes: Vec<u8> = (0..64u8).map(|index| index % 4).collect();
        let arranged = |bits: u32, code: Code| {
            let mut source = vec![0u32; 64 * bits as usize / 32];
            for (index, code) in codes.iter().enumerate() {
                for bit in 0..bits as usize {
                    let at = index * bits as usize + bit;
                    source[at / 32] |= u32::from(code >> bit & 1) << (at % 32);
                }
            }
            let mut lines = vec![0; if code == Code::Nibble { 32 } else { 64 }];
            arrange(bits, code, &source, &mut lines, &mut [0; 64]);
            lines
        };
        // Inputs 0 to 7 have the codes 0, 1, 2, 3, 0, 1, 2, 3.
        assert_eq!(arranged(4, Code::Nibble), [0x00, 0x11, 0x22, 0x33].repeat(8));
        assert_eq!(arranged(8, Code::Byte), [0, 1, 2, 3].repeat(16));
        for bits in [2, 3] {
            assert_eq!(arranged(bits, Code::Nibble), arranged(4, Code::Nibble));
        }
        for bits in [5, 6] {
            assert_eq!(arranged(bits, Code::Byte), arranged(8, Code::Byte));
        }
    }

    #[test]
    fn the_narrowest_number_loses_nothing() {
        let narrowest = |values: &[f32]| Values::narrowest([Values::F32(values)].into_iter());
        assert_eq!(narrowest(&[]), Number::Bf16);
        assert_eq!(narrowest(&[1.0, -0.0, f32::INFINITY, 2.0_f32.powi(127)]), Number::Bf16);
        // The smallest number of f16 and ten bits behind the point.
        assert_eq!(narrowest(&[1.0 + 1.0 / 1024.0, 2.0_f32.powi(-24)]), Number::F16);
        assert_eq!(narrowest(&[0.1]), Number::F32);
        // One needs the bits of f16, the other the range of bf16.
        assert_eq!(narrowest(&[1.0 + 1.0 / 1024.0, 2.0_f32.powi(100)]), Number::F32);
        let mixed = [Values::F16(&[f16::from_f32(1.0 + 1.0 / 1024.0)]), Values::Bf16(&[bf16::ONE])];
        assert_eq!(Values::narrowest(mixed.into_iter()), Number::F16);
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
