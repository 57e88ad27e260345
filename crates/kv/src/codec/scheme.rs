//! Formats of a whole layer, and the bytes that its tokens take.

use super::Format;
use crate::LayerShape;
use std::fmt;
use tandem_contracts::tensor::{Affine, Dtype, Result};

/// How one layer's keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// Format of the keys.
    pub keys: Format,
    /// Format of the values.
    pub values: Format,
}

impl Scheme {
    /// Floats as they are.
    pub const fn plain(dtype: Dtype) -> Self {
        Self { keys: Format::Plain(dtype), values: Format::Plain(dtype) }
    }

    /// Affine codes for keys and values, with scales and biases of `dtype`.
    pub const fn affine(affine: Affine, dtype: Dtype) -> Self {
        let format = Format::Affine { affine, dtype };
        Self { keys: format, values: format }
    }

    /// TurboQuant with so many bits for the codes of keys and of values.
    pub const fn turbo(key_bits: u8, value_bits: u8) -> Self {
        Self { keys: Format::TurboKeys { bits: key_bits }, values: Format::TurboValues { bits: value_bits } }
    }

    /// Checks that the layer's heads can be stored so.
    ///
    /// # Errors
    /// They cannot; the message says what could.
    pub fn check(self, layer: LayerShape) -> Result<()> {
        self.keys.check(layer.key_width)?;
        self.values.check(layer.value_width)
    }

    /// Bytes for one token of one layer; saturates, so that an absurd width is merely too large.
    ///
    /// # Errors
    /// As [`Scheme::check`].
    pub fn bytes_per_token(self, layer: LayerShape) -> Result<usize> {
        let head = self.keys.bytes(layer.key_width)?.saturating_add(self.values.bytes(layer.value_width)?);
        Ok(head.saturating_mul(layer.heads))
    }

    /// Whether keys or values are stored by TurboQuant.
    pub const fn is_turbo(self) -> bool {
        matches!(self.keys, Format::TurboKeys { .. } | Format::TurboValues { .. })
            || matches!(self.values, Format::TurboKeys { .. } | Format::TurboValues { .. })
    }

    /// Whether keys and values are stored as they are.
    pub const fn is_plain(self) -> bool {
        self.keys.is_plain() && self.values.is_plain()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.keys, self.values) {
            (Format::TurboKeys { bits: keys }, Format::TurboValues { bits: values }) => {
                write!(f, "TurboQuant k{keys}v{values}")
            }
            (keys, values) if keys == values => write!(f, "{keys}"),
            (keys, values) => write!(f, "{keys} and {values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 64 };

    fn affine(bits: u8) -> Scheme {
        Scheme::affine(Affine { bits, group: 64 }, Dtype::Bf16)
    }

    #[test]
    fn bytes_of_a_token_by_hand() {
        let bytes = |scheme: Scheme| scheme.bytes_per_token(LAYER).unwrap();
        assert_eq!(bytes(Scheme::plain(Dtype::Bf16)), 3 * 2 * 128);
        assert_eq!(bytes(affine(8)), 3 * 2 * (64 + 4));
        assert_eq!(bytes(affine(4)), 3 * 2 * (32 + 4));
        assert_eq!(bytes(Scheme::turbo(8, 3)), 3 * (64 + 4 + 4 + 24 + 4));
        assert_eq!(bytes(Scheme::turbo(4, 3)), 3 * (32 + 4 + 4 + 24 + 4));
    }

    #[test]
    fn heads_of_keys_and_values_may_differ() {
        let layer = LayerShape { value_width: 128, ..LAYER };
        assert_eq!(Scheme::plain(Dtype::F32).bytes_per_token(layer).unwrap(), 3 * 4 * (64 + 128));
        assert!(Scheme::turbo(8, 3).check(LayerShape { value_width: 96, ..LAYER }).is_err());
    }

    #[test]
    fn names_are_short() {
        assert_eq!(Scheme::turbo(8, 3).to_string(), "TurboQuant k8v3");
        assert_eq!(Scheme::plain(Dtype::Bf16).to_string(), "Bf16");
        assert_eq!(affine(4).to_string(), "affine 4 bits, groups of 64, Bf16 scales");
    }
}
