//! Mixtral (arXiv:2401.04088): llama's graph with experts in the place of gated units, and shares that are a softmax over
//! the chosen experts' scores.

use super::{Family, llama::LLAMA};
use crate::{
    config::{ExpertConfig, ExpertFields, Scaling},
    dense::Declaration,
    layer::{ExpertNames, RoutedDeclaration, RouterDeclaration, Scoring},
};

const FIELDS: ExpertFields =
    ExpertFields { count: "num_local_experts", chosen: "num_experts_per_tok", width: "intermediate_size" };

const NAMES: ExpertNames = ExpertNames {
    stacked: "block_sparse_moe.switch_mlp",
    apart: "block_sparse_moe.experts",
    own: ["w1", "w3", "w2"],
};

const ROUTER: RouterDeclaration = RouterDeclaration {
    module: "block_sparse_moe.gate",
    bias: false,
    scoring: Scoring::Chosen,
    scaled: None,
};

/// `mixtral`. Its `rope_scaling` is not used, as in mlx-lm.
pub(crate) const MIXTRAL: Family = Family {
    name: "mixtral",
    defaults: &[
        ("hidden_size", 4096.0),
        ("intermediate_size", 14336.0),
        ("num_attention_heads", 32.0),
        ("num_key_value_heads", 8.0),
        ("num_hidden_layers", 32.0),
        ("num_local_experts", 8.0),
        ("num_experts_per_tok", 2.0),
        ("rms_norm_eps", 1e-5),
        ("rope_theta", 1e6),
        ("vocab_size", 32000.0),
    ],
    read: |fields, config| {
        config.experts = Some(ExpertConfig::read(fields, &FIELDS)?);
        config.layers.iter_mut().for_each(|layer| layer.routed = true);
        config.rope.scaling = Scaling::None;
        config.tied = Some(config.tied.unwrap_or(false));
        Ok(())
    },
    declare: |config| {
        Declaration::standard(config).with_experts(config, |unit, extents| {
            RoutedDeclaration::in_place_of(unit, extents, NAMES, ROUTER)
        })
    },
    ..LLAMA
};
