//! Qwen2 (arXiv:2407.10671): llama's graph with biases of queries, keys and values. Qwen3 (arXiv:2505.09388) has norms
//! of each head's queries and keys instead, and in its larger models experts in the place of gated units.

use super::{Family, llama::LLAMA};
use crate::{
    config::{Config, ExpertConfig, ExpertFields, Fields, Scaling, read_routed},
    dense::Declaration,
    error::Result,
    layer::{ExpertNames, HeadNorms, MlpDeclaration, RoutedDeclaration, RouterDeclaration, Scoring},
};

/// `qwen2`.
pub(crate) const QWEN2: Family = Family {
    name: "qwen2",
    defaults: &[("rope_theta", 1e6), ("max_position_embeddings", 32768.0)],
    declare: |config| {
        Declaration::standard(config).with_blocks(|block| {
            block.attention.input_bias = true;
            block.attention.output_bias = false;
        })
    },
    ..LLAMA
};

/// `qwen3`.
pub(crate) const QWEN3: Family = Family {
    name: "qwen3",
    declare: |config| {
        Declaration::standard(config).with_blocks(|block| block.attention.head_norms = HeadNorms::Each)
    },
    ..LLAMA
};

const EXPERT_FIELDS: ExpertFields =
    ExpertFields { count: "num_experts", chosen: "num_experts_per_tok", width: "moe_intermediate_size" };

const EXPERT_NAMES: ExpertNames = ExpertNames {
    stacked: "mlp.switch_mlp",
    apart: "mlp.experts",
    own: ["gate_proj", "up_proj", "down_proj"],
};

/// `qwen3_moe`. Its `rope_scaling` is not used, as in mlx-lm.
pub(crate) const QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    read: |fields, config| {
        read_experts(fields, config, false)?;
        config.rope.scaling = Scaling::None;
        Ok(())
    },
    declare: |config| (QWEN3.declare)(config).with_experts(config, experts),
    ..QWEN3
};

/// Reads the experts of Qwen's models, and which layers have them; `normalised` stands in for a missing
/// `norm_topk_prob`.
pub(super) fn read_experts(fields: Fields<'_>, config: &mut Config, normalised: bool) -> Result<()> {
    let normalised = fields.flag("norm_topk_prob")?.unwrap_or(normalised);
    config.experts = Some(ExpertConfig { normalised, ..ExpertConfig::read(fields, &EXPERT_FIELDS)? });
    read_routed(fields, &mut config.layers)
}

/// Experts in the place of a gated unit, as Qwen's models have them: shares of a softmax over all.
pub(super) fn experts(unit: &MlpDeclaration, extents: ExpertConfig) -> RoutedDeclaration {
    let scoring = Scoring::All { normalised: extents.normalised };
    let router = RouterDeclaration { module: "mlp.gate", bias: false, scoring, scaled: None };
    RoutedDeclaration::in_place_of(unit, extents, EXPERT_NAMES, router)
}
