//! Qwen3.5's text model: Qwen3-Next's layers with projections apart, and in its smaller models gated units in the place
//! of experts.

use super::{
    Family,
    llama::LLAMA,
    qwen3_next::{gated, read_company, read_nets},
};
use crate::{
    config::{Config, Fields, MOST},
    dense::Declaration,
    error::Result,
};

/// `qwen3_5`.
pub(crate) const QWEN3_5: Family = Family {
    name: "qwen3_5",
    defaults: &[
        ("hidden_size", 4096.0),
        ("intermediate_size", 14336.0),
        ("num_hidden_layers", 32.0),
        ("num_attention_heads", 32.0),
        ("num_key_value_heads", 8.0),
        ("rms_norm_eps", 1e-6),
        ("vocab_size", 151_936.0),
        ("max_position_embeddings", 131_072.0),
        ("linear_num_value_heads", 64.0),
        ("linear_num_key_heads", 16.0),
        ("linear_key_head_dim", 192.0),
        ("linear_value_head_dim", 128.0),
        ("linear_conv_kernel_dim", 4.0),
        ("full_attention_interval", 4.0),
        ("rope_theta", 100_000.0),
        ("partial_rotary_factor", 0.25),
    ],
    read,
    declare,
    ..LLAMA
};

/// `qwen3_5_moe`.
pub(crate) const QWEN3_5_MOE: Family = Family { name: "qwen3_5_moe", ..QWEN3_5 };

/// Parts of names of what stands around the text model: what sees, and what guesses more than one token.
const AROUND: [&str; 3] = ["vision_tower", "model.visual", "mtp."];

/// Names of other files than MLX's: the authors', and those of a text model alone.
const RENAMED: [(&str, &str); 3] = [
    ("model.language_model.", "language_model.model."),
    ("model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
];

fn read(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    read_nets(fields, config)?;
    match fields.whole("num_experts", MOST)? {
        None | Some(0) => Ok(()),
        Some(_) => read_company(fields, config, true),
    }
}

/// The text model inside one that also sees.
fn declare(config: &Config) -> Declaration {
    let mut declaration = gated(Declaration::below(config, "language_model."), config);
    declaration.unneeded.extend(AROUND.map(str::to_owned));
    declaration.renamed = &RENAMED;
    declaration.lacks_one = |weights| weights.has_middle_axis();
    declaration
}
