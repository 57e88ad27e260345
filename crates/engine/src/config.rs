//! What an engine may do at once. Plain values, checked where they are typed in.
//!
//! Invariant: no field but [`Config::state`] changes which tokens a request gets, only when it gets them.

use std::time::Duration;
use tandem_contracts::model::StatePolicy;

/// Limits of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Device bytes that the rows' caches may take, by projection to their full length; `None` is no bound.
    pub cache_bytes: Option<usize>,
    /// How the rows' keys and values are kept.
    pub state: StatePolicy,
    /// Ids at or above this are never sampled and not accepted in prompts: the width of the output head may
    /// exceed the tokeniser's vocabulary. `None` takes the model's whole width.
    pub vocabulary: Option<usize>,
    /// A consumer that reads nothing for so long, while output waits, counts as gone.
    pub idle_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_queued: 64,
            max_rows: 16,
            step_tokens: 512,
            prompt_chunk: 512,
            cache_bytes: None,
            state: StatePolicy::Plain,
            vocabulary: None,
            idle_timeout: Duration::from_secs(30),
        }
    }
}
