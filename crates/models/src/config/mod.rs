//! Hyper-parameters of a model: `config.json`, or the metadata of a GGUF file, as one typed value.
//!
//! Invariants of a [`Config`]: every extent is at least 1 and so far below the machine's limits that products of
//! three of them cannot overflow; query heads share key heads evenly; head widths are even; a windowed layer has its
//! window. Nothing is allocated by a claim of the file before it was checked.

mod field;
mod metadata;
mod quantization;
mod rope;

pub use quantization::{Quantization, Scheme};
pub use rope::{RopeConfig, Scaling};

use crate::{
    error::{Error, Result},
    family::{self, Family},
    weights::Gguf,
};
use field::Fields;
use tandem_contracts::{tensor::Dtype, text::TokenId};

/// Longest width of activations and heads.
const WIDEST: u64 = 1 << 20;

/// Most layers or heads.
const MOST: u64 = 1 << 12;

/// Most tokens of a vocabulary.
const LARGEST_VOCABULARY: u64 = 1 << 24;

/// Longest context and window.
const LONGEST: u64 = 1 << 28;

/// Context where the configuration names none.
const DEFAULT_CONTEXT: usize = 2048;

/// Hyper-parameters of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the family, as `model_type` gives it.
    pub family: &'static str,
    /// Width of activations between layers.
    pub hidden: usize,
    /// Width inside the gated unit.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub shared_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Rows of the embedding and of the output head.
    pub vocabulary: usize,
    /// Tokens that a row may hold.
    pub context: usize,
    /// Added to the mean square in norms.
    pub norm_epsilon: f32,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the projections of the gated unit have biases.
    pub mlp_bias: bool,
    /// Whether the output head is the embedding; where the file does not say, the weights do.
    pub tied: Option<bool>,
    /// Rotary positions.
    pub rope: RopeConfig,
    /// The layers in order.
    pub layers: Vec<LayerConfig>,
    /// Which weights are quantised, and how.
    pub quantization: Quantization,
    /// Dtype of activations that the checkpoint was made for, where it says so.
    pub activations: Option<Dtype>,
    /// Token that begins a text.
    pub begin_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub end_tokens: Vec<TokenId>,
}

/// What may differ between the layers of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Positions that a query sees, its own included; all where there is none.
    pub window: Option<usize>,
    /// Whether queries and keys are rotated by their position.
    pub rotary: bool,
}

impl Config {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// Malformed JSON, a model type that is not known (the message names those that are), a value that is missing or
    /// out of range, or a quantisation or scaling that is not known.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let parsed: std::result::Result<serde_json::Value, _> = serde_json::from_slice(bytes);
        let value = parsed.map_err(|error| Error::config("the configuration is not json").because(error))?;
        let object = value.as_object().ok_or_else(|| Error::config("the configuration is no json object"))?;
        Self::from_fields(Fields(object))
    }

    /// Reads the metadata of a GGUF file.
    pub(crate) fn from_gguf(gguf: &Gguf<'_>) -> Result<Self> {
        metadata::read(gguf).map_err(|error| error.in_file(gguf.file()))
    }

    fn from_fields(fields: Fields<'_>) -> Result<Self> {
        let family = family::find(fields.text("model_type")?.ok_or_else(|| missing("model_type"))?)?;
        let count = |key, most| fields.count(key, most)?.ok_or_else(|| missing(key));
        if let Some(activation) = fields.text("hidden_act")?.filter(|&name| name != "silu") {
            return Err(Error::unsupported(format!("hidden_act silu is known, got: {activation}")));
        }
        let (hidden, heads) = (count("hidden_size", WIDEST)?, count("num_attention_heads", MOST)?);
        let context = fields.count("max_position_embeddings", LONGEST)?.unwrap_or(DEFAULT_CONTEXT);
        let config = Self {
            family: family.name,
            hidden,
            intermediate: count("intermediate_size", WIDEST)?,
            heads,
            shared_heads: fields.count("num_key_value_heads", MOST)?.unwrap_or(heads),
            head_width: fields.count("head_dim", WIDEST)?.unwrap_or(hidden / heads),
            vocabulary: count("vocab_size", LARGEST_VOCABULARY)?,
            context,
            norm_epsilon: fields.positive("rms_norm_eps")?.ok_or_else(|| missing("rms_norm_eps"))? as f32,
            attention_bias: fields.flag("attention_bias")?.unwrap_or(false),
            mlp_bias: fields.flag("mlp_bias")?.unwrap_or(false),
            tied: fields.flag("tie_word_embeddings")?,
            rope: RopeConfig::read(fields, context)?,
            layers: layers(fields, family)?,
            quantization: Quantization::read(fields)?,
            activations: activations(fields)?,
            begin_token: fields.ids("bos_token_id")?.first().copied(),
            end_tokens: fields.ids("eos_token_id")?,
        };
        config.check_heads()?;
        Ok(config)
    }

    fn check_heads(&self) -> Result<()> {
        if self.head_width < 2 || !self.head_width.is_multiple_of(2) {
            return Err(Error::config(format!("heads must have an even width, got: {}", self.head_width)));
        }
        if !self.heads.is_multiple_of(self.shared_heads) {
            let message =
                format!("{} query heads do not share key heads evenly: {}", self.heads, self.shared_heads);
            return Err(Error::config(message));
        }
        Ok(())
    }

    /// Adds the end tokens of another source (`generation_config.json`) to those known.
    pub(crate) fn add_end_tokens(&mut self, more: &[TokenId]) {
        for token in more {
            if !self.end_tokens.contains(token) {
                self.end_tokens.push(*token);
            }
        }
    }
}

/// `dtype`, which older files call `torch_dtype`. A name that is not known says nothing: weights have their own dtypes.
fn activations(fields: Fields<'_>) -> Result<Option<Dtype>> {
    let name = fields.text("dtype")?.or(fields.text("torch_dtype")?);
    Ok(name.and_then(|name| match name {
        "float32" => Some(Dtype::F32),
        "float16" => Some(Dtype::F16),
        "bfloat16" => Some(Dtype::Bf16),
        _ => None,
    }))
}

/// Ids that end an answer, of a `generation_config.json`.
pub(crate) fn end_tokens(bytes: &[u8]) -> Result<Vec<TokenId>> {
    let parsed: std::result::Result<serde_json::Map<_, _>, _> = serde_json::from_slice(bytes);
    let object = parsed
        .map_err(|error| Error::config("the generation configuration is no json object").because(error))?;
    Fields(&object).ids("eos_token_id")
}

fn layers(fields: Fields<'_>, family: &Family) -> Result<Vec<LayerConfig>> {
    let count = fields.count("num_hidden_layers", MOST)?.ok_or_else(|| missing("num_hidden_layers"))?;
    let mut layers = vec![LayerConfig { window: None, rotary: true }; count];
    if let Some(kinds) = fields.list("layer_types")? {
        let window = fields.count("sliding_window", LONGEST)?;
        require_each_layer("layer_types", kinds.len(), count)?;
        for (layer, kind) in layers.iter_mut().zip(kinds) {
            layer.window = match kind.as_str() {
                Some("full_attention") => None,
                Some("sliding_attention") => Some(window.ok_or_else(|| missing("sliding_window"))?),
                _ => return Err(Error::unsupported(format!("layer type is not known: {kind}"))),
            };
        }
    }
    let Some(interval) = family.unrotated_interval else { return Ok(layers) };
    if let Some(rotated) = fields.list("no_rope_layers")? {
        // The name says the opposite of its values: 1 is a rotary layer.
        require_each_layer("no_rope_layers", rotated.len(), count)?;
        for (layer, rotates) in layers.iter_mut().zip(rotated) {
            layer.rotary = rotates.as_u64() != Some(0) && rotates.as_bool() != Some(false);
        }
    } else {
        let interval = fields.count("no_rope_layer_interval", MOST)?.unwrap_or(interval);
        layers.iter_mut().skip(interval - 1).step_by(interval).for_each(|layer| layer.rotary = false);
    }
    Ok(layers)
}

fn require_each_layer(key: &str, got: usize, layers: usize) -> Result<()> {
    if got == layers {
        return Ok(());
    }
    Err(Error::config(format!("{key} must name each of {layers} layers, names: {got}")))
}

fn missing(key: &str) -> Error {
    Error::config(format!("the configuration lacks: {key}"))
}

#[cfg(test)]
mod tests;
