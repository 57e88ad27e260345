//! The families that are known, by `model_type`.
//!
//! A family says what its configuration means and which graph it stands for; `ADDING.md` beside the sources tells how
//! to add one.

mod cohere;
mod gemma;
mod gemma4;
mod glm;
mod gpt_oss;
mod granite;
mod lfm2;
mod llama;
mod mamba2;
mod minicpm;
mod mistral;
mod mixtral;
mod olmo;
mod phi;
mod qwen;
mod qwen3_5;
mod qwen3_next;

use crate::{
    config::{Config, Fields},
    dense::Declaration,
    error::{Error, Result, printable},
};
use tandem_contracts::tensor::Activation;

/// One family.
#[derive(Debug)]
pub(crate) struct Family {
    /// Value of `model_type`.
    pub(crate) name: &'static str,
    /// Values of fields that its configurations may leave out.
    pub(crate) defaults: &'static [(&'static str, f64)],
    /// Activation of the gate.
    pub(crate) activation: Activation,
    /// Brings fields of its own into the configuration, of which everything else has been read.
    pub(crate) read: fn(Fields<'_>, &mut Config) -> Result<()>,
    /// The graph.
    pub(crate) declare: fn(&Config) -> Declaration,
}

static FAMILIES: [&Family; 24] = [
    &cohere::COHERE2,
    &gemma::GEMMA2,
    &gemma::GEMMA3_TEXT,
    &gemma4::GEMMA4,
    &gemma4::GEMMA4_TEXT,
    &glm::GLM4,
    &gpt_oss::GPT_OSS,
    &granite::GRANITE,
    &lfm2::LFM2,
    &llama::LLAMA,
    &mamba2::MAMBA2,
    &minicpm::MINICPM,
    &mistral::MINISTRAL3,
    &mistral::MISTRAL,
    &mixtral::MIXTRAL,
    &olmo::OLMO3,
    &phi::PHI3,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen3_5::QWEN3_5,
    &qwen3_5::QWEN3_5_MOE,
    &qwen::QWEN3_MOE,
    &qwen3_next::QWEN3_NEXT,
    &llama::SMOLLM3,
];

/// The family of a model type.
pub(crate) fn find(name: &str) -> Result<&'static Family> {
    FAMILIES.into_iter().find(|family| family.name == name).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        Error::unsupported(format!("model type is not known (known: {known}): {}", printable(name)))
    })
}

/// Model types that are known.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

#[cfg(test)]
mod tests;
