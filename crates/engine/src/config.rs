//! What an engine may do at once. Plain values, checked where they are typed in.
//!
//! Invariant: no field but [`Config::state`] and [`Config::states`] changes which tokens a request gets, only when it gets them;
//! but where a draft is mounted, nothing is filled in of what a request determines ([`Request::fill`]).
//!
//! [`Request::fill`]: tandem_contracts::request::Request::fill

use std::{iter, time::Duration};
use tandem_contracts::model::StatePolicy;
use tandem_spec::ngram::Runs;

/// Limits of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Requests that may wait for their row; one more is rejected.
    pub max_queued: usize,
    /// Rows that may be live at once; at least one.
    pub max_rows: usize,
    /// Tokens of one step. Rows that have one token left to process are served first, whatever this says; the
    /// rest goes to prompts, of which each gets at least one token.
    pub step_tokens: usize,
    /// Most tokens that one row's prompt may take of a step; at least one.
    pub prompt_chunk: usize,
    /// How prompts and rows that decode share the device.
    pub mixing: Mixing,
    /// Device bytes that the rows' caches may take, by projection to their full length; `None` is no bound.
    pub cache_bytes: Option<usize>,
    /// How the rows' keys and values are kept.
    pub state: StatePolicy,
    /// Other ways that requests may ask for. Rows that are kept in different ways cannot share steps, and take turns.
    pub states: Vec<StatePolicy>,
    /// Which states of rows that have ended are kept for requests that begin alike.
    pub prefix: PrefixLimits,
    /// What proposes tokens.
    pub drafting: Drafting,
    /// Ids at or above this are never sampled and not accepted in prompts: the width of the output head may
    /// exceed the tokeniser's vocabulary. `None` takes the model's whole width.
    pub vocabulary: Option<usize>,
    /// A consumer that reads nothing for so long, while output waits, counts as gone.
    pub idle_timeout: Duration,
}

/// How tokens are proposed, which the model verifies several in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drafting {
    /// What proposes for every row.
    pub draft: Draft,
    /// Whether grammars propose what they leave no choice of, for rows for which nothing else does.
    pub grammars: bool,
    /// Most proposals of a row in a step.
    pub tokens: usize,
    /// Whether fewer are taken, or none, where more would cost more than they save.
    pub adaptive: bool,
}

/// What proposes tokens for every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draft {
    /// Nothing.
    #[default]
    Off,
    /// The row's own past, by runs of these lengths.
    Past(Runs),
    /// What is built beside the model, be it a smaller model of the same vocabulary: [`Models::draft`](crate::Models).
    Mounted,
}

impl Drafting {
    /// No row gets proposals.
    pub const OFF: Self = Self { draft: Draft::Off, grammars: false, tokens: 0, adaptive: true };
}

impl Default for Drafting {
    fn default() -> Self {
        Self { draft: Draft::Off, grammars: true, tokens: 10, adaptive: true }
    }
}

/// How prompts and rows that decode share the device. Tokens are the same in each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixing {
    /// A step carries both: every decoding row, and as many prompt tokens as leave the gap between two tokens of a row under
    /// a target.
    Packed(Gap),
    /// A step carries either: a chunk of prompts and a token of the decoding rows take turns. This is the plain loop that
    /// packed steps must agree with.
    Alternating,
}

/// The longest time that should pass between two tokens of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// So many times what a step takes that carries the same decoding rows and no prompt.
    Times(f32),
    /// So long.
    Within(Duration),
    /// Any time: prompts take all that a step may carry.
    Any,
}

impl Config {
    /// Every way to keep rows; the engine's own is the first.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &StatePolicy> {
        iter::once(&self.state).chain(&self.states)
    }
}

impl Default for Mixing {
    fn default() -> Self {
        Self::Packed(Gap::Times(3.0))
    }
}

/// What may be kept of rows, so that a request whose prompt begins with the same tokens need not compute them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLimits {
    /// Device bytes of all kept states, which also come out of [`Config::cache_bytes`]; the least recently used go first, and
    /// before a request has to wait. 0 keeps nothing.
    pub bytes: usize,
    /// Fewest tokens that a state is kept for or taken for: below that, computing costs no more than copying.
    pub shortest: usize,
    /// Fewest tokens of a prompt at whose end a state is kept, where rows cannot be shortened to it later.
    pub boundary: usize,
}

impl PrefixLimits {
    /// Nothing is kept.
    pub const OFF: Self = Self { bytes: 0, shortest: 0, boundary: 0 };
}

impl Default for PrefixLimits {
    fn default() -> Self {
        Self { bytes: 2 << 30, shortest: 32, boundary: 256 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_queued: 64,
            max_rows: 16,
            step_tokens: 512,
            prompt_chunk: 512,
            mixing: Mixing::default(),
            cache_bytes: None,
            state: StatePolicy::Plain,
            states: Vec::new(),
            prefix: PrefixLimits::default(),
            drafting: Drafting::default(),
            vocabulary: None,
            idle_timeout: Duration::from_secs(30),
        }
    }
}
