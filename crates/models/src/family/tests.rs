//! Tests of what families read from their configurations, and of which tensors they ask for.

mod expert;
mod state;

use super::*;
use crate::{
    Checkpoint, Options, Source,
    config::{LayerInputConfig, RopeConfig, Scaling},
    dense::Flow,
    layer::{HeadNorms, Values},
    sample,
    weights::File,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tandem_contracts::{
    fake,
    model::{AdapterSet, RowStep, Slot, StatePolicy, Step, TokenSource, Wanted},
};

fn read(family: &str, fields: Value) -> Result<Config> {
    let mut config = sample::config();
    config["model_type"] = json!(family);
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    Config::from_json(config.to_string().as_bytes())
}

fn declaration(config: &Config) -> Declaration {
    (find(config.family).unwrap().declare)(config)
}

/// Loads the sample's weights as another family and gives what is wrong.
fn refusal(family: &str, fields: Value) -> String {
    let mut config = sample::config();
    config["model_type"] = json!(family);
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (config, weights) = (config.to_string(), sample::safetensors(&sample::weights()));
    let files = vec![File { name: "model.safetensors", bytes: &weights }];
    let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
    Checkpoint::open(source).unwrap().load(&fake::open(), Options::default()).unwrap_err().to_string()
}

#[test]
fn families_are_listed_once_and_in_order() {
    let names: Vec<_> = names().collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn a_family_asks_for_its_own_tensors() {
    for (family, fields, lacking) in [
        ("qwen2", json!({}), "model.layers.0.self_attn.q_proj.bias"),
        ("qwen3", json!({}), "model.layers.0.self_attn.q_norm.weight"),
        ("phi3", json!({}), "model.layers.0.self_attn.qkv_proj.weight"),
        (
            "olmo3",
            json!({ "layer_types": ["full_attention", "full_attention"] }),
            "model.layers.0.self_attn.q_norm.weight",
        ),
        ("glm4", json!({}), "model.layers.0.post_self_attn_layernorm.weight"),
        ("gemma2", json!({}), "model.layers.0.pre_feedforward_layernorm.weight"),
        ("gemma4", json!({ "num_kv_shared_layers": 0 }), "language_model.model.embed_tokens.weight"),
        ("gpt_oss", json!({ "sliding_window": 8 }), "model.layers.0.self_attn.q_proj.bias"),
        ("mixtral", json!({}), "model.layers.0.block_sparse_moe.gate.weight"),
        (
            "qwen3_moe",
            json!({ "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16 }),
            "model.layers.0.self_attn.q_norm.weight",
        ),
    ] {
        let message = refusal(family, fields);
        assert_eq!(message, format!("model.safetensors: tensor {lacking}: is not there"), "{family}");
    }
}

#[test]
fn a_tensor_that_a_family_does_not_know_is_refused() {
    // Cohere 2 has one norm in a block, which both branches share.
    let message =
        refusal("cohere2", json!({ "head_dim": 32, "layer_types": ["full_attention", "full_attention"] }));
    let expected = "model.safetensors: tensor model.layers.0.post_attention_layernorm.weight: the model has no such \
                    weight, left over in all: 2";
    assert_eq!(message, expected);
}

#[test]
fn defaults_stand_in_for_missing_fields_and_yield_to_null() {
    let base = |value: Value| read("qwen2", json!({ "rope_theta": value })).unwrap().rope.base;
    assert_eq!(base(json!(5e5)), 5e5);
    assert_eq!(base(Value::Null), 1e4);
    let mut config = sample::config();
    config["model_type"] = json!("qwen2");
    config.as_object_mut().unwrap().remove("rope_theta");
    assert_eq!(Config::from_json(config.to_string().as_bytes()).unwrap().rope.base, 1e6);
}

#[test]
fn multipliers_are_read_under_each_familys_names() {
    let granite = json!({ "embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.5,
        "logits_scaling": 4.0 });
    let scales = read("granite", granite).unwrap().scales;
    assert_eq!(
        (scales.embedding, scales.residual, scales.scores, scales.logits),
        (12.0, 0.25, Some(0.5), 0.25)
    );
    assert_eq!(
        read("granite", json!({})).unwrap_err().to_string(),
        "the configuration lacks: embedding_multiplier"
    );

    let minicpm = |tied| {
        json!({ "scale_emb": 12, "scale_depth": 1.5, "dim_model_base": 8, "num_hidden_layers": 4,
        "tie_word_embeddings": tied })
    };
    let config = read("minicpm", minicpm(false)).unwrap();
    assert_eq!((config.scales.embedding, config.scales.residual, config.scales.logits), (12.0, 0.75, 0.25));
    assert_eq!(config.tied, None);
    let config = read("minicpm", minicpm(true)).unwrap();
    assert_eq!((config.scales.logits, config.tied), (1.0, Some(true)));

    let scales = read("gemma2", json!({ "query_pre_attn_scalar": 64 })).unwrap().scales;
    assert_eq!((scales.embedding, scales.scores), (32f32.sqrt(), Some(0.125)));
    assert_eq!((scales.score_cap, scales.logit_cap), (Some(50.0), Some(30.0)));
    // The root of 32 is 5.65685; bf16 has 8 bits of it.
    let scales = read("gemma3_text", json!({ "hidden_activation": "gelu_pytorch_tanh" })).unwrap().scales;
    assert_eq!((scales.embedding, scales.logit_cap), (5.65625, None));
}

#[test]
fn activations_of_another_kind_are_refused() {
    let message = |family, act| read(family, json!({ "hidden_act": act })).unwrap_err().to_string();
    assert_eq!(message("gemma2", "silu"), "hidden_act gelu_pytorch_tanh is known, got: silu");
    assert_eq!(message("qwen3", "gelu"), "hidden_act silu is known, got: gelu");
}

#[test]
fn patterns_give_windows_and_rotations() {
    let layers = |family, more: Value| {
        let mut fields = json!({ "num_hidden_layers": 4, "sliding_window": 8, "sliding_window_pattern": 2 });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(family, fields).unwrap()
    };
    let cohere = layers("cohere2", json!({}));
    let seen: Vec<_> = cohere.layers.iter().map(|layer| (layer.window, layer.rotary)).collect();
    assert_eq!(seen, [(Some(8), true), (None, false), (Some(8), true), (None, false)]);
    assert!(cohere.rope.interleaved && cohere.tied == Some(true));
    assert!(declaration(&cohere).blocks.iter().all(|block| block.flow == Flow::Parallel));

    let gemma = layers("gemma3_text", json!({ "rope_scaling": { "rope_type": "linear", "factor": 8.0 } }));
    let rope = |layer: usize| gemma.rope_of(&gemma.layers[layer]).unwrap().clone();
    assert_eq!((rope(0).base, rope(0).scaling), (1e4, Scaling::None));
    assert_eq!((rope(1).base, rope(1).scaling), (1e4, Scaling::Linear { factor: 8.0 }));

    let listed =
        json!({ "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"] });
    let olmo = layers("olmo3", listed);
    assert_eq!(olmo.layers.iter().map(|layer| layer.window).collect::<Vec<_>>(), [None, Some(8), None, None]);
    let plain = read("gemma2", json!({ "sliding_window": 8 })).unwrap();
    assert!(plain.layers.iter().all(|layer| layer.window.is_none()));
}

#[test]
fn queries_grow_past_the_original_context() {
    let block = json!({ "rope_parameters": { "rope_type": "default", "llama_4_scaling_beta": 0.5,
        "original_max_position_embeddings": 16 } });
    let growth = read("ministral3", block.clone()).unwrap().query_growth.unwrap();
    assert_eq!((growth.rate, growth.context), (0.5, 16.0));
    assert_eq!(read("mistral", block).unwrap().query_growth, None);
}

fn gemma4(more: Value) -> Result<Config> {
    let mut text = json!({ "hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "num_kv_shared_layers": 2,
        "sliding_window_pattern": 3, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 24 });
    text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outer = json!({ "model_type": "gemma4", "vocab_size": 24, "eos_token_id": 2, "text_config": text });
    Config::from_json(outer.to_string().as_bytes())
}

#[test]
fn the_last_layers_of_gemma4_read_those_of_their_kind() {
    let config = gemma4(json!({})).unwrap();
    let donors: Vec<_> = config.layers.iter().map(|layer| layer.donor).collect();
    assert_eq!(donors, [None, None, None, None, Some(3), Some(2)]);
    let extents: Vec<_> = config.layers.iter().map(|layer| (layer.head_width, layer.intermediate)).collect();
    assert_eq!(extents, [(16, 48), (16, 48), (32, 48), (16, 48), (16, 96), (32, 96)]);
    assert_eq!(config.layer_inputs, Some(LayerInputConfig { width: 8, vocabulary: 24 }));
    let rope = RopeConfig {
        base: 1e6,
        share: 0.25,
        interleaved: false,
        scaling: Scaling::Proportional { factor: 1.0 },
    };
    assert_eq!(config.rope_of(&config.layers[2]), Some(&rope));
    let frequencies = rope.frequencies(32).unwrap();
    assert_eq!((frequencies.len(), frequencies.iter().filter(|it| **it > 0.0).count()), (16, 4));
    assert_eq!(config.rope_of(&config.layers[0]).map(|rope| (rope.base, rope.share)), Some((1e4, 1.0)));

    let declaration = declaration(&config);
    assert_eq!(declaration.blocks[5].path, "language_model.model.layers.5");
    assert!(declaration.blocks.iter().all(|block| block.attention.head_norms == HeadNorms::Each));
    assert!(
        declaration.unneeded.iter().any(|part| part == "language_model.model.layers.5.self_attn.k_proj.")
    );

    let joint = gemma4(json!({ "attention_k_eq_v": true, "num_global_key_value_heads": 1 })).unwrap();
    let heads: Vec<_> = joint.layers.iter().map(|layer| (layer.shared_heads, layer.values_of_keys)).collect();
    assert_eq!(heads[1..3], [(2, false), (1, true)]);
    let values = (find("gemma4").unwrap().declare)(&joint).blocks[2].attention.values;
    assert_eq!(values, Values::NormedKeys);
}

#[test]
fn gemma4_that_cannot_be_is_refused() {
    for (fields, expected) in [
        (json!({ "num_kv_shared_layers": 6 }), "num_kv_shared_layers leaves no layer with keys: 6"),
        (json!({ "num_kv_shared_layers": 4 }), "a layer reads keys of a kind that no layer makes"),
        (
            json!({ "vocab_size_per_layer_input": 23 }),
            "vocab_size_per_layer_input must be at least 24, got: 23",
        ),
        (json!({ "enable_moe_block": true }), "the configuration lacks: num_experts"),
    ] {
        assert_eq!(gemma4(fields).unwrap_err().to_string(), expected);
    }
    assert_eq!(gemma4(json!({ "hidden_size_per_layer_input": 0 })).unwrap().layer_inputs, None);
}

/// Loads a model and gives the logits of a few tokens.
fn logits(config: &Value, weights: &BTreeMap<String, sample::Floats>) -> Vec<f32> {
    let mut session = sample::load(config, weights, &fake::open(), Options::default()).unwrap();
    session.open(Slot(0), &StatePolicy::Plain, None).unwrap();
    let row = RowStep {
        slot: Slot(0),
        position: 0,
        tokens: TokenSource::Ids(vec![3, 1, 4, 1, 5]),
        wanted: Wanted::All,
        adapters: AdapterSet::BASE,
    };
    session.step(&Step { rows: vec![row] }).unwrap().logits.unwrap().to_vec().unwrap()
}
