//! How prepared weights lie in memory.
//!
//! Rows (outputs) are interleaved in tiles of [`LANES`], so that one vector load feeds sixteen outputs and sums
//! never cross lanes. A tile of an affine weight is a sequence of blocks, one for each group of inputs:
//!
//! ```text
//! nibbles: group/8 lines of 64 bytes; line j, lane r, byte x: input 8j+x of row r in the low half,
//!          input 8j+4+x in the high half
//! bytes:   group/4 lines of 64 bytes; line j, lane r, byte x: input 4j+x of row r
//! then 16 scales and 16 biases (lane = row), as f32, f16 or bf16
//! ```
//!
//! The lines, split into their halves, are at the same time the operand that AMX and VNNI byte products want.
//! A tile of a dense weight holds, for each input, its sixteen weights.
//!
//! Invariants: blocks and tiles are multiples of 64 bytes; rows beyond the last are zero.

use half::{bf16, f16};

/// Rows of a tile: the lanes of the widest vector.
pub(super) const LANES: usize = 16;

/// A format of numbers. Weights and scales take the narrowest that holds all of them without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bf16,
    F16,
    F32,
}

impl Number {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Writes a value that this format holds without loss.
    pub(super) fn write(self, bytes: &mut [u8], value: f32) {
        match self {
            Self::Bf16 => bytes.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            Self::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Self::F32 => bytes.copy_from_slice(&value.to_le_bytes()),
        }
    }

    /// The value at `index` of a run of numbers.
    pub(super) fn read(self, bytes: &[u8], index: usize) -> f32 {
        let at = index * self.bytes();
        match self {
            Self::Bf16 => bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32(),
            Self::F16 => f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32(),
            Self::F32 => f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]),
        }
    }

    /// The first sixteen values of a run of numbers.
    pub(super) fn lanes(self, bytes: &[u8]) -> [f32; LANES] {
        std::array::from_fn(|lane| self.read(bytes, lane))
    }
}

/// How codes are stored. Those of 2 and 3 bits become nibbles, those of 5 and 6 bits bytes: the code itself is
/// what the arithmetic sees, so results do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Nibble,
    Byte,
}

/// Format of an affine weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    pub(super) code: Code,
    /// Inputs of a group: 32, 64 or 128.
    pub(super) group: usize,
    /// Of scales and biases.
    pub(super) number: Number,
}

impl Affine {
    /// Bytes of a block's codes.
    pub(super) fn code_bytes(self) -> usize {
        match self.code {
            Code::Nibble => self.group * LANES / 2,
            Code::Byte => self.group * LANES,
        }
    }

    /// Bytes of a block's scales, and of its biases.
    pub(super) fn scale_bytes(self) -> usize {
        LANES * self.number.bytes()
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> usize {
        self.code_bytes() + 2 * self.scale_bytes()
    }

    /// The scales and biases of a block's rows.
    pub(super) fn factors(self, block: &[u8]) -> ([f32; LANES], [f32; LANES]) {
        let (scales, biases) = block[self.code_bytes()..].split_at(self.scale_bytes());
        (self.number.lanes(scales), self.number.lanes(biases))
    }

    /// The code of one row and input (counted within the group) of a block.
    pub(super) fn code(self, block: &[u8], lane: usize, input: usize) -> u8 {
        match self.code {
            Code::Nibble => {
                let byte = block[input / 8 * 64 + lane * 4 + input % 4];
                if input % 8 < 4 { byte & 15 } else { byte >> 4 }
            }
            Code::Byte => block[input / 4 * 64 + lane * 4 + input % 4],
        }
    }
}

/// Format of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Affine(Affine),
    Dense(Number),
}

impl Format {
    /// Bytes of a tile of `width` inputs.
    pub(super) fn tile_bytes(self, width: usize) -> usize {
        match self {
            Self::Affine(affine) => width / affine.group * affine.block_bytes(),
            Self::Dense(number) => (width * LANES * number.bytes()).next_multiple_of(64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_cache_lines() {
        for code in [Code::Nibble, Code::Byte] {
            for group in [32, 64, 128] {
                for number in [Number::Bf16, Number::F16, Number::F32] {
                    assert_eq!(Affine { code, group, number }.block_bytes() % 64, 0);
                }
            }
        }
        assert_eq!(Format::Dense(Number::Bf16).tile_bytes(3), 128);
    }

    #[test]
    fn codes_are_found_in_their_lines() {
        let mut block = vec![0; 512];
        let nibbles = Affine { code: Code::Nibble, group: 32, number: Number::F32 };
        // Line 1, lane 2, byte 3: inputs 8 + 3 and 8 + 4 + 3.
        block[64 + 2 * 4 + 3] = 0xa5;
        assert_eq!((nibbles.code(&block, 2, 11), nibbles.code(&block, 2, 15)), (5, 10));
        let bytes = Affine { code: Code::Byte, ..nibbles };
        assert_eq!((bytes.code(&block, 2, 7), bytes.code(&block, 2, 6)), (0xa5, 0));
    }
}
