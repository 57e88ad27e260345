//! How keys or values are stored, as a value: what there is to store, and how many bytes it takes.

use smallvec::{SmallVec, smallvec};
use std::fmt;
use tandem_contracts::tensor::{Affine, Dtype, Error, ErrorKind, Result, turbo};

/// Widest head: far beyond any model's, and its bytes are countable.
const WIDEST: usize = 1 << 20;
/// Head widths that TurboQuant takes.
const TURBO_WIDTHS: [usize; 4] = [64, 128, 256, 512];
const TURBO_KEY_BITS: [u8; 4] = [2, 4, 5, 8];
const TURBO_VALUE_BITS: [u8; 5] = [2, 3, 4, 5, 8];

/// How the keys, or the values, of a layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Floats as they are, in this dtype.
    Plain(Dtype),
    /// Affine codes in MLX's layout: 4 or 8 bits, groups of 32, 64 or 128 along the head.
    Affine {
        /// Bits and group.
        affine: Affine,
        /// Dtype of scales and biases; values are rounded to it before they are encoded.
        dtype: Dtype,
    },
    /// TurboQuant's keys: affine with a whole zero point, in groups of 32; 2, 4, 5 or 8 bits.
    TurboKeys {
        /// Bits of a code.
        bits: u8,
    },
    /// TurboQuant's values: rotated, scaled to unit variance in groups of 32 and rounded to a Lloyd-Max codebook;
    /// 2, 3, 4, 5 or 8 bits.
    TurboValues {
        /// Bits of a code.
        bits: u8,
    },
}

/// One tensor of those that a format makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its dtype.
    pub dtype: Dtype,
    /// Extent of its last axis.
    pub extent: usize,
}

impl Field {
    /// Bytes for one head of one token.
    pub const fn bytes(self) -> usize {
        self.dtype.size() * self.extent
    }
}

/// The tensors that a format makes.
pub type Fields = SmallVec<[Field; 3]>;

impl Format {
    /// Checks that the format exists and takes heads of `width` elements.
    ///
    /// # Errors
    /// It does not; the message says what would do.
    pub fn check(self, width: usize) -> Result<()> {
        let refuse = |kind, needed: &str| Err(Error::new(kind, "codec", format!("{needed}, got: {self}")));
        match self {
            _ if !(1..=WIDEST).contains(&width) => {
                Err(Error::shape("codec", format!("a head has 1 to {WIDEST} elements, got: {width}")))
            }
            Self::Plain(dtype) | Self::Affine { dtype, .. } if !dtype.is_float() => {
                refuse(ErrorKind::Dtype, "needs floats")
            }
            Self::Plain(_) => Ok(()),
            Self::Affine { affine, .. } => {
                if !(matches!(affine.bits, 4 | 8) && matches!(affine.group, 32 | 64 | 128)) {
                    return refuse(
                        ErrorKind::Unsupported,
                        "affine takes 4 or 8 bits in groups of 32, 64 or 128",
                    );
                }
                if !width.is_multiple_of(affine.group.into()) {
                    return refuse(ErrorKind::Shape, &format!("heads of {width} are not whole groups"));
                }
                Ok(())
            }
            Self::TurboKeys { bits } if !TURBO_KEY_BITS.contains(&bits) => {
                refuse(ErrorKind::Unsupported, &format!("takes bits of {TURBO_KEY_BITS:?}"))
            }
            Self::TurboValues { bits } if !TURBO_VALUE_BITS.contains(&bits) => {
                refuse(ErrorKind::Unsupported, &format!("takes bits of {TURBO_VALUE_BITS:?}"))
            }
            Self::TurboKeys { .. } | Self::TurboValues { .. } if !TURBO_WIDTHS.contains(&width) => Err(
                Error::shape("codec", format!("{self} takes head widths of {TURBO_WIDTHS:?}, got: {width}")),
            ),
            Self::TurboKeys { .. } | Self::TurboValues { .. } => Ok(()),
        }
    }

    /// The tensors that a head of `width` elements becomes, in their fixed order.
    ///
    /// | format | fields |
    /// |---|---|
    /// | plain | elements |
    /// | affine | codes as `u32` words, scales, biases |
    /// | TurboQuant keys | codes (signed bytes at 8 bits, else packed), scales, zero points |
    /// | TurboQuant values | codes (bytes at 8 bits, else packed), scales |
    ///
    /// # Errors
    /// As [`Format::check`].
    pub fn fields(self, width: usize) -> Result<Fields> {
        self.check(width)?;
        let field = |dtype, extent| Field { dtype, extent };
        let turbo_scales = field(Dtype::F16, width / turbo::GROUP);
        Ok(match self {
            Self::Plain(dtype) => smallvec![field(dtype, width)],
            Self::Affine { affine, dtype } => {
                let scales = field(dtype, affine.groups(width));
                smallvec![field(Dtype::U32, affine.words(width)), scales, scales]
            }
            Self::TurboKeys { bits: 8 } => smallvec![field(Dtype::I8, width), turbo_scales, turbo_scales],
            Self::TurboKeys { bits } => {
                smallvec![field(Dtype::U8, width * usize::from(bits) / 8), turbo_scales, turbo_scales]
            }
            Self::TurboValues { bits } => {
                smallvec![field(Dtype::U8, width * usize::from(bits) / 8), turbo_scales]
            }
        })
    }

    /// Bytes for one head of one token.
    ///
    /// # Errors
    /// As [`Format::check`].
    pub fn bytes(self, width: usize) -> Result<usize> {
        Ok(self.fields(width)?.into_iter().map(Field::bytes).sum())
    }

    /// Whether elements are stored as they are.
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => write!(f, "{dtype:?}"),
            Self::Affine { affine: Affine { bits, group }, dtype } => {
                write!(f, "affine {bits} bits, groups of {group}, {dtype:?} scales")
            }
            Self::TurboKeys { bits } => write!(f, "TurboQuant keys of {bits} bits"),
            Self::TurboValues { bits } => write!(f, "TurboQuant values of {bits} bits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_BITS: std::ops::RangeInclusive<u8> = 0..=9;

    fn affine(bits: u8, group: u16) -> Format {
        Format::Affine { affine: Affine { bits, group }, dtype: Dtype::Bf16 }
    }

    #[test]
    fn bytes_of_a_head_by_hand() {
        assert_eq!(Format::Plain(Dtype::Bf16).bytes(64).unwrap(), 128);
        assert_eq!(Format::Plain(Dtype::F32).bytes(80).unwrap(), 320);
        // Codes, then scales and biases of 2 bytes for each group.
        assert_eq!(affine(8, 64).bytes(128).unwrap(), 128 + 2 * 4);
        assert_eq!(affine(4, 32).bytes(128).unwrap(), 64 + 4 * 4);
        // k8v3 at 128: codes, scales, zeros; codes, scales.
        assert_eq!(Format::TurboKeys { bits: 8 }.bytes(128).unwrap(), 128 + 8 + 8);
        assert_eq!(Format::TurboValues { bits: 3 }.bytes(128).unwrap(), 48 + 8);
        assert_eq!(Format::TurboKeys { bits: 5 }.bytes(64).unwrap(), 40 + 4 + 4);
    }

    #[test]
    fn only_listed_bits_are_taken() {
        let taken = |format: fn(u8) -> Format| {
            EVERY_BITS.filter(|&bits| format(bits).check(128).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(taken(|bits| affine(bits, 64)), [4, 8]);
        assert_eq!(taken(|bits| Format::TurboKeys { bits }), [2, 4, 5, 8]);
        assert_eq!(taken(|bits| Format::TurboValues { bits }), [2, 3, 4, 5, 8]);
    }

    #[test]
    fn only_listed_widths_are_taken() {
        let taken =
            |format: Format| (0..1100).filter(|&width| format.check(width).is_ok()).collect::<Vec<_>>();
        assert_eq!(taken(Format::TurboKeys { bits: 8 }), [64, 128, 256, 512]);
        assert_eq!(taken(Format::TurboValues { bits: 3 }), [64, 128, 256, 512]);
        assert_eq!(taken(affine(4, 128)), [128, 256, 384, 512, 640, 768, 896, 1024]);
        assert_eq!(taken(Format::Plain(Dtype::F16)).len(), 1099);
    }

    #[test]
    fn refusals_say_what_they_got() {
        let kind = |format: Format, width| format.check(width).map_err(|error| error.kind());
        assert_eq!(kind(Format::Plain(Dtype::I32), 64), Err(ErrorKind::Dtype));
        assert_eq!(kind(affine(8, 16), 64), Err(ErrorKind::Unsupported));
        assert_eq!(kind(affine(8, 64), 96), Err(ErrorKind::Shape));
        let error = Format::TurboKeys { bits: 3 }.check(64).unwrap_err();
        assert_eq!(error.to_string(), "codec: takes bits of [2, 4, 5, 8], got: TurboQuant keys of 3 bits");
    }
}
