//! How a request is to be run: what it needs, what can be done for it, and what comes of both.
//!
//! ```text
//!   request, caches --> Requirements --+
//!   model, mounted  --> Support -------+--> a pure function of the engine --> Execution, kept with the row
//!   options         --> Features ------+
//! ```
//!
//! Invariants: an [`Execution`] is made once for each request, and everything later reads it instead of asking again;
//! the order of [`Reason`]s is that of the enum, and only those that [exclude](Reason::excludes) make a request one
//! that cannot run.

use std::fmt;

/// How a row comes from its tokens to the next ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// One token after another.
    #[default]
    Autoregressive,
    /// Drafts of several tokens, which the model verifies in one step.
    Speculative,
    /// A block of tokens at once, made clearer step by step.
    Denoising,
}

/// What a loaded model can do beside taking steps. [`Default`] is a decoder that can do nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// The model's own method.
    pub method: Method,
    /// Whether windows of drafts can be verified in rows of every kind that it has, and taken back.
    pub verifies: bool,
    /// Whether adapters can be mounted.
    pub adapters: bool,
    /// Whether it takes images or sound.
    pub media: bool,
    /// Whether its rows lie in blocks of a pool.
    pub paged: bool,
    /// Whether it has a compiled form of a decoding step.
    pub compiled: bool,
    /// Whether a step may go on from tokens that nobody has read: [`Session::register`](crate::model::Session::register).
    pub registers: bool,
}

/// What a request brings. Some facts are for statistics: they never change how it is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Images or sound stand in the prompt.
    pub vision: bool,
    /// It wants adapters.
    pub adapters: bool,
    /// Repeated tokens are penalised. For statistics.
    pub repetition_penalty: bool,
    /// The client named a seed. For statistics.
    pub user_seed: bool,
    /// Some of its keys and values are kept in affine codes.
    pub kv_quant: bool,
    /// Some of its keys and values are kept in TurboQuant's codes.
    pub turbo_quant: bool,
    /// Logits are changed by token, other than by a penalty. For statistics.
    pub logits_extras: bool,
    /// A grammar binds the answer.
    pub grammar: bool,
    /// Log-probabilities are asked for.
    pub logprobs: bool,
    /// A draft is mounted for it.
    pub draft: bool,
    /// Its media have an identity, by which a prefix can be found again.
    pub prepared_prefix_identity: bool,
}

/// What model, rows and whatever is mounted can do for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// The model's own method.
    pub method: Method,
    /// Methods whose rows can share steps.
    pub grouped_methods: Vec<Method>,
    /// Rows may join and leave between steps.
    pub continuous: bool,
    /// So may rows with affine codes.
    pub quantized_batch: bool,
    /// So may rows with TurboQuant's codes.
    pub turbo_quant_batch: bool,
    /// So may rows that a grammar binds.
    pub grammar_batch: bool,
    /// So may rows with adapters.
    pub adapter_batch: bool,
    /// So may rows in blocks.
    pub paged_batch: bool,
    /// So may rows with media.
    pub media_batch: bool,
    /// Prefixes with media can be found again.
    pub media_prefix_cache: bool,
    /// Rows are to be stored while they run, so that they can be resumed.
    pub checkpoints: bool,
    /// This request's row can be.
    pub shared_checkpoints: bool,
    /// Drafts can be verified where keys and values are in affine codes.
    pub speculative_kv_quant: bool,
    /// The same in TurboQuant's codes.
    pub speculative_turbo_quant: bool,
    /// Log-probabilities can be given of verified drafts.
    pub speculative_logprobs: bool,
    /// Drafts can be made for rows with adapters.
    pub shared_speculative_adapters: bool,
    /// A grammar can propose drafts.
    pub shared_grammar_proposals: bool,
    /// Tokens that the request determines can be filled in.
    pub shared_fill: bool,
    /// Tokens that were copied from elsewhere can be verified as drafts.
    pub shared_speculative_echo: bool,
    /// The model has a compiled form of a decoding step.
    pub compiled_decode: bool,
}

/// What server or request ask for where it can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Rows in blocks of a pool.
    pub paged_kv: bool,
    /// Tokens that the request determines are not sampled.
    pub fill: bool,
    /// Decoding steps in the model's compiled form.
    pub compiled_decode: bool,
    /// Tokens that the grammar determines are not sampled.
    pub grammar_jump: bool,
}

/// Whether a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// It does, in steps that it shares with others.
    Continuous,
    /// It cannot.
    Unsupported,
}

/// How one request is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// How its row comes to the next tokens.
    pub method: Method,
    /// Whether it runs.
    pub mechanism: Mechanism,
    /// Its row lies in blocks of a pool.
    pub paged_kv: bool,
    /// Its row may begin with a stored prefix, and be stored. Speculative rows have stores of their own.
    pub prompt_cache: bool,
    /// Its row is stored while it runs.
    pub checkpoint: bool,
    /// Tokens that it determines are not sampled.
    pub fill: bool,
    /// It may take decoding steps in the model's compiled form, where its cache allows that.
    pub compiled_decode: bool,
    /// Tokens that its grammar determines are drafts.
    pub grammar_jump: bool,
    /// Why it cannot run, then what was asked for and is not done; in order, each once.
    pub reasons: Vec<Reason>,
}

impl Execution {
    /// Why the request cannot run; nothing where it does.
    pub fn exclusions(&self) -> Vec<Reason> {
        self.reasons.iter().copied().filter(|reason| reason.excludes()).collect()
    }
}

/// Why a request is not run, or not run as asked for. The order is that in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Rows cannot join and leave between steps.
    ContinuousUnavailable,
    /// Rows of its method cannot share steps.
    MethodBatchUnsupported,
    /// Rows with media cannot.
    MediaBatchUnsupported,
    /// Rows with adapters cannot.
    AdapterBatchUnsupported,
    /// Rows with these affine codes cannot.
    KvSchemeBatchUnsupported,
    /// Rows with TurboQuant's codes cannot.
    TurboKvBatchUnsupported,
    /// Rows that a grammar binds cannot.
    GrammarBatchUnsupported,
    /// Rows in blocks cannot.
    PagedKvBatchUnsupported,
    /// The mounted draft cannot serve the request, which is decoded without it.
    DraftIncompatible,
    /// With media or adapters rows are not kept in blocks.
    PagedKvBypassed,
    /// Nothing can be filled in.
    FillIncompatible,
    /// There is no compiled step for it.
    CompiledDecodeUnavailable,
    /// The grammar proposes no drafts.
    GrammarJumpIncompatible,
}

impl Reason {
    /// Every reason, in order.
    pub const ALL: [Self; 13] = [
        Self::ContinuousUnavailable,
        Self::MethodBatchUnsupported,
        Self::MediaBatchUnsupported,
        Self::AdapterBatchUnsupported,
        Self::KvSchemeBatchUnsupported,
        Self::TurboKvBatchUnsupported,
        Self::GrammarBatchUnsupported,
        Self::PagedKvBatchUnsupported,
        Self::DraftIncompatible,
        Self::PagedKvBypassed,
        Self::FillIncompatible,
        Self::CompiledDecodeUnavailable,
        Self::GrammarJumpIncompatible,
    ];

    /// Whether a request with this reason cannot run. The others say what it does without.
    pub fn excludes(self) -> bool {
        self <= Self::PagedKvBatchUnsupported
    }

    /// As it stands in errors and statistics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContinuousUnavailable => "continuous-unavailable",
            Self::MethodBatchUnsupported => "method-batch-unsupported",
            Self::MediaBatchUnsupported => "media-batch-unsupported",
            Self::AdapterBatchUnsupported => "adapter-batch-unsupported",
            Self::KvSchemeBatchUnsupported => "kv-scheme-batch-unsupported",
            Self::TurboKvBatchUnsupported => "turbo-kv-batch-unsupported",
            Self::GrammarBatchUnsupported => "grammar-batch-unsupported",
            Self::PagedKvBatchUnsupported => "paged-kv-batch-unsupported",
            Self::DraftIncompatible => "draft-incompatible-with-request",
            Self::PagedKvBypassed => "paged-kv-bypassed-for-media-or-adapters",
            Self::FillIncompatible => "fill-incompatible-with-request",
            Self::CompiledDecodeUnavailable => "compiled-decode-unavailable-for-request",
            Self::GrammarJumpIncompatible => "grammar-jump-incompatible-with-request",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
