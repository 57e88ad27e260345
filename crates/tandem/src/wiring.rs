//! Joins the crates: a device, a model on it, an engine around it, and its text.

use crate::{
    cli,
    clock::SystemClock,
    error::{Error, Result},
    model_files::ModelFiles,
};
use tandem_contracts::{
    tensor::{self, ErrorKind, OpenDevice, Precision},
    text::{TokenId, Vocabulary},
};
use tandem_engine::{Config, EngineHandle};
use tandem_models::{Checkpoint, Options, weights::GgufVocabulary};
use tandem_serve::{
    model::{Defaults, ModelText, ServedModel},
    text::Tokenizer,
};

/// Loads a model and starts its engine; waits until it can answer.
///
/// # Errors
/// A file, a configuration or a device that cannot be used.
pub(crate) fn start(arguments: &cli::Model, config: Config) -> Result<ServedModel> {
    let files = ModelFiles::open(&arguments.model)?;
    let (text, name) = files.with_source(|source| {
        let checkpoint = Checkpoint::open(source).map_err(|error| unusable(&files, error))?;
        let text = text(&files, checkpoint.vocabulary(), &checkpoint.config().end_tokens)?;
        Ok((text, checkpoint.name().unwrap_or(files.name()).to_owned()))
    })?;
    let defaults = files.folder().and_then(|folder| folder.generation.as_deref());
    let defaults = defaults.map_or_else(Defaults::default, Defaults::from_generation_config);
    let config = Config { vocabulary: Some(text.tokenizer.len()), ..config };
    let engine = engine(files, arguments, config)?;
    Ok(ServedModel::new(name, engine, text, defaults))
}

/// The device, the model and their thread.
fn engine(files: ModelFiles, arguments: &cli::Model, config: Config) -> Result<EngineHandle> {
    let options = Options { precision: arguments.precision.map(precision), ..Options::default() };
    let build = move |device: &tensor::Device| {
        files.with_source(|source| {
            let load = || Checkpoint::open(source)?.load(device, options);
            load().map_err(|error| tensor::Error::new(ErrorKind::Data, "load", error.to_string()))
        })
    };
    let open = open_device(arguments)?;
    tandem_engine::spawn(open, build, config, Box::new(SystemClock::new()))
        .map_err(|error| Error::new("the model could not be started").because(error))
}

fn precision(typed: cli::Precision) -> Precision {
    match typed {
        cli::Precision::Fast => Precision::Fast,
        cli::Precision::Exact => Precision::Exact,
    }
}

fn open_device(arguments: &cli::Model) -> Result<OpenDevice> {
    match arguments.backend {
        cli::Backend::Cpu => open_cpu(arguments),
        cli::Backend::Mlx => open_mlx(),
    }
}

#[cfg(feature = "cpu")]
fn open_cpu(arguments: &cli::Model) -> Result<OpenDevice> {
    let mut options = tandem_backend_cpu::Options::default();
    if let Some(threads) = arguments.threads {
        options.threads = threads.try_into().map_err(|error| Error::new("--threads").because(error))?;
    }
    Ok(Box::new(move || tandem_backend_cpu::open(options)))
}

#[cfg(not(feature = "cpu"))]
fn open_cpu(_: &cli::Model) -> Result<OpenDevice> {
    Err(Error::new("this build has no CPU backend")
        .hint("build with `--features cpu`, or use `--backend mlx`"))
}

#[cfg(any(feature = "mlx", target_os = "macos"))]
fn open_mlx() -> Result<OpenDevice> {
    Ok(Box::new(|| tandem_backend_mlx::open(tandem_backend_mlx::Options::default())))
}

#[cfg(not(any(feature = "mlx", target_os = "macos")))]
fn open_mlx() -> Result<OpenDevice> {
    Err(Error::new("this build has no MLX backend")
        .hint("run `cargo xtask mlx` once and build with `--features mlx`, or use `--backend cpu`"))
}

fn unusable(files: &ModelFiles, error: tandem_models::Error) -> Error {
    Error::new(format!("{} cannot be used", files.name())).because(error)
}

/// Tokeniser and template, from the GGUF file's metadata or from the files beside the weights.
fn text(
    files: &ModelFiles,
    vocabulary: Option<&GgufVocabulary>,
    end_tokens: &[TokenId],
) -> Result<ModelText> {
    let (tokenizer, template) = match (files.folder(), vocabulary) {
        (Some(folder), _) => {
            let special = folder.special_tokens(end_tokens);
            (Tokenizer::from_json(&folder.tokenizer, special), folder.chat_template.clone())
        }
        (None, Some(vocabulary)) => {
            (Tokenizer::from_gguf(text_vocabulary(vocabulary, end_tokens)), vocabulary.chat_template.clone())
        }
        (None, None) => {
            return Err(Error::new(format!("{} carries no vocabulary", files.name()))
                .hint("a GGUF file for text generation has tokenizer.ggml.* metadata"));
        }
    };
    tokenizer
        .and_then(|tokenizer| ModelText::new(tokenizer, template.as_deref()))
        .map_err(|error| Error::new(format!("{} cannot be used", files.name())).because(error))
}

/// A file's vocabulary, as the text side takes it.
fn text_vocabulary(file: &GgufVocabulary, end_tokens: &[TokenId]) -> tandem_serve::text::GgufVocabulary {
    tandem_serve::text::GgufVocabulary {
        model: file.model.clone(),
        pre: file.pre_tokenizer.clone(),
        tokens: file.tokens.clone(),
        kinds: file.token_types.clone(),
        scores: file.scores.clone(),
        merges: file.merges.clone(),
        begin: file.begin,
        end: file.end,
        more_ends: end_tokens.to_vec(),
        unknown: file.unknown,
        padding: file.padding,
        add_begin: file.add_begin,
        add_space_prefix: file.add_space_prefix,
    }
}
