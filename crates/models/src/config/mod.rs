//! Hyper-parameters of a model: `config.json`, or the metadata of a GGUF file, as one typed value.
//!
//! Invariants of a [`Config`]: every extent is at least 1 and so far below the machine's limits that products of
//! three of them cannot overflow; query heads share key heads evenly; head widths are even; a windowed layer has its
//! window, a donor comes before its reader and keeps keys of the same shape. Nothing is allocated by a claim of the file before it was checked.

mod codes;
mod expert;
mod field;
mod layer;
mod metadata;
mod python;
mod quantization;
mod recurrence;
mod rope;
mod scale;

pub use codes::layer_codes;
pub use expert::ExpertConfig;
pub(crate) use expert::{ExpertFields, read_routed};
pub(crate) use field::Fields;
pub use layer::LayerConfig;
pub(crate) use layer::{read_interval, read_pattern, read_unrotated};
pub use quantization::{Quantization, Scheme};
pub use recurrence::{DeltaConfig, RecurrenceConfig, ShortConfig, SpaceConfig};
pub use rope::{RopeConfig, Scaling};
pub use scale::{Normalisation, QueryGrowth, Scales};

use crate::{
    error::{Error, Result, printable},
    family::{self, Family},
    weights::Gguf,
};
use serde_json::{Map, Value};
use tandem_contracts::{
    tensor::{Activation, Dtype},
    text::TokenId,
};

/// Longest width of activations and heads.
pub(crate) const WIDEST: u64 = 1 << 20;

/// Most layers or heads.
pub(crate) const MOST: u64 = 1 << 12;

/// Most tokens of a vocabulary.
pub(crate) const LARGEST_VOCABULARY: u64 = 1 << 24;

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
    /// Activation of the gate.
    pub activation: Activation,
    /// Which norm stands before and behind layers.
    pub normalisation: Normalisation,
    /// Factors and bounds along the graph.
    pub scales: Scales,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the projections of the gated unit have biases.
    pub mlp_bias: bool,
    /// Whether the output head is the embedding; where the file does not say, the weights do.
    pub tied: Option<bool>,
    /// Rotary positions.
    pub rope: RopeConfig,
    /// Those of layers with a window, where they differ.
    pub window_rope: Option<RopeConfig>,
    /// How queries grow with their position, if they do.
    pub query_growth: Option<QueryGrowth>,
    /// Embeddings of which each layer reads its own part, besides the activations.
    pub layer_inputs: Option<LayerInputConfig>,
    /// What layers carry that have no attention.
    pub recurrence: Option<RecurrenceConfig>,
    /// Experts of the layers that have some.
    pub experts: Option<ExpertConfig>,
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

/// Extents of embeddings for each layer (Gemma 3n and 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerInputConfig {
    /// Width of one layer's part.
    pub width: usize,
    /// Rows of the table.
    pub vocabulary: usize,
}

impl Config {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// Malformed JSON, a model type that is not known (the message names those that are), a value that is missing or
    /// out of range, or a quantisation or scaling that is not known.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let value = python::parse(bytes)
            .map_err(|error| Error::config("the configuration is not json").because(error))?;
        let object = value.as_object().ok_or_else(|| Error::config("the configuration is no json object"))?;
        Self::from_fields(Fields(object))
    }

    /// Reads the metadata of a GGUF file.
    pub(crate) fn from_gguf(gguf: &Gguf<'_>) -> Result<Self> {
        metadata::read(gguf).map_err(|error| error.in_file(gguf.file()))
    }

    fn from_fields(given: Fields<'_>) -> Result<Self> {
        let family = family::find(given.text("model_type")?.ok_or_else(|| missing("model_type"))?)?;
        let merged = merge(given, family)?;
        let fields = Fields(&merged);
        let count = |key, most| fields.count(key, most)?.ok_or_else(|| missing(key));
        require_activation(fields, family.activation)?;
        let (hidden, heads) = (count("hidden_size", WIDEST)?, count("num_attention_heads", MOST)?);
        let intermediate =
            fields.count("intermediate_size", WIDEST)?.or(fields.count("block_ff_dim", WIDEST)?);
        let intermediate = intermediate.ok_or_else(|| missing("intermediate_size"))?;
        let layers = count("num_hidden_layers", MOST)?;
        let context = fields.count("max_position_embeddings", LONGEST)?.unwrap_or(DEFAULT_CONTEXT);
        let mut epsilon = None;
        for key in ["rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"] {
            epsilon = epsilon.or(fields.positive(key)?);
        }
        let head_width = fields.count("head_dim", WIDEST)?.unwrap_or(hidden / heads);
        let shared_heads = fields.count("num_key_value_heads", MOST)?.unwrap_or(heads);
        let (rope, window_rope) = RopeConfig::read(fields, context)?;
        let mut config = Self {
            family: family.name,
            hidden,
            intermediate,
            heads,
            shared_heads,
            head_width,
            vocabulary: count("vocab_size", LARGEST_VOCABULARY)?,
            context,
            norm_epsilon: epsilon.ok_or_else(|| missing("rms_norm_eps"))? as f32,
            activation: family.activation,
            normalisation: Normalisation::default(),
            scales: Scales::default(),
            attention_bias: fields.flag("attention_bias")?.unwrap_or(false),
            mlp_bias: fields.flag("mlp_bias")?.unwrap_or(false),
            tied: fields.flag("tie_word_embeddings")?,
            rope,
            window_rope,
            query_growth: None,
            layer_inputs: None,
            recurrence: None,
            experts: None,
            layers: vec![LayerConfig::plain(head_width, shared_heads, intermediate); layers],
            quantization: Quantization::read(fields)?,
            activations: activations(fields)?,
            begin_token: fields.ids("bos_token_id")?.first().copied(),
            end_tokens: fields.ids("eos_token_id")?,
        };
        layer::read_kinds(fields, &mut config.layers)?;
        (family.read)(fields, &mut config)?;
        if config.recurrence.is_none() && config.layers.iter().any(|layer| layer.recurrent) {
            let message = "layers without attention are not known of this family";
            return Err(Error::unsupported(format!("{message}: {}", family.name)));
        }
        config.layers.iter().try_for_each(|layer| config.check_heads(layer))?;
        Ok(config)
    }

    fn check_heads(&self, layer: &LayerConfig) -> Result<()> {
        let &LayerConfig { head_width, shared_heads, donor, .. } = layer;
        if head_width < 2 || !head_width.is_multiple_of(2) {
            return Err(Error::config(format!("heads must have an even width, got: {head_width}")));
        }
        if !self.heads.is_multiple_of(shared_heads) {
            let message = format!("{} query heads do not share key heads evenly: {shared_heads}", self.heads);
            return Err(Error::config(message));
        }
        let Some(donor) = donor.map(|donor| &self.layers[donor]) else { return Ok(()) };
        if (donor.head_width, donor.shared_heads) != (head_width, shared_heads) {
            return Err(Error::config("a layer reads keys of another shape than its own"));
        }
        Ok(())
    }

    /// Rotary positions of a layer.
    pub(crate) fn rope_of(&self, layer: &LayerConfig) -> Option<&RopeConfig> {
        let own = layer.window.and(self.window_rope.as_ref()).unwrap_or(&self.rope);
        layer.rotary.then_some(own)
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
    let parsed: std::result::Result<Map<_, _>, _> = serde_json::from_slice(bytes);
    let object = parsed
        .map_err(|error| Error::config("the generation configuration is no json object").because(error))?;
    Fields(&object).ids("eos_token_id")
}

/// The family's defaults, then the text model's own block, then the fields around it. What is `null` there replaces a
/// default, but no field of the block.
fn merge(given: Fields<'_>, family: &Family) -> Result<Map<String, Value>> {
    let default = |&(key, value): &(&str, f64)| {
        let whole = (value.fract() == 0.0).then_some(value as u64);
        (key.to_owned(), whole.map_or_else(|| Value::from(value), Value::from))
    };
    let mut merged: Map<String, Value> = family.defaults.iter().map(default).collect();
    let block = given.object("text_config")?;
    let outer = given.0.iter().filter(|(key, value)| {
        *key != "text_config" && !(value.is_null() && block.is_some_and(|block| block.0.contains_key(*key)))
    });
    let inner = block.into_iter().flat_map(|block| block.0);
    merged.extend(inner.chain(outer).map(|(key, value)| (key.clone(), value.clone())));
    Ok(merged)
}

fn require_activation(fields: Fields<'_>, known: Activation) -> Result<()> {
    // Early files of the second kind say `gelu` and mean its approximation.
    let names: &[&str] = match known {
        Activation::Silu => &["silu"],
        Activation::GeluTanh => &["gelu_pytorch_tanh", "gelu"],
        Activation::Gelu => &["gelu"],
    };
    for key in ["hidden_act", "hidden_activation"] {
        if let Some(other) = fields.text(key)?.filter(|name| !names.contains(name)) {
            return Err(Error::unsupported(format!(
                "{key} {} is known, got: {}",
                names[0],
                printable(other)
            )));
        }
    }
    Ok(())
}

pub(crate) fn missing(key: &str) -> Error {
    Error::config(format!("the configuration lacks: {key}"))
}

#[cfg(test)]
mod tests;
