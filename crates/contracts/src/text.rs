//! Text as the engine needs it: token bytes, special ids, and a matcher that ends a row at a stop string.
//!
//! Both ports are implemented over a real tokeniser outside this crate; the engine and the grammar code work on
//! ids alone. Invariant: text handed out by a [`StopMatcher`] is whole characters, is never taken back, and never
//! contains a stop string or anything after one.

use std::fmt;

/// A token id of one vocabulary. Ids at or above [`Vocabulary::len`] are padding of the output head.
pub type TokenId = u32;

/// The tokens of a model, as bytes.
pub trait Vocabulary: fmt::Debug + Send + Sync {
    /// Number of ids, special ones included; the output head may be wider.
    fn len(&self) -> usize;

    /// Whether there is no token at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that a token adds to a text; `None` outside the vocabulary. A special token gives its name.
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]>;

    /// Whether the token is control text (begin, end, padding, role marks) and never part of an answer.
    fn is_special(&self, token: TokenId) -> bool;

    /// Encodes a piece of text as it would stand inside a longer one: no begin or end token is added.
    fn encode(&self, text: &str) -> Vec<TokenId>;

    /// Ids that end an answer: the union of the model's configuration and the tokeniser's own.
    fn end_tokens(&self) -> &[TokenId];
}

/// What one more token means for the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Text that is now certain: whole characters, nothing that a stop string could still swallow.
    pub text: String,
    /// Index in the request's list of the stop string that has just been completed.
    pub stopped: Option<usize>,
}

/// Turns one row's tokens into text and watches for its stop strings.
///
/// Runs on the engine thread at delivery, so that the text, the token counts and the row's state never disagree.
pub trait StopMatcher: Send {
    /// Takes the next sampled token. After `stopped` is `Some`, nothing more may be pushed.
    fn push(&mut self, token: TokenId) -> Delta;

    /// The row ended without a stop string: hands out what was held back. What was still open may turn out to complete one.
    fn finish(&mut self) -> Delta;
}
