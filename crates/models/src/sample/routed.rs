//! Small models with experts.

use super::{Draw, Floats, VOCABULARY};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A family with experts, and a model of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    pub(crate) config: fn() -> Value,
    /// Weights in MLX's form.
    pub(crate) weights: fn() -> BTreeMap<String, Floats>,
    /// Module of a block whose `gate_proj`, `up_proj` and `down_proj` are stacks.
    stacked: &'static str,
    apart: Apart,
}

/// How the authors of a model store its experts.
#[derive(Clone, Copy, Debug)]
enum Apart {
    /// Each by itself in that module, under these names of gate, up and down.
    Each(&'static str, [&'static str; 3]),
    /// As two stacks in that module.
    Joint(&'static str),
    /// In the same way.
    Same,
}

const GATED: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// One of each family: Mixtral, Qwen3, Gemma 4, gpt-oss.
pub(crate) const ROUTED: [Routed; 4] = [
    Routed {
        config: mixtral,
        weights: mixtral_weights,
        stacked: "block_sparse_moe.switch_mlp",
        apart: Apart::Each("block_sparse_moe.experts", ["w1", "w3", "w2"]),
    },
    Routed {
        config: qwen,
        weights: qwen_weights,
        stacked: "mlp.switch_mlp",
        apart: Apart::Each("mlp.experts", GATED),
    },
    Routed {
        config: gemma,
        weights: gemma_weights,
        stacked: "experts.switch_glu",
        apart: Apart::Joint("experts"),
    },
    Routed { config: gpt_oss, weights: gpt_oss_weights, stacked: "mlp.experts", apart: Apart::Same },
];

const HIDDEN: usize = 32;
const EXPERTS: usize = 4;
const INNER: usize = 16;
const HEAD: usize = 16;
const LAYERS: usize = 3;

impl Routed {
    /// The weights as the authors of the model have them.
    pub(crate) fn apart(&self) -> BTreeMap<String, Floats> {
        let mut weights = (self.weights)();
        for layer in 0..LAYERS {
            let path = format!("model.layers.{layer}");
            let [gate, up, down] = GATED.map(|name| {
                let name = format!("{path}.{}.{name}.weight", self.stacked);
                if matches!(self.apart, Apart::Same) { None } else { weights.remove(&name) }
            });
            match self.apart {
                Apart::Each(module, names) => {
                    for (stack, own) in [gate, up, down].iter().zip(names) {
                        let each = stack.iter().flat_map(each);
                        let name = |expert| format!("{path}.{module}.{expert}.{own}.weight");
                        weights.extend(each.enumerate().map(|(expert, it)| (name(expert), it)));
                    }
                }
                Apart::Joint(module) => {
                    let [gate, up, down] = [gate, up, down].map(Option::unwrap);
                    let pairs = each(&gate).into_iter().zip(each(&up));
                    let values = pairs.flat_map(|(gate, up)| [gate.values, up.values].concat()).collect();
                    let joint = Floats { shape: vec![EXPERTS, 2 * INNER, HIDDEN], values };
                    weights.insert(format!("{path}.{module}.gate_up_proj"), joint);
                    weights.insert(format!("{path}.{module}.down_proj"), down);
                }
                Apart::Same => {}
            }
        }
        weights
    }
}

/// The matrices of a stack.
fn each(stack: &Floats) -> Vec<Floats> {
    let (shape, size) = (&stack.shape[1..], stack.shape[1] * stack.shape[2]);
    stack
        .values
        .chunks(size)
        .map(|values| Floats { shape: shape.to_vec(), values: values.to_vec() })
        .collect()
}

fn with_common(own: Value) -> Value {
    let mut config = json!({ "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD, "vocab_size": VOCABULARY,
        "max_position_embeddings": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "num_experts_per_tok": 2, "moe_intermediate_size": INNER });
    config.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    config
}

fn mixtral() -> Value {
    with_common(json!({ "model_type": "mixtral", "num_local_experts": EXPERTS }))
}

fn mixtral_weights() -> BTreeMap<String, Floats> {
    blocks(|draw, path, _| {
        draw.add(&format!("{path}.block_sparse_moe.gate.weight"), &[EXPERTS, HIDDEN]);
        stacks(draw, &format!("{path}.block_sparse_moe.switch_mlp"));
    })
}

fn qwen() -> Value {
    with_common(json!({ "model_type": "qwen3_moe", "num_experts": EXPERTS, "norm_topk_prob": true,
        "mlp_only_layers": [0] }))
}

fn qwen_weights() -> BTreeMap<String, Floats> {
    blocks(|draw, path, layer| {
        head_norms(draw, path);
        if layer == 0 {
            return unit(draw, &format!("{path}.mlp"));
        }
        draw.add(&format!("{path}.mlp.gate.weight"), &[EXPERTS, HIDDEN]);
        stacks(draw, &format!("{path}.mlp.switch_mlp"));
    })
}

fn gemma() -> Value {
    with_common(json!({ "model_type": "gemma4_text", "enable_moe_block": true, "num_experts": EXPERTS,
        "top_k_experts": 2, "global_head_dim": HEAD, "num_kv_shared_layers": 0, "sliding_window": 4,
        "sliding_window_pattern": 3, "hidden_size_per_layer_input": 0 }))
}

fn gemma_weights() -> BTreeMap<String, Floats> {
    blocks(|draw, path, _| {
        head_norms(draw, path);
        let norms = ["pre_feedforward", "post_feedforward"].map(|name| format!("{path}.{name}_layernorm"));
        for name in [&norms[0], &norms[1], &format!("{}_2", norms[0]), &format!("{}_1", norms[1])] {
            draw.add(&format!("{name}.weight"), &[HIDDEN]);
        }
        draw.add(&format!("{}_2.weight", norms[1]), &[HIDDEN]);
        draw.add(&format!("{path}.layer_scalar"), &[1]);
        unit(draw, &format!("{path}.mlp"));
        draw.add(&format!("{path}.router.proj.weight"), &[EXPERTS, HIDDEN]);
        draw.add(&format!("{path}.router.scale"), &[HIDDEN]);
        draw.add(&format!("{path}.router.per_expert_scale"), &[EXPERTS]);
        stacks(draw, &format!("{path}.experts.switch_glu"));
    })
}

fn gpt_oss() -> Value {
    with_common(json!({ "model_type": "gpt_oss", "num_local_experts": EXPERTS, "sliding_window": 4 }))
}

fn gpt_oss_weights() -> BTreeMap<String, Floats> {
    let mut weights = blocks(|draw, path, _| {
        for (name, width) in [("q", 2 * HEAD), ("k", HEAD), ("v", HEAD), ("o", HIDDEN)] {
            draw.add(&format!("{path}.self_attn.{name}_proj.bias"), &[width]);
        }
        draw.add(&format!("{path}.self_attn.sinks"), &[2]);
        draw.add(&format!("{path}.mlp.router.weight"), &[EXPERTS, HIDDEN]);
        draw.add(&format!("{path}.mlp.router.bias"), &[EXPERTS]);
        stacks(draw, &format!("{path}.mlp.experts"));
        for (name, outputs) in GATED.iter().zip([INNER, INNER, HIDDEN]) {
            draw.add(&format!("{path}.mlp.experts.{name}.bias"), &[EXPERTS, outputs]);
        }
    });
    weights.insert("lm_head.weight".to_owned(), weights["model.embed_tokens.weight"].clone());
    weights
}

/// A model whose blocks have, besides attention and two norms, what `add` gives them.
fn blocks(add: impl Fn(&mut Draw, &str, usize)) -> BTreeMap<String, Floats> {
    let mut draw = Draw::new();
    draw.add("model.embed_tokens.weight", &[VOCABULARY, HIDDEN]);
    draw.add("model.norm.weight", &[HIDDEN]);
    for layer in 0..LAYERS {
        let path = format!("model.layers.{layer}");
        draw.add(&format!("{path}.input_layernorm.weight"), &[HIDDEN]);
        draw.add(&format!("{path}.post_attention_layernorm.weight"), &[HIDDEN]);
        for (name, shape) in [
            ("q", [2 * HEAD, HIDDEN]),
            ("k", [HEAD, HIDDEN]),
            ("v", [HEAD, HIDDEN]),
            ("o", [HIDDEN, 2 * HEAD]),
        ] {
            draw.add(&format!("{path}.self_attn.{name}_proj.weight"), &shape);
        }
        add(&mut draw, &path, layer);
    }
    draw.weights
}

fn head_norms(draw: &mut Draw, path: &str) {
    draw.add(&format!("{path}.self_attn.q_norm.weight"), &[HEAD]);
    draw.add(&format!("{path}.self_attn.k_norm.weight"), &[HEAD]);
}

fn unit(draw: &mut Draw, path: &str) {
    for (name, shape) in GATED.iter().zip([[INNER, HIDDEN], [INNER, HIDDEN], [HIDDEN, INNER]]) {
        draw.add(&format!("{path}.{name}.weight"), &shape);
    }
}

fn stacks(draw: &mut Draw, path: &str) {
    for (name, [outputs, inputs]) in GATED.iter().zip([[INNER, HIDDEN], [INNER, HIDDEN], [HIDDEN, INNER]]) {
        draw.add(&format!("{path}.{name}.weight"), &[EXPERTS, outputs, inputs]);
    }
}
