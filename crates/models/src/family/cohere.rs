//! Command R7B (Cohere): attention and the gated unit side by side under one norm of mean and variance; layers with a
//! window are rotated, in neighbouring pairs, and every fourth sees everything and is not.

use super::{Family, llama::LLAMA};
use crate::{
    config::{Config, Fields, Normalisation, read_pattern},
    dense::{Declaration, Flow},
    error::{Error, Result},
    layer::Norms,
};

/// `cohere2`.
pub(crate) const COHERE2: Family = Family {
    name: "cohere2",
    defaults: &[
        ("head_dim", 128.0),
        ("rope_theta", 50_000.0),
        ("layer_norm_eps", 1e-5),
        ("logit_scale", 0.0625),
        ("sliding_window", 4096.0),
        ("sliding_window_pattern", 4.0),
    ],
    read,
    declare: |config| {
        Declaration::standard(config)
            .with_blocks(|block| block.flow = Flow::Parallel)
            .with_units(|unit| unit.norms = Norms::before("input_layernorm"))
    },
    ..LLAMA
};

fn read(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    if fields.flag("layer_norm_bias")? == Some(true) {
        return Err(Error::unsupported("norms with biases are not known: layer_norm_bias"));
    }
    read_pattern(fields, &mut config.layers)?;
    config.layers.iter_mut().for_each(|layer| layer.rotary = layer.window.is_some());
    config.normalisation = Normalisation::MeanAndVariance;
    config.rope.interleaved = true;
    config.scales.logits = fields.required("logit_scale")?;
    config.tied = Some(true);
    Ok(())
}
