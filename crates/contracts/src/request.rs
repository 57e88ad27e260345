//! What a client submits to an engine, and the events that come back.
//!
//! Invariants: every accepted request ends with exactly one [`Event::Finished`]; the texts of its
//! [`Event::Delta`]s, joined, are the whole answer; token counts are those of tokens really processed.

use crate::{
    execution::Reason,
    fill::Fill,
    grammar::Matcher,
    model::StatePolicy,
    sampling::Sampling,
    text::{StopMatcher, TokenId},
};
use std::fmt;

/// Names one request for as long as its engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request-{}", self.0)
    }
}

/// One prompt to be continued.
pub struct Request {
    /// The prompt's tokens, at least one, all inside the vocabulary.
    pub prompt: Vec<TokenId>,
    /// How many tokens may be generated; at least one, or none where the prompt is scored.
    pub max_tokens: usize,
    /// How each token is chosen.
    pub sampling: Sampling,
    /// How its keys and values are kept; none is the engine's own way.
    pub state: Option<StatePolicy>,
    /// Which log-probabilities are wanted.
    pub scoring: Scoring,
    /// Tokens that end the answer without being part of it.
    pub end_tokens: Vec<TokenId>,
    /// Whether an end token is an ordinary token (benchmarks).
    pub ignore_end: bool,
    /// Turns tokens into text and finds stop strings.
    pub text: Box<dyn StopMatcher>,
    /// What binds the answer to a form.
    pub grammar: Option<Box<dyn Matcher>>,
    /// What it determines of the answer beforehand.
    pub fill: Option<Fill>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("prompt", &self.prompt.len())
            .field("max_tokens", &self.max_tokens)
            .field("sampling", &self.sampling)
            .field("state", &self.state)
            .field("scoring", &self.scoring)
            .field("end_tokens", &self.end_tokens)
            .field("ignore_end", &self.ignore_end)
            .field("grammar", &self.grammar)
            .field("fill", &self.fill.as_ref().map(|fill| fill.rules.len()))
            .finish_non_exhaustive()
    }
}

/// Which tokens come with log-probabilities; `Some` says with how many of the most likely tokens at each place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scoring {
    /// The answer's.
    pub answer: Option<usize>,
    /// The prompt's, but for the first, which nothing comes before.
    pub prompt: Option<usize>,
}

/// What a model thinks of one token, as natural logarithms of probabilities: of an answer's token by the logits that
/// it was chosen by, after bias, penalties and mask, before filters and temperature; of a prompt's token by the model's
/// own logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Of the token itself; negative infinity where it was impossible.
    pub log_probability: f32,
    /// The most likely tokens, the best first, ties by ascending id. Fewer than were asked for where the vocabulary
    /// has fewer that are possible.
    pub top: Vec<(TokenId, f32)>,
}

/// What a request's consumer sees, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The prompt is being processed: tokens done of all. The first one says that the request has got its row.
    Progress {
        /// Prompt tokens in the cache.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// What the model thinks of more of the prompt's tokens, in their order from the second on.
    Prompt {
        /// One for each token.
        scores: Vec<Score>,
    },
    /// More of the answer. Deltas to a slow reader are merged; `tokens` may then hold many.
    Delta {
        /// Text that is now certain; may be empty while characters or stop strings are open.
        text: String,
        /// Tokens sampled since the last delta, an end token excluded.
        tokens: Vec<TokenId>,
        /// One for each of the tokens where they were asked for, none otherwise.
        scores: Vec<Score>,
    },
    /// The one terminal event.
    Finished {
        /// Why the row ended.
        outcome: Outcome,
        /// What it cost.
        usage: Usage,
    },
}

/// Why a row ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An end token was sampled.
    End,
    /// The stop string of this index was completed.
    Stop(usize),
    /// `max_tokens` or the context's end was reached.
    Length,
    /// The consumer went away, or asked for it.
    Cancelled,
    /// The iteration that carried the row failed.
    Failed(Failure),
}

/// A failure as the consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// One line, lower case, without secrets.
    pub message: String,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that came from stored state instead of a forward pass.
    pub cached_tokens: usize,
    /// Tokens sampled or filled in; an end token counts, as it was paid for.
    pub completion_tokens: usize,
    /// Tokens that were proposed and verified.
    pub drafted_tokens: usize,
    /// How many of them were chosen.
    pub accepted_tokens: usize,
    /// Tokens of the answer that the request determined, so that nobody chose them.
    pub filled_tokens: usize,
}

/// Why a request was not accepted. Nothing of it ran.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The prompt holds no token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Nothing may be generated.
    #[error("max_tokens must be at least 1")]
    NoTokens,
    /// Prompt and answer do not fit.
    #[error("this model's context is {context} tokens, the prompt has: {prompt}")]
    ContextExceeded {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the model takes.
        context: usize,
    },
    /// Prompt and answer may come to more than can ever be cached.
    #[error(
        "the caches hold {longest} tokens of one request, a shorter prompt or a lower max_tokens takes less, it may come to: \
         {tokens}"
    )]
    CacheExceeded {
        /// Tokens of the prompt and the longest answer asked for.
        tokens: usize,
        /// Tokens that a request may come to.
        longest: usize,
    },
    /// The engine keeps no rows in the way that was asked for.
    #[error("this server keeps no keys and values in that way")]
    UnknownState,
    /// A token id that the model does not have.
    #[error("token id outside the vocabulary of {vocabulary}: {token}")]
    UnknownToken {
        /// The id.
        token: TokenId,
        /// Number of ids.
        vocabulary: usize,
    },
    /// The request is well formed, and cannot run here.
    #[error("this model cannot run the request as asked for: {}", listed(reasons))]
    Unsupported {
        /// Why, in order; at least one.
        reasons: Vec<Reason>,
    },
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SamplingError),
    /// Too many requests wait already.
    #[error("the queue is full: {limit} requests wait")]
    QueueFull {
        /// The bound.
        limit: usize,
    },
    /// More requests were submitted together than may ever wait.
    #[error("at most {limit} answers can be asked for at once")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// The engine is draining or its thread has died.
    #[error("the engine takes no requests: {0}")]
    Closed(&'static str),
}

fn listed(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_cannot_run_says_every_reason() {
        let reasons = vec![Reason::AdapterBatchUnsupported, Reason::GrammarBatchUnsupported];
        let message = "this model cannot run the request as asked for: adapter-batch-unsupported, \
                       grammar-batch-unsupported";
        assert_eq!(Rejection::Unsupported { reasons }.to_string(), message);
    }
}
