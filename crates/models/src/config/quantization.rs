//! Which weights are quantised, and how: the `quantization` block of MLX checkpoints.
//!
//! ```json
//! {"group_size": 64, "bits": 4, "mode": "affine",
//!  "model.embed_tokens": {"group_size": 32, "bits": 8}, "lm_head": false}
//! ```

use super::{field::Fields, missing};
use crate::{
    error::{Error, Result, printable},
    weights::Microscaling,
};
use serde_json::Value;
use std::collections::BTreeMap;
use tandem_contracts::tensor::Affine;

const MXFP4: &str = "mxfp4";

/// How a weight's codes become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `scale * code + bias`; stays as it is on the device.
    Affine(Affine),
    /// Block-scaled small floats; decoded on load.
    Microscaling(Microscaling),
}

/// The schemes of all weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantization {
    default: Option<Scheme>,
    exceptions: BTreeMap<String, Option<Scheme>>,
}

impl Quantization {
    pub(super) fn read(fields: Fields<'_>) -> Result<Self> {
        let own = fields.object("quantization")?;
        let Some(block) = own.map_or_else(|| fields.object("quantization_config"), |own| Ok(Some(own)))?
        else {
            return Ok(Self::default());
        };
        if own.is_none()
            && let Some(method) = block.text("quant_method")?
        {
            if method == MXFP4 {
                // gpt-oss by its authors; weights without scales are floats.
                let default = Some(Scheme::Microscaling(Microscaling::Mxfp4));
                return Ok(Self { default, ..Self::default() });
            }
            return Err(Error::unsupported(format!(
                "quantisation method is not known: {}",
                printable(method)
            )));
        }
        let default = scheme(block)?;
        let mut exceptions = BTreeMap::new();
        for (path, value) in block.0 {
            let exception = match value {
                Value::Object(object) => Some(scheme(Fields(object)).map_err(|error| error.of_tensor(path))?),
                Value::Bool(true) => Some(default),
                Value::Bool(false) => None,
                _ => continue,
            };
            exceptions.insert(path.clone(), exception);
        }
        Ok(Self { default: Some(default), exceptions })
    }

    /// The scheme of the weight at a module's path, if it is quantised at all.
    pub fn of(&self, path: &str) -> Option<Scheme> {
        self.exceptions.get(path).copied().unwrap_or(self.default)
    }
}

fn scheme(block: Fields<'_>) -> Result<Scheme> {
    let number = |key, default: Option<usize>| {
        let given = block.count(key, 1 << 10)?;
        given.or(default).ok_or_else(|| missing(&format!("quantization.{key}")))
    };
    let mode = block.text("mode")?.unwrap_or("affine");
    let format = match mode {
        "affine" => {
            let (bits, group) = (number("bits", None)?, number("group_size", None)?);
            let affine = u8::try_from(bits).ok().zip(u16::try_from(group).ok());
            return affine
                .map(|(bits, group)| Affine { bits, group })
                .filter(|affine| affine.is_supported())
                .map(Scheme::Affine)
                .ok_or_else(|| {
                    let known = "affine takes 2, 3, 4, 5, 6, 8 bits and groups of 32, 64, 128";
                    Error::unsupported(format!("{known}, got: {bits} bits, group {group}"))
                });
        }
        "mxfp8" => Microscaling::Mxfp8,
        MXFP4 => Microscaling::Mxfp4,
        "nvfp4" => Microscaling::Nvfp4,
        other => {
            let known = "affine, mxfp8, mxfp4 and nvfp4";
            return Err(Error::unsupported(format!(
                "quantisation modes are {known}, got: {}",
                printable(other)
            )));
        }
    };
    let (bits, group) = (number("bits", Some(format.bits()))?, number("group_size", Some(format.group()))?);
    if (bits, group) != (format.bits(), format.group()) {
        let needed = format!("{} bits and groups of {}", format.bits(), format.group());
        return Err(Error::config(format!("{mode} has {needed}, got: {bits} bits, group {group}")));
    }
    Ok(Scheme::Microscaling(format))
}
