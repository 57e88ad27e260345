//! Qwen2 (arXiv:2407.10671): llama's graph with biases of queries, keys and values. Qwen3 (arXiv:2505.09388) has norms
//! of each head's queries and keys instead.

use super::{Family, llama::LLAMA};
use crate::{dense::Declaration, layer::HeadNorms};

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
