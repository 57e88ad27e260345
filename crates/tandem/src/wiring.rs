//! Joins the crates: a device, a model on it, an engine around it, and its text.

use crate::{
    cli::{self, KEPT, KvLayout, KvQuant},
    clock::SystemClock,
    error::{Error, Result},
    model_files::{KV_CONFIG, ModelFiles},
    terminal::Progress,
};
use std::{cell::RefCell, sync::Arc};
use tandem_contracts::{
    model::{Code, Codes, Session, StatePolicy},
    tensor::{self, ErrorKind, OpenDevice, Precision},
    text::{TokenId, Vocabulary},
};
use tandem_engine::{Config, DraftSource, Models, Starting};
use tandem_models::{
    Checkpoint, DecoderSession, Layout, Options, Paging, Ring, TOGETHER, config::layer_codes,
    weights::GgufVocabulary,
};
use tandem_serve::{
    model::{Defaults, ModelText, ServedModel},
    text::Tokenizer,
};

/// Loads a model and starts its engine; waits until it can answer.
///
/// # Errors
/// A file, a configuration or a device that cannot be used.
pub(crate) fn start(arguments: &cli::Model, config: Config) -> Result<ServedModel> {
    let (model, starting) = begin(arguments, config)?;
    starting.wait().map_err(unstartable)?;
    Ok(model)
}

/// The same, without waiting for the weights.
///
/// # Errors
/// A file, a configuration or a device that cannot be used, as far as the text side and the files' heads tell.
pub(crate) fn begin(arguments: &cli::Model, config: Config) -> Result<(ServedModel, Starting)> {
    let files = Arc::new(ModelFiles::open(&arguments.model)?);
    let Head { name, end_tokens, vocabulary } = head(&files)?;
    let states = states(&files, arguments)?;
    let mut policies = states.iter().map(|(_, policy)| policy.clone());
    let state = policies.next().unwrap_or_default();
    let drafting = arguments.proposals.drafting();
    let config = Config { state, states: policies.collect(), drafting, ..config };
    let drafter = Drafter::open(arguments)?;
    let start = |count| {
        let config = Config { vocabulary: Some(count), ..config.clone() };
        engine(&files, arguments, drafter.as_ref().map(|it| &it.files), config)
    };
    // A GGUF file tells the size of its vocabulary, so that weights are loaded while the tokeniser is built.
    let early = vocabulary.as_ref().map(|vocabulary| start(vocabulary.tokens.len())).transpose()?;
    let text = text(&files, vocabulary, &end_tokens)?;
    drafter.iter().try_for_each(|drafter| drafter.speaks(&text.tokenizer))?;
    let starting = early.map_or_else(|| start(text.tokenizer.len()), Ok)?;
    let defaults = files.folder().and_then(|folder| folder.generation.as_deref());
    let defaults = defaults.map_or_else(Defaults::default, Defaults::from_generation_config);
    let model = ServedModel { states, ..ServedModel::new(name, starting.handle(), text, defaults) };
    Ok((model, starting))
}

/// A smaller model that proposes, by its files.
struct Drafter {
    files: Arc<ModelFiles>,
    tokenizer: Tokenizer,
}

impl Drafter {
    fn open(arguments: &cli::Model) -> Result<Option<Self>> {
        let cli::Draft::Model(path) = &arguments.proposals.draft else { return Ok(None) };
        let files = Arc::new(ModelFiles::open(path)?);
        let Head { end_tokens, vocabulary, .. } = head(&files)?;
        let (tokenizer, _) = tokenizer(&files, vocabulary, &end_tokens)?;
        Ok(Some(Self { files, tokenizer }))
    }

    /// Whether each token of a vocabulary is the same in its own.
    fn speaks(&self, other: &Tokenizer) -> Result<()> {
        let word = |tokenizer: &Tokenizer, id| tokenizer.token_bytes(id).map(<[u8]>::to_vec);
        let differs = |id: &TokenId| word(&self.tokenizer, *id) != word(other, *id);
        let Some(id) = (0..other.len() as TokenId).find(differs) else { return Ok(()) };
        let shown = |tokenizer| match word(tokenizer, id) {
            Some(bytes) => format!("{:?}", String::from_utf8_lossy(&bytes)),
            None => "nothing".to_owned(),
        };
        let (here, there) = (shown(other), shown(&self.tokenizer));
        let name = self.files.name();
        Err(Error::new(format!(
            "the draft model {name} has another vocabulary than the model: token {id} is {there}, in the model {here}"
        ))
        .hint("--draft model: takes a smaller model of the same family, or use --draft ngram"))
    }
}

/// What a model's files say besides its weights.
struct Head {
    name: String,
    end_tokens: Vec<TokenId>,
    vocabulary: Option<GgufVocabulary>,
}

fn head(files: &ModelFiles) -> Result<Head> {
    files.with_source(|source| {
        let checkpoint = Checkpoint::open(source).map_err(|error| unusable(files, error))?;
        Ok(Head {
            name: checkpoint.name().unwrap_or(files.name()).to_owned(),
            end_tokens: checkpoint.config().end_tokens.clone(),
            vocabulary: checkpoint.into_vocabulary(),
        })
    })
}

/// The device, the model and their thread, which may still be loading.
fn engine(
    files: &Arc<ModelFiles>,
    arguments: &cli::Model,
    drafter: Option<&Arc<ModelFiles>>,
    config: Config,
) -> Result<Starting> {
    let ring = arguments.max_kv_size.map(|size| Ring { window: size as usize, keep: KEPT as usize, from: 0 });
    let (precision, layout) = (arguments.precision.map(precision), layout(arguments)?);
    let options = Options { precision, ring, layout, quantize: arguments.quantize.0, ..Options::default() };
    let (files, states) = (Arc::clone(files), [vec![config.state.clone()], config.states.clone()].concat());
    let drafter = drafter.map(Arc::clone);
    let build = move |device: &tensor::Device| {
        let session = load(&files, device, options)?;
        let exempted =
            states.iter().map(|state| session.exemptions(state)).collect::<tensor::Result<Vec<_>>>()?;
        for line in session.notes().iter().chain(exempted.iter().flatten()) {
            // Never only a log line: what was asked for is not what is done.
            eprintln!("note: {line}");
        }
        let beside = Options { precision, quantize: options.quantize, ..Options::default() };
        let drafter = drafter.map(|files| load(&files, device, beside)).transpose()?;
        let draft = drafter.map(|session| DraftSource::Model(Box::new(session)));
        Ok(Models { model: Box::new(session), draft })
    };
    let open = open_device(arguments)?;
    tandem_engine::start(open, build, config, Box::new(SystemClock::new())).map_err(unstartable)
}

fn load(files: &ModelFiles, device: &tensor::Device, options: Options) -> tensor::Result<DecoderSession> {
    files.with_source(|source| {
        let progress = RefCell::new(Progress::of_bytes("loading", files.size()));
        let release = |bytes: &[u8]| {
            files.release(bytes);
            progress.borrow_mut().advance(bytes.len() as u64);
        };
        let load = || Checkpoint::open_session(source)?.load_releasing(device, options, &release);
        load().map_err(|error| tensor::Error::new(ErrorKind::Data, "load", error.to_string()))
    })
}

/// An engine that did not start.
pub(crate) fn unstartable(error: tandem_engine::Error) -> Error {
    Error::new("the model could not be started").because(error)
}

fn precision(typed: cli::Precision) -> Precision {
    match typed {
        cli::Precision::Fast => Precision::Fast,
        cli::Precision::Exact => Precision::Exact,
    }
}

/// How the caches of rows lie beside each other, where that was asked for.
fn layout(arguments: &cli::Model) -> Result<Option<Layout>> {
    let pool = arguments.kv_pool.map_or(usize::MAX, |tokens| tokens as usize);
    match arguments.kv_layout {
        Some(KvLayout::Paged) if arguments.max_kv_size.is_some() => Err(Error::new(
            "--kv-layout paged is for caches that are kept whole, --max-kv-size bounds all of them",
        )
        .hint("leave one of them away")),
        Some(KvLayout::Paged) if is_turbo(arguments) => Err(Error::new(
            "--kv-layout paged takes floats and affine codes, --kv-quant asks for TurboQuant from the start",
        )
        .hint("use --kv-quant 8, or leave --kv-layout away")),
        Some(KvLayout::Paged) => Ok(Some(Layout::Paged(Paging::up_to(pool)))),
        _ if arguments.kv_pool.is_some() => {
            Err(Error::new("--kv-pool is the size of a pool, and there is none")
                .hint("add --kv-layout paged, or leave --kv-pool away"))
        }
        Some(KvLayout::Ragged) => Ok(Some(Layout::Ragged)),
        Some(KvLayout::Padded) => Ok(Some(Layout::Padded { most: TOGETHER })),
        None => Ok(None),
    }
}

/// Whether every layer holds TurboQuant's codes from the first token on.
fn is_turbo(arguments: &cli::Model) -> bool {
    let turbo = |kv_quant: &KvQuant| matches!(kv_quant, KvQuant::Code(Code::Turbo { .. }));
    arguments.kv_quant.iter().any(turbo) && arguments.kv_start == 0
}

fn open_device(arguments: &cli::Model) -> Result<OpenDevice> {
    match arguments.backend {
        cli::Backend::Cpu => open_cpu(arguments),
        cli::Backend::Mlx => open_mlx(),
    }
}

/// The ways in which keys and values may be kept, by their names.
fn states(files: &ModelFiles, arguments: &cli::Model) -> Result<Vec<(String, StatePolicy)>> {
    if arguments.kv_start > 0 && arguments.kv_quant.iter().all(|kv_quant| *kv_quant == KvQuant::Off) {
        return Err(Error::new("--kv-start says from where on --kv-quant is to be, which is off")
            .hint("add --kv-quant 8, or leave --kv-start away"));
    }
    let mut states: Vec<(String, StatePolicy)> = Vec::new();
    for kv_quant in &arguments.kv_quant {
        let (name, policy) = (kv_quant.to_string(), state_policy(files, kv_quant, arguments.kv_start)?);
        if let Some((other, _)) = states.iter().find(|(_, known)| *known == policy) {
            return Err(Error::new(format!("--kv-quant names one way twice: {other} and {name}"))
                .hint("leave one of them away"));
        }
        states.push((name, policy));
    }
    Ok(states)
}

/// How keys and values are to be kept.
fn state_policy(files: &ModelFiles, kv_quant: &KvQuant, start: usize) -> Result<StatePolicy> {
    let codes = match kv_quant {
        KvQuant::Off => return Ok(StatePolicy::Plain),
        KvQuant::Code(code) => Codes::Uniform(*code),
        KvQuant::Config => {
            let found = files.folder().and_then(|folder| folder.kv_config.as_deref());
            let json = found.ok_or_else(|| {
                Error::new(format!("{} has no kv_config.json", files.name()))
                    .hint("name a file with --kv-quant FILE.json, or give the bits: --kv-quant 8")
            })?;
            Codes::ByLayer(layer_codes(json).map_err(|error| Error::new(KV_CONFIG).because(error))?)
        }
        KvQuant::File(path) => {
            let json = std::fs::read(path).map_err(|error| Error::file(path, error))?;
            let named = |error| Error::new(path.display().to_string()).because(error);
            Codes::ByLayer(layer_codes(&json).map_err(named)?)
        }
    };
    Ok(StatePolicy::Encoded { codes, start })
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

/// Tokeniser and template.
fn text(files: &ModelFiles, vocabulary: Option<GgufVocabulary>, end_tokens: &[TokenId]) -> Result<ModelText> {
    let (tokenizer, template) = tokenizer(files, vocabulary, end_tokens)?;
    ModelText::new(tokenizer, template.as_deref())
        .map_err(|error| Error::new(format!("{} cannot be used", files.name())).because(error))
}

/// Tokeniser and template, from the GGUF file's metadata or from the files beside the weights.
fn tokenizer(
    files: &ModelFiles,
    vocabulary: Option<GgufVocabulary>,
    end_tokens: &[TokenId],
) -> Result<(Tokenizer, Option<String>)> {
    let (tokenizer, template) = match (files.folder(), vocabulary) {
        (Some(folder), _) => {
            let special = folder.special_tokens(end_tokens);
            (Tokenizer::from_json(&folder.tokenizer, special), folder.chat_template.clone())
        }
        (None, Some(vocabulary)) => {
            let template = vocabulary.chat_template.clone();
            (Tokenizer::from_gguf(text_vocabulary(vocabulary, end_tokens)), template)
        }
        (None, None) => {
            return Err(Error::new(format!("{} carries no vocabulary", files.name()))
                .hint("a GGUF file for text generation has tokenizer.ggml.* metadata"));
        }
    };
    let tokenizer =
        tokenizer.map_err(|error| Error::new(format!("{} cannot be used", files.name())).because(error))?;
    Ok((tokenizer, template))
}

/// A file's vocabulary, as the text side takes it.
fn text_vocabulary(file: GgufVocabulary, end_tokens: &[TokenId]) -> tandem_serve::text::GgufVocabulary {
    tandem_serve::text::GgufVocabulary {
        model: file.model,
        pre: file.pre_tokenizer,
        tokens: file.tokens,
        kinds: file.token_types,
        scores: file.scores,
        merges: file.merges,
        begin: file.begin,
        end: file.end,
        more_ends: end_tokens.to_vec(),
        unknown: file.unknown,
        padding: file.padding,
        add_begin: file.add_begin,
        add_space_prefix: file.add_space_prefix,
    }
}
