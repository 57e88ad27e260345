//! Affine codes as they are typed: bits, and perhaps the group behind them, `4g32`.

use std::{fmt, str::FromStr};
use tandem_contracts::tensor::Affine;

/// `--quantize`: the codes that weights become, if they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantize(pub(crate) Option<Affine>);

/// A text that names no such codes.
#[derive(Debug)]
pub(crate) struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("takes off; 8 or 4, with g32, g64 or g128 behind it")
    }
}

impl std::error::Error for Unknown {}

impl FromStr for Quantize {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "off" => Ok(Self(None)),
            _ => affine(text).map(|affine| Self(Some(affine))).ok_or(Unknown),
        }
    }
}

/// Codes of 8 or 4 bits in groups of 64, or of as many as is said.
pub(super) fn affine(text: &str) -> Option<Affine> {
    let (bits, group) = text.split_once('g').unwrap_or((text, "64"));
    let bits = ["8", "4"].contains(&bits).then(|| bits.parse().ok())??;
    let group = ["32", "64", "128"].contains(&group).then(|| group.parse().ok())??;
    Some(Affine { bits, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_may_have_a_group_behind_them() {
        let codes = |bits, group| Quantize(Some(Affine { bits, group }));
        for (text, expected) in [
            ("off", Quantize(None)),
            ("8", codes(8, 64)),
            ("4", codes(4, 64)),
            ("4g32", codes(4, 32)),
            ("8g128", codes(8, 128)),
        ] {
            assert_eq!(text.parse::<Quantize>().expect(text), expected);
        }
        for text in ["", "3", "16", "8g", "8g33", "g64", "+8", "8g+64", "08", "on", "k8v3", "4g32g64"] {
            assert!(text.parse::<Quantize>().is_err(), "{text}");
        }
    }
}
