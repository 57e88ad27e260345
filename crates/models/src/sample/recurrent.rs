//! Small models whose layers carry states.

use super::{Draw, Floats, VOCABULARY};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A family with such layers, and a model of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recurrent {
    pub(crate) config: fn() -> Value,
    pub(crate) weights: fn() -> BTreeMap<String, Floats>,
    /// Layers that carry a state, of how many.
    pub(crate) layers: (usize, usize),
}

/// One of each family.
pub(crate) const RECURRENT: [Recurrent; 3] = [
    Recurrent { config: state_space, weights: state_space_weights, layers: (2, 2) },
    Recurrent { config: short, weights: short_weights, layers: (2, 3) },
    Recurrent { config: delta, weights: delta_weights, layers: (2, 3) },
];

const HIDDEN: usize = 32;

fn with_common(own: Value) -> Value {
    let mut config = json!({ "hidden_size": HIDDEN, "intermediate_size": 24, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": VOCABULARY, "max_position_embeddings": 40, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true });
    config.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    config
}

fn state_space() -> Value {
    with_common(
        json!({ "model_type": "mamba2", "num_hidden_layers": 2, "num_heads": 4, "head_dim": 6, "n_groups": 2,
        "state_size": 5, "conv_kernel": 4, "layer_norm_epsilon": 1e-5, "use_bias": true, "use_conv_bias": true,
        "time_step_limit": [0.7, 1.5] }),
    )
}

fn state_space_weights() -> BTreeMap<String, Floats> {
    let mut draw = Draw::new();
    let (inner, channels) = (24, 24 + 2 * 2 * 5);
    draw.add("backbone.embeddings.weight", &[VOCABULARY, HIDDEN]);
    draw.add("backbone.norm_f.weight", &[HIDDEN]);
    for layer in 0..2 {
        let path = format!("backbone.layers.{layer}");
        draw.add(&format!("{path}.norm.weight"), &[HIDDEN]);
        draw.add(&format!("{path}.mixer.in_proj.weight"), &[inner + channels + 4, HIDDEN]);
        draw.add(&format!("{path}.mixer.in_proj.bias"), &[inner + channels + 4]);
        draw.add(&format!("{path}.mixer.conv1d.weight"), &[channels, 4, 1]);
        draw.add(&format!("{path}.mixer.conv1d.bias"), &[channels]);
        for name in ["A_log", "D", "dt_bias"] {
            draw.add(&format!("{path}.mixer.{name}"), &[4]);
        }
        draw.add(&format!("{path}.mixer.norm.weight"), &[inner]);
        draw.add(&format!("{path}.mixer.out_proj.weight"), &[HIDDEN, inner]);
        draw.add(&format!("{path}.mixer.out_proj.bias"), &[HIDDEN]);
    }
    draw.weights
}

fn short() -> Value {
    with_common(
        json!({ "model_type": "lfm2", "num_hidden_layers": 3, "full_attn_idxs": [1], "conv_L_cache": 3,
        "conv_bias": false, "norm_eps": 1e-5 }),
    )
}

fn short_weights() -> BTreeMap<String, Floats> {
    let mut draw = Draw::new();
    draw.add("model.embed_tokens.weight", &[VOCABULARY, HIDDEN]);
    draw.add("model.embedding_norm.weight", &[HIDDEN]);
    for layer in 0..3 {
        let path = format!("model.layers.{layer}");
        draw.add(&format!("{path}.operator_norm.weight"), &[HIDDEN]);
        draw.add(&format!("{path}.ffn_norm.weight"), &[HIDDEN]);
        for (name, shape) in [("w1", [24, HIDDEN]), ("w2", [HIDDEN, 24]), ("w3", [24, HIDDEN])] {
            draw.add(&format!("{path}.feed_forward.{name}.weight"), &shape);
        }
        if layer == 1 {
            attention(&mut draw, &format!("{path}.self_attn"), ["out_proj", "q_layernorm", "k_layernorm"], 1);
        } else {
            draw.add(&format!("{path}.conv.in_proj.weight"), &[3 * HIDDEN, HIDDEN]);
            draw.add(&format!("{path}.conv.conv.weight"), &[HIDDEN, 3, 1]);
            draw.add(&format!("{path}.conv.out_proj.weight"), &[HIDDEN, HIDDEN]);
        }
    }
    draw.weights
}

fn delta() -> Value {
    let text = with_common(json!({ "num_hidden_layers": 3, "full_attention_interval": 2, "head_dim": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5,
        "linear_conv_kernel_dim": 4, "rope_parameters": { "rope_type": "default", "partial_rotary_factor": 0.25 } }));
    json!({ "model_type": "qwen3_5", "text_config": text })
}

fn delta_weights() -> BTreeMap<String, Floats> {
    let mut draw = Draw::new();
    draw.add("language_model.model.embed_tokens.weight", &[VOCABULARY, HIDDEN]);
    draw.add("language_model.model.norm.weight", &[HIDDEN]);
    for layer in 0..3 {
        let path = format!("language_model.model.layers.{layer}");
        draw.add(&format!("{path}.input_layernorm.weight"), &[HIDDEN]);
        draw.add(&format!("{path}.post_attention_layernorm.weight"), &[HIDDEN]);
        for (name, shape) in
            [("gate_proj", [24, HIDDEN]), ("up_proj", [24, HIDDEN]), ("down_proj", [HIDDEN, 24])]
        {
            draw.add(&format!("{path}.mlp.{name}.weight"), &shape);
        }
        if layer == 1 {
            attention(&mut draw, &format!("{path}.self_attn"), ["o_proj", "q_norm", "k_norm"], 2);
        } else {
            delta_net(&mut draw, &format!("{path}.linear_attn"));
        }
    }
    draw.weights
}

fn delta_net(draw: &mut Draw, path: &str) {
    for (name, outputs) in [("qkv", 44), ("z", 20), ("b", 4), ("a", 4)] {
        draw.add(&format!("{path}.in_proj_{name}.weight"), &[outputs, HIDDEN]);
    }
    draw.add(&format!("{path}.conv1d.weight"), &[44, 4, 1]);
    for (name, width) in [("A_log", 4), ("dt_bias", 4), ("norm.weight", 5)] {
        draw.add(&format!("{path}.{name}"), &[width]);
    }
    draw.add(&format!("{path}.out_proj.weight"), &[HIDDEN, 20]);
}

/// Two query heads of 16, which share one key head; `parts` of each query are queries and perhaps gates.
fn attention(draw: &mut Draw, path: &str, [output, query_norm, key_norm]: [&str; 3], parts: usize) {
    draw.add(&format!("{path}.q_proj.weight"), &[parts * 32, HIDDEN]);
    draw.add(&format!("{path}.k_proj.weight"), &[16, HIDDEN]);
    draw.add(&format!("{path}.v_proj.weight"), &[16, HIDDEN]);
    draw.add(&format!("{path}.{output}.weight"), &[HIDDEN, 32]);
    draw.add(&format!("{path}.{query_norm}.weight"), &[16]);
    draw.add(&format!("{path}.{key_norm}.weight"), &[16]);
}
