//! `--kv-quant` and `--kv-layout`: how keys and values are kept, as it is typed.

use super::quantize::affine;
use std::{fmt, path::PathBuf, str::FromStr};
use tandem_contracts::{model::Code, tensor::Affine};

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KvQuant {
    /// As the model computes them.
    Off,
    /// All layers by one code.
    Code(Code),
    /// By the `kv_config.json` in the model's folder.
    Config,
    /// By such a file elsewhere.
    File(PathBuf),
}

/// How the caches of live rows lie beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KvLayout {
    /// Each has its own.
    Ragged,
    /// They share one that gives each as much as the longest has.
    Padded,
    /// They take blocks of 256 tokens out of a pool as they grow.
    Paged,
}

/// A text that names no way to keep keys and values.
#[derive(Debug)]
pub(crate) struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "takes off; 8 or 4, with g32, g64 or g128 behind it; k8v3 (keys of 2, 4, 5 or 8 bits, values of 2, 3, 4, 5 \
             or 8); config; or a file ending in .json",
        )
    }
}

impl std::error::Error for Unknown {}

impl fmt::Display for KvQuant {
    /// As it is typed, in its shortest form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Code(Code::Affine(Affine { bits, group: 64 })) => write!(f, "{bits}"),
            Self::Code(Code::Affine(Affine { bits, group })) => write!(f, "{bits}g{group}"),
            Self::Code(Code::Turbo { keys, values }) => write!(f, "k{keys}v{values}"),
            Self::Config => f.write_str("config"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for KvQuant {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "off" => return Ok(Self::Off),
            "config" => return Ok(Self::Config),
            file if file.ends_with(".json") => return Ok(Self::File(file.into())),
            _ => {}
        }
        let number = |text: &str, known: &[u8]| {
            text.parse::<u8>().ok().filter(|number| known.contains(number)).ok_or(Unknown)
        };
        if let Some((keys, values)) = text.strip_prefix('k').and_then(|rest| rest.split_once('v')) {
            let (keys, values) = (number(keys, &[2, 4, 5, 8])?, number(values, &[2, 3, 4, 5, 8])?);
            return Ok(Self::Code(Code::Turbo { keys, values }));
        }
        affine(text).map(|affine| Self::Code(Code::Affine(affine))).ok_or(Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let affine = |bits, group| KvQuant::Code(Code::Affine(Affine { bits, group }));
        for (text, expected) in [
            ("off", KvQuant::Off),
            ("config", KvQuant::Config),
            ("my/kv_config.json", KvQuant::File("my/kv_config.json".into())),
            ("8", affine(8, 64)),
            ("4g128", affine(4, 128)),
            ("k8v3", KvQuant::Code(Code::Turbo { keys: 8, values: 3 })),
        ] {
            assert_eq!(text.parse::<KvQuant>().expect(text), expected);
            assert_eq!(expected.to_string(), text);
        }
    }

    #[test]
    fn the_usual_group_has_no_name() {
        assert_eq!("8g64".parse::<KvQuant>().expect("bits and a group").to_string(), "8");
    }

    #[test]
    fn nothing_else_is() {
        for text in ["", "3", "8g", "8g33", "g64", "k8", "k3v3", "k8v", "q8", "16", "on"] {
            assert!(text.parse::<KvQuant>().is_err(), "{text}");
        }
    }
}
