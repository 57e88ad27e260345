//! The llama family (Touvron et al., arXiv:2302.13971): pre-norm blocks of rotary attention with shared key heads
//! and a gated unit. SmolLM3 is the same with every fourth layer left unrotated.

use super::Family;
use crate::{config::read_unrotated, dense::Declaration};
use tandem_contracts::tensor::Activation;

/// `llama`.
pub(crate) const LLAMA: Family = Family {
    name: "llama",
    defaults: &[],
    activation: Activation::Silu,
    read: |_, _| Ok(()),
    declare: Declaration::standard,
};

/// `smollm3`.
pub(crate) const SMOLLM3: Family = Family {
    name: "smollm3",
    defaults: &[("no_rope_layer_interval", 4.0)],
    read: |fields, config| read_unrotated(fields, &mut config.layers),
    ..LLAMA
};
