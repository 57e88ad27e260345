//! Mamba-2 (Dao and Gu, arXiv:2405.21060): blocks of a selective state space and nothing else.
//!
//! The norms of blocks have the file's epsilon, as in the authors' code; mlx-lm gives them 1e-5 whatever the file says,
//! which is what every file says.

use super::{Family, llama::LLAMA};
use crate::{
    config::{RecurrenceConfig, SpaceConfig},
    dense::{Declaration, Flow},
    layer::Norms,
};

/// `mamba2`.
pub(crate) const MAMBA2: Family = Family {
    name: "mamba2",
    defaults: &[
        // There is neither attention nor a gated unit that these could be extents of.
        ("num_attention_heads", 1.0),
        ("num_key_value_heads", 1.0),
        ("intermediate_size", 1.0),
        // Nothing grows with a row.
        ("max_position_embeddings", 1_048_576.0),
    ],
    read: |fields, config| {
        config.norm_epsilon = fields.required("layer_norm_epsilon")?;
        config.recurrence = Some(RecurrenceConfig::Space(SpaceConfig::read(fields)?));
        config.layers.iter_mut().for_each(|layer| layer.recurrent = true);
        Ok(())
    },
    declare: |config| {
        let mut declaration = Declaration::standard(config);
        declaration.embedding = "backbone.embeddings".to_owned();
        declaration.norm = "backbone.norm_f".to_owned();
        for (index, block) in declaration.blocks.iter_mut().enumerate() {
            block.path = format!("backbone.layers.{index}");
            block.flow = Flow::Alone;
            block.mix_behind(Norms::before("norm"));
        }
        declaration
    },
    ..LLAMA
};
