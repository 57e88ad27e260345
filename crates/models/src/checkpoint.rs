//! A model in its files: opened without a device, loaded onto one.
//!
//! Opening reads configuration and headers, so that a caller knows the model (and a GGUF file's vocabulary) and has
//! met every malformed header before a device is bothered.

use crate::{
    config::{self, Config, Normalisation},
    dense::{Declaration, Decoder},
    error::{Error, Result},
    family,
    layer::{Loader, Recoding},
    session::{DecoderSession, Layers, Model},
    weights::{File, Gguf, GgufVocabulary, Value, Weights},
};
use tandem_contracts::{
    execution::ModelFacts,
    model::{Capabilities, Session},
    tensor::{Affine, Device, Dtype, Precision},
};
use tandem_kv::{Kind, Layout};

/// Most tokens of a step with which rows come together where they share planes: single tokens and windows of drafts do,
/// chunks of prompts do not.
pub const TOGETHER: usize = 64;

/// Name under which errors speak of the configuration.
const CONFIG: &str = "config.json";

/// The files of one model.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// A folder as MLX and transformers write it.
    Safetensors {
        /// `config.json`.
        config: &'a [u8],
        /// `generation_config.json`, if there is one; it may name more end tokens.
        generation: Option<&'a [u8]>,
        /// `model.safetensors.index.json`, if there is one; see [`crate::weights::shards`].
        index: Option<&'a [u8]>,
        /// The weight files.
        files: Vec<File<'a>>,
    },
    /// One file with everything.
    Gguf(File<'a>),
}

/// How a model is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Arithmetic of products; the device's default where there is none.
    pub precision: Option<Precision>,
    /// Fewer tokens than the model's own context.
    pub context: Option<usize>,
    /// Floats of cached keys and values. Where there is none: in exact arithmetic those that the device computes in,
    /// in fast arithmetic 16-bit ones, because reading the cache is most of a long context's work: the checkpoint's
    /// own if those have 16 bits, else f16, which keeps 3 more bits than bf16.
    pub cache: Option<Dtype>,
    /// Bounds what layers keep that would keep everything.
    pub ring: Option<Ring>,
    /// Codes that the weights of products and embeddings become where they come as floats. Norms, routers and the gates
    /// of units beside experts stay, and what cannot become such codes does: [`DecoderSession::notes`].
    pub quantize: Option<Affine>,
    /// How the caches of live rows lie beside each other; as the device's attention wants it where there is none.
    pub layout: Option<Layout>,
}

/// The first positions of a row and the last ones, in place of all of them (attention sinks; Xiao et al.,
/// arXiv:2309.17453). What a query sees depends on its position alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Positions that a query sees, its own included.
    pub window: usize,
    /// So many of them are the row's first ones; less than the window.
    pub keep: usize,
    /// Queries of a row's first step, up to this position, see the last positions only, `window` of them, as mlx-lm has
    /// it for a prompt that it takes in one call; a second step that begins before it is refused. 0 is the rule without
    /// that exception.
    pub from: usize,
}

/// An opened model.
#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    config: Config,
    weights: Weights<'a>,
    vocabulary: Option<GgufVocabulary>,
    name: Option<String>,
}

impl<'a> Checkpoint<'a> {
    /// Reads configuration and headers.
    ///
    /// # Errors
    /// A malformed or unknown file or configuration; the error names the file, and the tensor where it is about one.
    pub fn open(source: Source<'a>) -> Result<Self> {
        match source {
            Source::Gguf(file) => {
                let gguf = Gguf::parse(file)?;
                let vocabulary = match gguf.value("tokenizer.ggml.model") {
                    Some(_) => Some(GgufVocabulary::read(&gguf)?),
                    None => None,
                };
                let mut checkpoint = Self::of_gguf(gguf)?;
                if let Some(vocabulary) = &vocabulary {
                    checkpoint.config.add_end_tokens(&vocabulary.end_tokens());
                }
                Ok(Self { vocabulary, ..checkpoint })
            }
            Source::Safetensors { config, generation, index, files } => {
                let mut config = Config::from_json(config).map_err(|error| error.in_file(CONFIG))?;
                if let Some(generation) = generation {
                    let more = config::end_tokens(generation);
                    config.add_end_tokens(&more.map_err(|error| error.in_file("generation_config.json"))?);
                }
                let weights = Weights::safetensors(&files, index)?;
                Ok(Self { config, weights, vocabulary: None, name: None })
            }
        }
    }

    /// Reads what a session needs: as [`Self::open`], but the vocabulary of a GGUF file stays unread.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_session(source: Source<'a>) -> Result<Self> {
        match source {
            Source::Gguf(file) => Self::of_gguf(Gguf::parse(file)?),
            other @ Source::Safetensors { .. } => Self::open(other),
        }
    }

    fn of_gguf(gguf: Gguf<'a>) -> Result<Self> {
        let config = Config::from_gguf(&gguf)?;
        let name = gguf.value("general.name").and_then(Value::as_text).map(str::to_owned);
        let weights = Weights::gguf(gguf, config.heads, config.shared_heads)?;
        Ok(Self { config, weights, vocabulary: None, name })
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The vocabulary that the file carries, if it is a GGUF file with one.
    pub fn vocabulary(&self) -> Option<&GgufVocabulary> {
        self.vocabulary.as_ref()
    }

    /// As [`Self::vocabulary`], taken out.
    pub fn into_vocabulary(self) -> Option<GgufVocabulary> {
        self.vocabulary
    }

    /// The model's name, where the file has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Brings the weights onto a device and makes them a session.
    ///
    /// # Errors
    /// A tensor that is missing, left over, of a wrong shape or type, or malformed; a precision that the device does
    /// not have; or the device's own.
    pub fn load(self, device: &Device, options: Options) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.load_releasing(device, options, &|_| ())?))
    }

    /// As [`Self::load`], and tells which of the files' bytes are not needed any more, tensor by tensor: a mapped
    /// file's pages can go as its weights come.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_releasing(
        mut self,
        device: &Device,
        options: Options,
        release: &dyn Fn(&[u8]),
    ) -> Result<DecoderSession> {
        let family = family::find(self.config.family)?;
        let declaration: Declaration = (family.declare)(&self.config);
        let declaration = match options.ring {
            Some(Ring { window, keep, .. }) if keep >= window => {
                return Err(Error::config(format!(
                    "a ring of {window} positions cannot keep the first: {keep}"
                )));
            }
            Some(ring) => declaration.with_blocks(|block| block.attention.bound(ring)),
            None => declaration,
        };
        self.weights.rename(declaration.renamed)?;
        if (declaration.lacks_one)(&self.weights) {
            self.config.normalisation = Normalisation::RootMeanSquareOfOnePlus;
        }
        let precision = precision(device, options.precision)?;
        let context = options.context.unwrap_or(self.config.context).min(self.config.context);
        if context == 0 {
            return Err(Error::config("a context must hold at least one token, got: 0"));
        }
        let computed = device.traits().compute_dtype;
        let cache = options.cache.unwrap_or_else(|| cache(precision, computed, self.config.activations));
        let layout = options.layout.unwrap_or(match device.traits().ragged_attention {
            true => Layout::Ragged,
            false => Layout::Padded { most: TOGETHER },
        });
        let layers = Layers { kinds: declaration.cached(self.config.hidden), dtype: cache, layout };
        // Rows that forget cannot be shortened.
        let trimmable = layers.kinds.iter().all(|kind| matches!(kind, Kind::Full(_) | Kind::Shared { .. }));
        let mut loader = Loader::new(&mut self.weights, &self.config, device, release);
        loader.recoding = options.quantize.map(Recoding::new).transpose()?;
        let decoder = Decoder::load(&declaration, &mut loader)?;
        let notes = loader.recoding.as_ref().map(Recoding::notes).unwrap_or_default();
        let model = Model { decoder, modules: loader.modules, notes };
        // Every kind of row takes windows of drafts back, and every projection adapters.
        let paged = matches!(layout, Layout::Paged(_));
        let execution =
            ModelFacts { verifies: true, adapters: true, paged, registers: true, ..ModelFacts::default() };
        let capabilities = Capabilities { context, vocabulary: self.config.vocabulary, trimmable, execution };
        Ok(DecoderSession::new(device, model, layers, capabilities, precision))
    }
}

/// Dtype of cached keys and values; see [`Options::cache`].
fn cache(precision: Precision, computed: Dtype, own: Option<Dtype>) -> Dtype {
    let short = |dtype: &Dtype| dtype.size() < Dtype::F32.size();
    match precision {
        Precision::Exact => computed,
        Precision::Fast => Some(computed).filter(short).or(own.filter(short)).unwrap_or(Dtype::F16),
    }
}

fn precision(device: &Device, wanted: Option<Precision>) -> Result<Precision> {
    let known = device.traits().precisions;
    let chosen = match wanted {
        None => known.first(),
        Some(wanted) => known.iter().find(|precision| **precision == wanted),
    };
    chosen.copied().ok_or_else(|| {
        let name = device.traits().name;
        Error::unsupported(format!("the {name} device computes in {known:?}, asked for: {wanted:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_caches_are_short_and_of_the_models_own_kind() {
        let fast = |computed, own| cache(Precision::Fast, computed, own);
        assert_eq!(fast(Dtype::F32, None), Dtype::F16);
        assert_eq!(fast(Dtype::F32, Some(Dtype::F32)), Dtype::F16);
        assert_eq!(fast(Dtype::F32, Some(Dtype::Bf16)), Dtype::Bf16);
        assert_eq!(fast(Dtype::Bf16, Some(Dtype::F16)), Dtype::Bf16);
        assert_eq!(cache(Precision::Exact, Dtype::F32, Some(Dtype::Bf16)), Dtype::F32);
    }
}
