//! OLMo 3 (Ai2): norms behind each branch, norms of queries and keys over all heads together, and three layers in four
//! with a window and without the scaling of rotary positions.

use super::{Family, llama::LLAMA};
use crate::{
    config::{RopeConfig, Scaling, read_pattern},
    dense::Declaration,
    layer::{HeadNorms, Norms},
};

/// `olmo3`.
pub(crate) const OLMO3: Family = Family {
    name: "olmo3",
    defaults: &[("sliding_window_pattern", 4.0)],
    read: |fields, config| {
        read_pattern(fields, &mut config.layers)?;
        config.window_rope = Some(RopeConfig { scaling: Scaling::None, ..config.rope.clone() });
        Ok(())
    },
    declare: |config| {
        Declaration::standard(config)
            .with_blocks(|block| {
                block.attention.norms = Norms::after("post_attention_layernorm");
                block.attention.head_norms = HeadNorms::All;
            })
            .with_units(|unit| unit.norms = Norms::after("post_feedforward_layernorm"))
    },
    ..LLAMA
};
