//! Hyper-parameters of GGUF metadata, brought into the fields of `config.json`, so that one set of checks holds for
//! both.

use super::{Config, Normalisation, Scaling, field::Fields};
use crate::{
    error::{Error, ErrorKind, Result, printable},
    weights::{Gguf, Value as Metadata},
};
use serde_json::{Map, Value, json};

/// Architectures that are read, and the families that they are.
const ARCHITECTURES: [(&str, &str); 4] =
    [("gemma3", "gemma3_text"), ("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")];

/// Tensor with one divisor for each rotary frequency (Llama 3.1 and later).
const DIVISORS: &str = "rope_freqs.weight";

/// The values under one architecture's prefix.
#[derive(Clone, Copy)]
struct Numbers<'g> {
    gguf: &'g Gguf<'g>,
    architecture: &'static str,
}

pub(super) fn read(gguf: &Gguf<'_>) -> Result<Config> {
    let Some(architecture) = gguf.value("general.architecture").and_then(Metadata::as_text) else {
        return Err(Error::format("metadata is missing: general.architecture"));
    };
    let found = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
    let &(architecture, family) = found.ok_or_else(|| {
        let known = ARCHITECTURES.map(|(name, _)| name).join(", ");
        Error::unsupported(format!(
            "gguf architecture is not known (known: {known}): {}",
            printable(architecture)
        ))
    })?;
    let numbers = Numbers { gguf, architecture };
    if let Some(experts) = numbers.get("expert_count").filter(|count| *count != json!(0)) {
        return Err(Error::unsupported(format!("mixtures of experts are not read, experts: {experts}")));
    }
    let mut config = Config::from_fields(Fields(&fields(numbers, family)?))?;
    if let Some(rotated) = numbers.get("rope.dimension_count").filter(|it| *it != json!(config.head_width)) {
        let message =
            format!("heads of {} that are rotated in part are not read: {rotated}", config.head_width);
        return Err(Error::unsupported(message));
    }
    if let Some(divisors) = gguf.tensor(DIVISORS) {
        let divisors = divisors.floats().map_err(|error| error.of_tensor(DIVISORS))?;
        config.rope.scaling = Scaling::Divisors { divisors, attention_factor: 1.0 };
    }
    if config.normalisation == Normalisation::RootMeanSquareOfOnePlus {
        // The converter adds the one.
        config.normalisation = Normalisation::RootMeanSquare;
    }
    Ok(config)
}

fn fields(numbers: Numbers<'_>, family: &str) -> Result<Map<String, Value>> {
    let gguf = numbers.gguf;
    let embedding = gguf
        .tensor("token_embd.weight")
        .ok_or_else(|| Error::new(ErrorKind::Tensor, "is not in the file").of_tensor("token_embd.weight"))?;
    let mut fields = Map::new();
    let mut set = |key: &str, value: Option<Value>| value.map(|value| fields.insert(key.to_owned(), value));
    set("model_type", Some(json!(family)));
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
        ("sliding_window", "attention.sliding_window"),
    ] {
        set(key, numbers.get(name));
    }
    set("query_pre_attn_scalar", numbers.query_scalar());
    set("rope_scaling", scaling(numbers)?);
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

fn scaling(numbers: Numbers<'_>) -> Result<Option<Value>> {
    let key = |name: &str| format!("{}.{name}", numbers.architecture);
    let kind = numbers.gguf.value(&key("rope.scaling.type")).and_then(Metadata::as_text);
    let factor = numbers.get("rope.scaling.factor").or_else(|| numbers.get("rope.scale_linear"));
    match (kind, factor) {
        (Some("none"), _) | (None, None) => Ok(None),
        (Some("linear") | None, Some(factor)) => Ok(Some(json!({ "type": "linear", "factor": factor }))),
        (Some("yarn"), Some(factor)) => Ok(Some(json!({
            "type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": numbers.get("rope.scaling.original_context_length"),
            "beta_fast": numbers.get("rope.scaling.yarn_beta_fast"),
            "beta_slow": numbers.get("rope.scaling.yarn_beta_slow"),
        }))),
        (Some(kind), Some(_)) => {
            Err(Error::unsupported(format!("rope scaling is not known: {}", printable(kind))))
        }
        (Some(_), None) => Err(Error::format(format!("metadata is missing: {}", key("rope.scaling.factor")))),
    }
}

impl Numbers<'_> {
    /// A number, whole where it is stored so.
    fn get(self, name: &str) -> Option<Value> {
        match self.gguf.value(&format!("{}.{name}", self.architecture))? {
            Metadata::Unsigned(value) => Some(json!(value)),
            Metadata::Signed(value) => Some(json!(value)),
            Metadata::Float(value) if value.is_finite() => Some(json!(value)),
            _ => Some(json!("a value that is no number")),
        }
    }

    /// What Gemma 3 divides scores by the root of, which files leave out: the width of a head, but in the largest
    /// model, of 62 layers, the share of a head in the activations.
    fn query_scalar(self) -> Option<Value> {
        let number = |name| self.get(name).as_ref().and_then(Value::as_u64);
        match number("block_count") {
            Some(62) => {
                number("embedding_length")?.checked_div(number("attention.head_count")?).map(|it| json!(it))
            }
            _ => self.get("attention.key_length"),
        }
    }
}
