//! GLM-4 (arXiv:2406.12793) of 0414: norms on both sides of each branch, half of each head rotated in neighbouring
//! pairs, gate and up stored as one matrix.

use super::{Family, llama::LLAMA};
use crate::{
    dense::Declaration,
    layer::{Norms, Stored},
};

/// `glm4`.
pub(crate) const GLM4: Family = Family {
    name: "glm4",
    defaults: &[("max_position_embeddings", 32768.0)],
    read: |fields, config| {
        config.rope.interleaved = fields.flag("rope_traditional")?.unwrap_or(true);
        config.tied = Some(false);
        Ok(())
    },
    declare: |config| {
        Declaration::standard(config)
            .with_blocks(|block| {
                block.attention.norms = Norms::around("input_layernorm", "post_self_attn_layernorm");
                block.attention.output_bias = false;
            })
            .with_units(|unit| {
                unit.norms = Norms::around("post_attention_layernorm", "post_mlp_layernorm");
                unit.stored = Stored::Joined;
            })
    },
    ..LLAMA
};
