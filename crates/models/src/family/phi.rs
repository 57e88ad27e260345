//! Phi-3 (arXiv:2404.14219): llama's graph, with queries, keys and values stored as one matrix, and gate and up as
//! another.

use super::{Family, llama::LLAMA};
use crate::{dense::Declaration, layer::Stored};

/// `phi3`. Its `sliding_window` is not used, as in mlx-lm.
pub(crate) const PHI3: Family = Family {
    name: "phi3",
    defaults: &[("max_position_embeddings", 131_072.0), ("original_max_position_embeddings", 4096.0)],
    declare: |config| {
        Declaration::standard(config)
            .with_blocks(|block| block.attention.stored = Stored::Joined)
            .with_units(|unit| unit.stored = Stored::Joined)
    },
    ..LLAMA
};
