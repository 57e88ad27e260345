//! What binds an answer to a form: which tokens may come next.
//!
//! Implemented over a grammar engine outside this crate; whoever chooses tokens works with sets of ids alone. Invariants of
//! every implementation: a token of the set that [`Matcher::allowed`] gives can be taken by [`Matcher::accept`]; the set is never
//! empty before the answer is [complete](Progress::Complete); the sets follow from the tokens taken alone, not from what was
//! asked or taken back in between; after an error every later call gives one.

use crate::{request::Failure, text::TokenId};
use std::fmt;

/// Where an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More must or may follow.
    Open,
    /// Nothing can follow.
    Complete,
}

/// One answer on its way through a grammar.
pub trait Matcher: fmt::Debug + Send {
    /// Ids that may come next: bit `id % 32` of word `id / 32`; ids beyond the last word may not. An end token may where the
    /// answer may end.
    ///
    /// # Errors
    /// The grammar takes more time or memory than it may.
    fn allowed(&mut self) -> Result<Vec<u32>, Failure>;

    /// Takes the next token.
    ///
    /// # Errors
    /// The token may not come next, or as [`Self::allowed`].
    fn accept(&mut self, token: TokenId) -> Result<Progress, Failure>;

    /// Forgets the last tokens again.
    ///
    /// # Errors
    /// Fewer were taken.
    fn take_back(&mut self, tokens: usize) -> Result<(), Failure>;

    /// The tokens that must come next, as far as the grammar leaves no choice and at most so many: as the model's tokeniser
    /// would write them. Nothing where it cannot tell.
    fn forced(&mut self, most: usize) -> Vec<TokenId>;

    /// How many of these tokens could come next, one after another.
    ///
    /// # Errors
    /// As [`Self::allowed`].
    fn prefix(&mut self, tokens: &[TokenId]) -> Result<usize, Failure>;
}
