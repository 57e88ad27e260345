//! Tests of families whose layers carry states.

use super::{logits, read};
use crate::{
    Options,
    config::Config,
    error::Result,
    sample::{self, Floats, RECURRENT},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tandem_contracts::fake;

/// The sample of a family with states: its configuration with other fields.
fn recurrent(index: usize, more: Value) -> Result<Config> {
    let mut config = (RECURRENT[index].config)();
    let text = if index == 2 { &mut config["text_config"] } else { &mut config };
    text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Config::from_json(config.to_string().as_bytes())
}

#[test]
fn families_say_which_layers_carry_states() {
    let layers = |index, more| {
        let config = recurrent(index, more).unwrap();
        config.layers.iter().map(|layer| layer.recurrent).collect::<Vec<_>>()
    };
    assert_eq!(layers(0, json!({})), [true, true]);
    assert_eq!(layers(1, json!({})), [true, false, true]);
    assert_eq!(layers(1, json!({ "full_attn_idxs": [0, 2] })), [false, true, false]);
    let listed = json!(["full_attention", "conv", "conv"]);
    assert_eq!(layers(1, json!({ "full_attn_idxs": null, "layer_types": listed })), [false, true, true]);
    assert_eq!(layers(2, json!({})), [true, false, true]);
    let listed = json!(["linear_attention", "linear_attention", "full_attention"]);
    assert_eq!(layers(2, json!({ "layer_types": listed })), [true, true, false]);

    let message = |index, more| recurrent(index, more).unwrap_err().to_string();
    assert_eq!(
        message(1, json!({ "full_attn_idxs": [3] })),
        "full_attn_idxs must be indices of layers, has: 3"
    );
    assert_eq!(message(1, json!({ "full_attn_idxs": null })), "the configuration lacks: layer_types");
    assert_eq!(
        message(2, json!({ "full_attention_interval": 0 })),
        "full_attention_interval must be a whole number from 1 to 4096, got: 0"
    );
    assert_eq!(message(0, json!({ "num_heads": null })), "the configuration lacks: num_heads");
    let llama = read("llama", json!({ "layer_types": ["full_attention", "conv"] })).unwrap_err();
    assert_eq!(llama.to_string(), "layers without attention are not known of this family: llama");
}

#[test]
fn inner_widths_of_lfm2_are_adjusted() {
    let width = |more| recurrent(1, more).unwrap().layers[0].intermediate;
    assert_eq!(width(json!({})), 24);
    assert_eq!(width(json!({ "block_ff_dim": 12 })), 12);
    let adjusted = |factor: Value| {
        width(json!({ "block_ff_dim": 100, "block_auto_adjust_ff_dim": true, "block_multiple_of": 16,
            "block_ffn_dim_multiplier": factor }))
    };
    // Two thirds of 100 are 66.
    assert_eq!([adjusted(Value::Null), adjusted(json!(1.5))], [80, 112]);
}

/// A model as its authors have it: the convolutions' other axis in the middle, and Qwen's norms without their one.
fn original(mlx: &BTreeMap<String, Floats>, without_one: bool) -> BTreeMap<String, Floats> {
    let norms = ["layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight"];
    let mut original = mlx.clone();
    for (name, tensor) in &mut original {
        if let [channels, taps, 1] = tensor.shape[..] {
            tensor.shape = vec![channels, 1, taps];
        } else if without_one && norms.iter().any(|end| name.ends_with(end)) {
            // Weights around 1 lose nothing by it.
            tensor.values.iter_mut().for_each(|value| *value -= 1.0);
        }
    }
    original
}

/// Experts in stacks, as a matrix of each.
fn experts_apart(weights: BTreeMap<String, Floats>) -> BTreeMap<String, Floats> {
    let mut apart = BTreeMap::new();
    for (name, tensor) in weights {
        let [experts, outputs, inputs] = tensor.shape[..] else {
            apart.insert(name, tensor);
            continue;
        };
        for (expert, values) in tensor.values.chunks(outputs * inputs).enumerate().take(experts) {
            let name = name.replace("switch_mlp.", &format!("experts.{expert}."));
            apart.insert(name, Floats { shape: vec![outputs, inputs], values: values.to_vec() });
        }
    }
    apart
}

#[test]
fn files_of_the_authors_are_read_as_those_of_mlx() {
    for model in &RECURRENT[..2] {
        let (config, mlx) = ((model.config)(), (model.weights)());
        assert_eq!(logits(&config, &original(&mlx, false)), logits(&config, &mlx), "{config}");
    }

    let (config, mlx) = ((RECURRENT[2].config)(), (RECURRENT[2].weights)());
    let renamed = |name: String| name.replace("language_model.model.", "model.language_model.");
    let files = original(&mlx, true).into_iter().map(|(name, tensor)| (renamed(name), tensor));
    let around = ["model.visual.blocks.0.attn.qkv.weight", "mtp.fc.weight"];
    let around = around.map(|name| (name.to_owned(), Floats { shape: vec![1], values: vec![0.0] }));
    assert_eq!(logits(&config, &files.chain(around).collect()), logits(&config, &mlx));

    let (config, mlx) = ((RECURRENT[3].config)(), (RECURRENT[3].weights)());
    let (convolutions, stacks): (BTreeMap<_, _>, BTreeMap<_, _>) =
        original(&mlx, true).into_iter().partition(|(name, _)| !name.contains("switch_mlp"));
    let files = convolutions.into_iter().chain(experts_apart(stacks)).collect();
    assert_eq!(logits(&config, &files), logits(&config, &mlx));
}

#[test]
fn projections_lie_apart_or_joined_by_key_head() {
    let joined = (RECURRENT[3].weights)();
    let inside = |(name, tensor): (&String, &Floats)| (format!("language_model.{name}"), tensor.clone());
    let apart = (RECURRENT[2].weights)().into_iter().filter(|(name, _)| !name.contains(".mlp."));
    let apart = apart.chain(joined.iter().filter(|(name, _)| name.contains(".mlp.")).map(inside)).collect();
    let text = (RECURRENT[3].config)();
    let outer = json!({ "model_type": "qwen3_5_moe", "text_config": text });
    assert_eq!(logits(&outer, &apart), logits(&text, &joined));
}

#[test]
fn names_that_become_one_are_refused() {
    let (config, mut weights) = ((RECURRENT[2].config)(), (RECURRENT[2].weights)());
    let twice = weights["language_model.model.norm.weight"].clone();
    weights.insert("model.norm.weight".to_owned(), twice);
    let error = sample::load(&config, &weights, &fake::open(), Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "model.safetensors: tensor model.norm.weight: is there twice, also as: language_model.model.norm.weight"
    );
}
