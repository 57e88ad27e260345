//! `kv_config.json`: how each layer's keys and values are best stored, as mlx-optiq (on PyPI) measures and writes it.
//!
//! ```json
//! [{"layer_idx": 3, "bits": 8, "group_size": 64}, {"layer_idx": 7, "bits": 4}]
//! ```

use super::field::Fields;
use crate::error::{Error, Result};
use serde_json::Value;
use tandem_contracts::{model::Code, tensor::Affine};

/// More layers than any model has.
const MOST_LAYERS: u64 = 1 << 16;

/// The layers of a `kv_config.json` and their codes, in order of the layers. Layers of 0 bits are left plain; a group has 64 elements unless
/// the file says otherwise.
///
/// # Errors
/// Anything else than a list of such entries, or a layer that is named twice. Whether a model can store its layers so
/// is found out when it is asked to.
pub fn layer_codes(json: &[u8]) -> Result<Vec<(usize, Code)>> {
    let value: Value = serde_json::from_slice(json).map_err(|error| Error::config(error.to_string()))?;
    let list = value.as_array().ok_or_else(|| Error::config("must be a list of layers"))?;
    let mut codes: Vec<(usize, Code)> = Vec::new();
    for entry in list {
        let fields = Fields(entry.as_object().ok_or_else(|| Error::config("each layer must be an object"))?);
        let needed = |key: &str| Error::config(format!("{key} is missing in a layer"));
        let layer = fields.whole("layer_idx", MOST_LAYERS)?.ok_or_else(|| needed("layer_idx"))?;
        let bits = fields.whole("bits", 16)?.ok_or_else(|| needed("bits"))?;
        let group = fields.count("group_size", 1 << 12)?.unwrap_or(64);
        if codes.iter().any(|(named, _)| *named == layer) {
            return Err(Error::config(format!("layer is named twice: {layer}")));
        }
        if bits > 0 {
            codes.push((layer, Code::Affine(Affine { bits: bits as u8, group: group as u16 })));
        }
    }
    codes.sort_by_key(|(layer, _)| *layer);
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affine(bits: u8, group: u16) -> Code {
        Code::Affine(Affine { bits, group })
    }

    #[test]
    fn layers_come_in_their_order() {
        let json = br#"[{"layer_idx": 7, "bits": 4}, {"layer_idx": 0, "bits": 8, "group_size": 32},
                        {"layer_idx": 2, "bits": 0}]"#;
        assert_eq!(layer_codes(json).unwrap(), [(0, affine(8, 32)), (7, affine(4, 64))]);
        assert_eq!(layer_codes(b"[]").unwrap(), []);
    }

    #[test]
    fn malformed_files_are_refused() {
        for json in [
            "",
            "{}",
            "[3]",
            r#"[{"bits": 4}]"#,
            r#"[{"layer_idx": 1}]"#,
            r#"[{"layer_idx": -1, "bits": 4}]"#,
            r#"[{"layer_idx": 1, "bits": 4.5}]"#,
            r#"[{"layer_idx": 1, "bits": 4, "group_size": 0}]"#,
            r#"[{"layer_idx": 99999999999, "bits": 4}]"#,
            r#"[{"layer_idx": 1, "bits": 4}, {"layer_idx": 1, "bits": 0}]"#,
        ] {
            assert!(layer_codes(json.as_bytes()).is_err(), "{json}");
        }
    }
}
