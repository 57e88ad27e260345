//! The llama family (Touvron et al., arXiv:2302.13971): pre-norm blocks of rotary attention with shared key heads
//! and a gated unit. SmolLM3 is the same with every fourth layer left unrotated.

use crate::{
    config::Config,
    dense::{BlockDeclaration, Declaration},
    family::Family,
    layer::{AttentionDeclaration, MlpDeclaration},
};
use tandem_contracts::tensor::Activation;

/// `llama`.
pub(crate) const LLAMA: Family = Family { name: "llama", unrotated_interval: None, declare };

/// `smollm3`.
pub(crate) const SMOLLM3: Family = Family { name: "smollm3", unrotated_interval: Some(4), declare };

fn declare(config: &Config) -> Declaration {
    let block = |(index, layer): (usize, &crate::config::LayerConfig)| {
        let path = format!("model.layers.{index}");
        BlockDeclaration {
            attention: AttentionDeclaration {
                norm: format!("{path}.input_layernorm"),
                path: format!("{path}.self_attn"),
                heads: config.heads,
                shared_heads: config.shared_heads,
                width: config.head_width,
                bias: config.attention_bias,
                window: layer.window,
                rotary: layer.rotary,
                scale: (config.head_width as f32).sqrt().recip(),
            },
            mlp: MlpDeclaration {
                norm: format!("{path}.post_attention_layernorm"),
                path: format!("{path}.mlp"),
                width: config.intermediate,
                bias: config.mlp_bias,
                activation: Activation::Silu,
            },
        }
    };
    Declaration {
        embedding: "model.embed_tokens",
        norm: "model.norm",
        head: "lm_head",
        blocks: config.layers.iter().enumerate().map(block).collect(),
        // Old checkpoints store what follows from the configuration.
        unneeded: &["self_attn.rotary_emb.inv_freq", "rope_freqs.weight"],
    }
}
