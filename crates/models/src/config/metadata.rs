//! Hyper-parameters of GGUF metadata, brought into the fields of `config.json`, so that one set of checks holds for
//! both.

use super::{Config, Scaling, field::Fields};
use crate::{
    error::{Error, ErrorKind, Result, printable},
    weights::{Gguf, Value as Metadata},
};
use serde_json::{Map, Value, json};

/// Architectures that are read.
const ARCHITECTURE: &str = "llama";

/// Tensor with one divisor for each rotary frequency (Llama 3.1 and later).
const DIVISORS: &str = "rope_freqs.weight";

pub(super) fn read(gguf: &Gguf<'_>) -> Result<Config> {
    let architecture = gguf.value("general.architecture").and_then(Metadata::as_text);
    match architecture {
        Some(ARCHITECTURE) => {}
        Some(other) => {
            let message =
                format!("gguf architecture is not known (known: {ARCHITECTURE}): {}", printable(other));
            return Err(Error::unsupported(message));
        }
        None => return Err(Error::format("metadata is missing: general.architecture")),
    }
    if let Some(experts) = number(gguf, "expert_count").filter(|count| *count != json!(0)) {
        return Err(Error::unsupported(format!("mixtures of experts are not read, experts: {experts}")));
    }
    let mut config = Config::from_fields(Fields(&fields(gguf)?))?;
    if let Some(rotated) = number(gguf, "rope.dimension_count").filter(|it| *it != json!(config.head_width)) {
        let message =
            format!("heads of {} that are rotated in part are not read: {rotated}", config.head_width);
        return Err(Error::unsupported(message));
    }
    if let Some(divisors) = gguf.tensor(DIVISORS) {
        let divisors = divisors.floats().map_err(|error| error.of_tensor(DIVISORS))?;
        config.rope.scaling = Scaling::Divisors { divisors, attention_factor: 1.0 };
    }
    Ok(config)
}

fn fields(gguf: &Gguf<'_>) -> Result<Map<String, Value>> {
    let embedding = gguf
        .tensor("token_embd.weight")
        .ok_or_else(|| Error::new(ErrorKind::Tensor, "is not in the file").of_tensor("token_embd.weight"))?;
    let mut fields = Map::new();
    let mut set = |key: &str, value: Option<Value>| value.map(|value| fields.insert(key.to_owned(), value));
    set("model_type", Some(json!(ARCHITECTURE)));
    set("vocab_size", embedding.shape().first().map(|&rows| json!(rows)));
    set("tie_word_embeddings", Some(json!(gguf.tensor("output.weight").is_none())));
    for (key, name) in [
        ("hidden_size", "embedding_length"),
        ("num_hidden_layers", "block_count"),
        ("intermediate_size", "feed_forward_length"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("max_position_embeddings", "context_length"),
        ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
        ("rope_theta", "rope.freq_base"),
    ] {
        set(key, number(gguf, name));
    }
    set("rope_scaling", scaling(gguf)?);
    // Biases are optional in these files and known by their tensors.
    set("attention_bias", Some(json!(gguf.tensor("blk.0.attn_q.bias").is_some())));
    set("mlp_bias", Some(json!(gguf.tensor("blk.0.ffn_gate.bias").is_some())));
    for (key, name) in [("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")] {
        set(
            key,
            gguf.value(&format!("tokenizer.ggml.{name}")).and_then(Metadata::as_unsigned).map(|id| json!(id)),
        );
    }
    Ok(fields)
}

fn scaling(gguf: &Gguf<'_>) -> Result<Option<Value>> {
    let kind = gguf.value(&format!("{ARCHITECTURE}.rope.scaling.type")).and_then(Metadata::as_text);
    let factor = number(gguf, "rope.scaling.factor").or_else(|| number(gguf, "rope.scale_linear"));
    match (kind, factor) {
        (Some("none"), _) | (None, None) => Ok(None),
        (Some("linear") | None, Some(factor)) => Ok(Some(json!({ "type": "linear", "factor": factor }))),
        (Some("yarn"), Some(factor)) => Ok(Some(json!({
            "type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": number(gguf, "rope.scaling.original_context_length"),
            "beta_fast": number(gguf, "rope.scaling.yarn_beta_fast"),
            "beta_slow": number(gguf, "rope.scaling.yarn_beta_slow"),
        }))),
        (Some(kind), Some(_)) => {
            Err(Error::unsupported(format!("rope scaling is not known: {}", printable(kind))))
        }
        (Some(_), None) => {
            Err(Error::format(format!("metadata is missing: {ARCHITECTURE}.rope.scaling.factor")))
        }
    }
}

/// A number under the architecture's prefix, whole where it is stored so.
fn number(gguf: &Gguf<'_>, name: &str) -> Option<Value> {
    match gguf.value(&format!("{ARCHITECTURE}.{name}"))? {
        Metadata::Unsigned(value) => Some(json!(value)),
        Metadata::Signed(value) => Some(json!(value)),
        Metadata::Float(value) => Some(json!(value)),
        _ => Some(json!("a value that is no number")),
    }
}
