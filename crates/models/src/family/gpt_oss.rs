//! gpt-oss (arXiv:2508.10925): attention with a sink for each head, every second layer with a window; experts with biases
//! and clamped gates in the place of gated units, of which a softmax over the chosen ones' scores makes shares.

use super::{Family, llama::LLAMA};
use crate::{
    config::{ExpertConfig, ExpertFields, read_pattern},
    dense::Declaration,
    layer::{ExpertGate, ExpertNames, RoutedDeclaration, RouterDeclaration, Scoring},
};

const FIELDS: ExpertFields =
    ExpertFields { count: "num_local_experts", chosen: "num_experts_per_tok", width: "intermediate_size" };

const NAMES: ExpertNames =
    ExpertNames { stacked: "mlp.experts", apart: "mlp.experts", own: ["gate_proj", "up_proj", "down_proj"] };

const ROUTER: RouterDeclaration =
    RouterDeclaration { module: "mlp.router", bias: true, scoring: Scoring::Chosen, scaled: None };

/// Bound and slope of the gates. Configurations name the bound as well, which mlx-lm does not read.
const GATE: ExpertGate = ExpertGate::Clamped { limit: 7.0, slope: 1.702 };

/// `gpt_oss`.
pub(crate) const GPT_OSS: Family = Family {
    name: "gpt_oss",
    defaults: &[
        ("num_hidden_layers", 36.0),
        ("num_local_experts", 128.0),
        ("num_experts_per_tok", 4.0),
        ("vocab_size", 201_088.0),
        ("rms_norm_eps", 1e-5),
        ("hidden_size", 2880.0),
        ("intermediate_size", 2880.0),
        ("head_dim", 64.0),
        ("num_attention_heads", 64.0),
        ("num_key_value_heads", 8.0),
        ("sliding_window", 128.0),
        ("sliding_window_pattern", 2.0),
        ("rope_theta", 150_000.0),
    ],
    read: |fields, config| {
        read_pattern(fields, &mut config.layers)?;
        config.experts = Some(ExpertConfig::read(fields, &FIELDS)?);
        config.layers.iter_mut().for_each(|layer| layer.routed = true);
        config.attention_bias = true;
        config.tied = Some(false);
        Ok(())
    },
    declare: |config| {
        Declaration::standard(config).with_blocks(|block| block.attention.sinks = true).with_experts(
            config,
            |unit, extents| {
                let mut routed = RoutedDeclaration::in_place_of(unit, extents, NAMES, ROUTER);
                (routed.experts.bias, routed.experts.gate) = (true, GATE);
                routed
            },
        )
    },
    ..LLAMA
};
