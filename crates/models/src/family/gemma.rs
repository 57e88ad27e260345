//! Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786): embeddings times the root of their width, norms on both
//! sides of each branch whose weights lack 1, a gate of GELU. Gemma 2 bounds scores and logits; Gemma 3 has norms of
//! each head's queries and keys, and layers with a window whose rotary base is another.

use super::Family;
use crate::{
    config::{Config, Fields, Normalisation, RopeConfig, Scaling, read_pattern},
    dense::Declaration,
    error::Result,
    layer::{HeadNorms, Norms},
};
use half::bf16;
use tandem_contracts::tensor::Activation;

/// `gemma2`. A `sliding_window` counts only for the layers that `layer_types` names: where the file does not list
/// them, every layer sees everything, as in mlx-lm.
pub(crate) const GEMMA2: Family = Family {
    name: "gemma2",
    defaults: &[
        ("query_pre_attn_scalar", 144.0),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
    ],
    activation: Activation::GeluTanh,
    read: read_gemma2,
    declare: |config| between_norms(Declaration::standard(config)),
};

/// `gemma3_text`.
pub(crate) const GEMMA3_TEXT: Family = Family {
    name: "gemma3_text",
    defaults: &[
        ("hidden_size", 1152.0),
        ("num_hidden_layers", 26.0),
        ("intermediate_size", 6912.0),
        ("num_attention_heads", 4.0),
        ("num_key_value_heads", 1.0),
        ("head_dim", 256.0),
        ("rms_norm_eps", 1e-6),
        ("vocab_size", 262_144.0),
        ("rope_theta", 1e6),
        ("rope_local_base_freq", 10_000.0),
        ("query_pre_attn_scalar", 256.0),
        ("sliding_window", 512.0),
        ("sliding_window_pattern", 6.0),
        ("max_position_embeddings", 32768.0),
    ],
    read: read_gemma3,
    declare: |config| {
        between_norms(Declaration::standard(config))
            .with_blocks(|block| block.attention.head_norms = HeadNorms::Each)
    },
    ..GEMMA2
};

/// Norms before and behind each branch, under Gemma's names.
pub(super) fn between_norms(declaration: Declaration) -> Declaration {
    declaration
        .with_blocks(|block| {
            block.attention.norms = Norms::around("input_layernorm", "post_attention_layernorm");
        })
        .with_units(|unit| {
            unit.norms = Norms::around("pre_feedforward_layernorm", "post_feedforward_layernorm");
        })
}

fn read_gemma2(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    config.normalisation = Normalisation::RootMeanSquareOfOnePlus;
    config.scales.embedding = (config.hidden as f32).sqrt();
    config.scales.scores = Some(fields.required("query_pre_attn_scalar")?.sqrt().recip());
    config.scales.score_cap = fields.positive("attn_logit_softcapping")?.map(|cap| cap as f32);
    config.scales.logit_cap = fields.positive("final_logit_softcapping")?.map(|cap| cap as f32);
    config.tied = Some(true);
    Ok(())
}

fn read_gemma3(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    read_pattern(fields, &mut config.layers)?;
    config.normalisation = Normalisation::RootMeanSquareOfOnePlus;
    // Trained with the root in bf16.
    config.scales.embedding = bf16::from_f32((config.hidden as f32).sqrt()).to_f32();
    config.scales.scores = Some(fields.required("query_pre_attn_scalar")?.sqrt().recip());
    if config.window_rope.is_none() {
        let base = f64::from(fields.required("rope_local_base_freq")?);
        config.window_rope = Some(RopeConfig { base, scaling: Scaling::None, ..config.rope.clone() });
    }
    // Whether there is a head is for the files to say, as in mlx-lm.
    config.tied = None;
    Ok(())
}
