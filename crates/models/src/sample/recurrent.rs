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
pub(crate) const RECURRENT: [Recurrent; 4] = [
    Recurrent { config: state_space, weights: state_space_weights, layers: (2, 2) },
    Recurrent { config: short, weights: short_weights, layers: (2, 3) },
    Recurrent { config: delta, weights: delta_weights, layers: (2, 3) },
    Recurrent { config: joined, weights: joined_weights, layers: (2, 3) },
];

const HIDDEN: usize = 32;
const EXPERTS: usize = 4;

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

/// The same with projections joined by key head, and experts in company.
fn joined() -> Value {
    let mut config = delta()["text_config"].take();
    let own = json!({ "model_type": "qwen3_next", "rope_theta": 100_000, "norm_topk_prob": true, "num_experts": EXPERTS,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12 });
    config.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    config
}

fn joined_weights() -> BTreeMap<String, Floats> {
    let mut weights: BTreeMap<_, _> = delta_weights()
        .into_iter()
        .filter(|(name, _)| !name.contains(".mlp."))
        .map(|(name, tensor)| (name.replace("language_model.", ""), tensor))
        .collect();
    for layer in [0, 2] {
        let name = |part| format!("model.layers.{layer}.linear_attn.in_proj_{part}.weight");
        let [qkv, z, b, a] = ["qkv", "z", "b", "a"].map(|part| weights.remove(&name(part)).unwrap());
        // Two key heads of 6, each with two value heads of 5.
        let wide = |head: usize| {
            let (key, value) = (6 * head, 10 * head);
            [(&qkv, key, 6), (&qkv, 12 + key, 6), (&qkv, 24 + value, 10), (&z, value, 10)]
        };
        let narrow = |head: usize| [(&b, 2 * head, 2), (&a, 2 * head, 2)];
        weights.insert(name("qkvz"), rows(&[wide(0), wide(1)].concat()));
        weights.insert(name("ba"), rows(&[narrow(0), narrow(1)].concat()));
    }
    let mut draw = Draw::new();
    for layer in 0..3 {
        let path = format!("model.layers.{layer}.mlp");
        draw.add(&format!("{path}.gate.weight"), &[EXPERTS, HIDDEN]);
        draw.add(&format!("{path}.shared_expert_gate.weight"), &[1, HIDDEN]);
        for name in ["gate", "up"] {
            draw.add(&format!("{path}.switch_mlp.{name}_proj.weight"), &[EXPERTS, 8, HIDDEN]);
            draw.add(&format!("{path}.shared_expert.{name}_proj.weight"), &[12, HIDDEN]);
        }
        draw.add(&format!("{path}.switch_mlp.down_proj.weight"), &[EXPERTS, HIDDEN, 8]);
        draw.add(&format!("{path}.shared_expert.down_proj.weight"), &[HIDDEN, 12]);
    }
    weights.extend(draw.weights);
    weights
}

/// Rows of several matrices, so many from one on of each.
fn rows(parts: &[(&Floats, usize, usize)]) -> Floats {
    let row = |&(matrix, start, count): &(&Floats, usize, usize)| {
        matrix.values[start * HIDDEN..(start + count) * HIDDEN].to_vec()
    };
    let values: Vec<f32> = parts.iter().flat_map(row).collect();
    Floats { shape: vec![values.len() / HIDDEN, HIDDEN], values }
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
