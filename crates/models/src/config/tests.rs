//! Tests of reading `config.json`: what families say, and what is refused.

use super::*;
use crate::{error::ErrorKind, sample, weights::Microscaling};
use proptest::prelude::*;
use serde_json::{Value, json};
use tandem_contracts::tensor::Affine;

fn read(config: &Value) -> Result<Config> {
    Config::from_json(config.to_string().as_bytes())
}

/// The sample's configuration with some fields set; `null` removes one.
fn with(changes: Value) -> Value {
    let mut config = sample::config();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn refusal(changes: Value) -> String {
    read(&with(changes)).unwrap_err().to_string()
}

#[test]
fn fields_and_their_defaults() {
    let config = read(&sample::config()).unwrap();
    assert_eq!((config.family, config.hidden, config.heads, config.shared_heads), ("llama", 32, 2, 1));
    assert_eq!((config.head_width, config.vocabulary, config.context), (32, 24, 40));
    assert_eq!((config.tied, config.begin_token, &config.end_tokens[..]), (Some(true), Some(1), &[2, 3][..]));
    assert_eq!(config.rope.scaling, Scaling::None);
    let absent = json!({ "num_key_value_heads": null, "head_dim": null, "tie_word_embeddings": null,
        "max_position_embeddings": null, "rope_theta": null, "eos_token_id": 2 });
    let config = read(&with(absent)).unwrap();
    assert_eq!((config.shared_heads, config.head_width, config.context), (2, 16, 2048));
    assert_eq!((config.tied, config.rope.base, &config.end_tokens[..]), (None, 10_000.0, &[2][..]));
}

#[test]
fn activations_are_named_in_the_old_and_in_the_new_way() {
    let read = |changes| read(&with(changes)).unwrap().activations;
    assert_eq!(read(json!({ "dtype": null, "torch_dtype": null })), None);
    assert_eq!(read(json!({ "dtype": null, "torch_dtype": "bfloat16" })), Some(Dtype::Bf16));
    assert_eq!(read(json!({ "dtype": "float16", "torch_dtype": "float32" })), Some(Dtype::F16));
    assert_eq!(read(json!({ "dtype": "auto" })), None);
}

#[test]
fn a_model_type_that_is_not_known_names_those_that_are() {
    let error = read(&with(json!({ "model_type": "gpt5" }))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = error.to_string();
    assert!(message.starts_with("model type is not known (known: cohere2, gemma2, "), "{message}");
    assert!(message.ends_with(", smollm3): gpt5"), "{message}");
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (changes, expected) in [
        (json!({ "model_type": null }), "the configuration lacks: model_type"),
        (json!({ "hidden_size": null }), "the configuration lacks: hidden_size"),
        (
            json!({ "hidden_size": "big" }),
            "hidden_size must be a whole number from 1 to 1048576, got: \\\"big\\\"",
        ),
        (json!({ "num_hidden_layers": u64::MAX }), "num_hidden_layers must be a whole number from 1 to 4096"),
        (json!({ "num_attention_heads": 0 }), "num_attention_heads must be a whole number"),
        (json!({ "vocab_size": -1 }), "vocab_size must be a whole number"),
        (
            json!({ "num_attention_heads": 3, "num_key_value_heads": 2 }),
            "3 query heads do not share key heads evenly: 2",
        ),
        (json!({ "head_dim": 15 }), "heads must have an even width, got: 15"),
        (json!({ "num_attention_heads": 64, "head_dim": null }), "heads must have an even width, got: 0"),
        (json!({ "rms_norm_eps": 0 }), "rms_norm_eps must be a number above 0, got: 0"),
        (json!({ "rope_theta": 1 }), "rope_theta must be above 1, got: 1"),
        (json!({ "tie_word_embeddings": 1 }), "tie_word_embeddings must be true or false, got: 1"),
        (json!({ "eos_token_id": [2, "x"] }), "eos_token_id must be a token id or a list of them"),
        (json!({ "hidden_act": "relu" }), "hidden_act silu is known, got: relu"),
        (json!({ "layer_types": ["full_attention"] }), "layer_types must name each of 2 layers, names: 1"),
        (
            json!({ "layer_types": ["sliding_attention", "sliding_attention"] }),
            "the configuration lacks: sliding_window",
        ),
        (json!({ "layer_types": ["full_attention", "mamba"] }), "layer type is not known: \"mamba\""),
        (
            json!({ "rope_scaling": { "type": "ntk" } }),
            "rope scalings are default, linear, dynamic, llama3, yarn, longrope and proportional, got: ntk",
        ),
        (
            json!({ "rope_scaling": { "type": "su" } }),
            "the configuration lacks: original_max_position_embeddings",
        ),
        (json!({ "partial_rotary_factor": 1.5 }), "partial_rotary_factor must be at most 1, got: 1.5"),
        (json!({ "rope_scaling": { "type": "linear" } }), "the configuration lacks: rope_scaling.factor"),
        (json!({ "rope_scaling": 7 }), "rope_scaling must be an object, got: 7"),
    ] {
        let message = refusal(changes);
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(Config::from_json(b"{").is_err());
    assert!(Config::from_json(b"[]").is_err());
    assert!(Config::from_json("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn windows_and_unrotated_layers_are_layer_by_layer() {
    let windowed = json!({ "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16 });
    let layers = read(&with(windowed)).unwrap().layers;
    assert_eq!(layers.iter().map(|layer| layer.window).collect::<Vec<_>>(), [Some(16), None]);
    let rotary = |changes: Value| {
        read(&with(changes)).unwrap().layers.iter().map(|layer| u8::from(layer.rotary)).collect::<Vec<_>>()
    };
    let smollm3 = |more: Value| {
        let mut changes = json!({ "model_type": "smollm3", "num_hidden_layers": 6 });
        changes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        changes
    };
    assert_eq!(rotary(smollm3(json!({}))), [1, 1, 1, 0, 1, 1]);
    assert_eq!(rotary(smollm3(json!({ "no_rope_layer_interval": 2 }))), [1, 0, 1, 0, 1, 0]);
    assert_eq!(rotary(smollm3(json!({ "no_rope_layers": [0, 1, 1, 1, 1, 0] }))), [0, 1, 1, 1, 1, 0]);
    assert_eq!(rotary(json!({ "no_rope_layer_interval": 2 })), [1, 1]);
}

#[test]
fn scalings_are_read_from_both_spellings() {
    let scaling = |changes: Value| read(&with(changes)).unwrap().rope;
    let linear = json!({ "rope_scaling": { "type": "linear", "factor": 4 } });
    assert_eq!(scaling(linear).scaling, Scaling::Linear { factor: 4.0 });
    let nested = json!({ "rope_theta": null, "rope_parameters": { "rope_type": "llama3", "factor": 8.0,
        "rope_theta": 500000.0, "original_max_position_embeddings": 64 } });
    let rope = scaling(nested);
    let llama3 = Scaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 64.0,
    };
    assert_eq!((rope.base, rope.scaling), (500_000.0, llama3));
    let yarn = scaling(json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "mscale_all_dim": 0,
        "original_max_position_embeddings": 32 } }));
    assert_eq!(yarn.scale(), (0.1 * 4f64.ln() + 1.0) as f32);
    let long = json!({ "original_max_position_embeddings": 10, "max_position_embeddings": 1000,
        "rope_scaling": { "type": "longrope", "long_factor": [1, 2.5] } });
    // The context grew by 100, which is 10 to the second power: the root of 1 + 2.
    let rope = scaling(long);
    assert_eq!(rope.scale(), 3f64.sqrt() as f32);
    assert!(matches!(rope.scaling, Scaling::Divisors { divisors, .. } if divisors == [1.0, 2.5]));
    assert_eq!(
        scaling(json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 } })).scaling,
        Scaling::None
    );
}

#[test]
fn layers_with_a_window_may_have_their_own_rotation() {
    let block = json!({ "rope_theta": null, "rope_parameters": {
        "full_attention": { "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 } } });
    let config = read(&with(block)).unwrap();
    let windowed = config.window_rope.unwrap();
    assert_eq!((windowed.base, windowed.share, windowed.scaling), (1e4, 1.0, Scaling::None));
    assert_eq!((config.rope.base, config.rope.share), (1e6, 0.5));
    assert_eq!(config.rope.scaling, Scaling::Proportional { factor: 1.0 });
}

#[test]
fn quantisation_is_global_with_exceptions() {
    let block = json!({ "quantization": { "group_size": 64, "bits": 4, "lm_head": false, "a": true,
        "model.embed_tokens": { "group_size": 32, "bits": 8 } } });
    let quantization = read(&with(block)).unwrap().quantization;
    let four = Some(Scheme::Affine(Affine { bits: 4, group: 64 }));
    assert_eq!(["x", "a"].map(|path| quantization.of(path)), [four; 2]);
    assert_eq!(quantization.of("lm_head"), None);
    assert_eq!(quantization.of("model.embed_tokens"), Some(Scheme::Affine(Affine { bits: 8, group: 32 })));
    let small = json!({ "quantization_config": { "group_size": 32, "bits": 8, "mode": "mxfp8" } });
    let quantization = read(&with(small)).unwrap().quantization;
    assert_eq!(quantization.of("x"), Some(Scheme::Microscaling(Microscaling::Mxfp8)));
    let authors =
        json!({ "quantization_config": { "quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"] } });
    let quantization = read(&with(authors)).unwrap().quantization;
    assert_eq!(quantization.of("x"), Some(Scheme::Microscaling(Microscaling::Mxfp4)));
    assert_eq!(read(&sample::config()).unwrap().quantization.of("x"), None);
    for (block, expected) in [
        (json!({ "bits": 4 }), "the configuration lacks: quantization.group_size"),
        (json!({ "bits": 7, "group_size": 64 }), "affine takes 2, 3, 4, 5, 6, 8 bits"),
        (json!({ "bits": 4, "group_size": 33 }), "affine takes 2, 3, 4, 5, 6, 8 bits"),
        (
            json!({ "bits": 8, "group_size": 16, "mode": "mxfp8" }),
            "mxfp8 has 8 bits and groups of 32, got: 8 bits",
        ),
        (
            json!({ "bits": 4, "group_size": 32, "mode": "q" }),
            "quantisation modes are affine, mxfp8, mxfp4 and nvfp4",
        ),
        (json!({ "bits": 4, "group_size": 64, "m": { "bits": 4 } }), "tensor m: the configuration lacks"),
    ] {
        let message = refusal(json!({ "quantization": block }));
        assert!(message.starts_with(expected), "{message}");
    }
    let message =
        refusal(json!({ "quantization_config": { "quant_method": "gptq", "bits": 4, "group_size": 128 } }));
    assert_eq!(message, "quantisation method is not known: gptq");
}

/// Any JSON of little depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_0-9]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,6}", inner), 0..3)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_in_any_field_is_an_error_or_fine(at in any::<prop::sample::Index>(), value in any_json()) {
        const FIELDS: [&str; 15] = ["layer_types", "no_rope_layers", "rope_scaling", "rope_parameters", "quantization",
            "quantization_config", "sliding_window", "hidden_act", "attention_bias", "mlp_bias", "rope_traditional",
            "no_rope_layer_interval", "text_config", "partial_rotary_factor", "original_max_position_embeddings"];
        let mut config = sample::config();
        config["model_type"] = json!("smollm3");
        let known: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        let keys: Vec<&str> = known.iter().map(String::as_str).chain(FIELDS).collect();
        config[keys[at.index(keys.len())]] = value;
        drop(read(&config));
    }
}
