//! The port of whatever proposes tokens: for all rows of a step together, each as many as it likes.
//!
//! A row's history is its prompt and every token that has been chosen since, the last of which the model has not read yet.
//! Proposals continue it. They may be anything: the model chooses every token itself, and a wrong proposal costs time alone.
//!
//! Invariants of every implementation: rows do not see each other; what is proposed follows from the history alone, so that
//! a row that was stored and comes back gets the proposals that it would have had.

use std::fmt;
use tandem_contracts::{model::Slot, text::TokenId};

/// A row that wants proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The row.
    pub slot: Slot,
    /// Most tokens that are of use to it.
    pub most: usize,
}

/// What may come next in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// The tokens, in order; none where there is nothing to say.
    pub tokens: Vec<TokenId>,
    /// How sure it is, below [`SORTS`]: guesses of one sort are about equally often right. Which is better is found out.
    pub sort: usize,
}

/// Sorts of guesses.
pub const SORTS: usize = 4;

/// Proposes tokens for rows.
pub trait DraftProvider: fmt::Debug {
    /// Names what a stored row's proposals depend on besides its tokens, settings included.
    fn namespace(&self) -> String;

    /// Whether it can propose for rows with adapters.
    fn adapters(&self) -> bool;

    /// Whether proposing takes time that counts, so that no more is to be asked for than will be tried.
    fn takes_time(&self) -> bool {
        false
    }

    /// Device bytes that it may take for rows on their way to so many tokens each.
    fn bytes(&self, rows: &[usize]) -> usize {
        let _ = rows;
        0
    }

    /// Begins a row with its history so far. A row that is known begins anew.
    fn open(&mut self, slot: Slot, history: &[TokenId]);

    /// The tokens that have been chosen since. Rows that are not known are passed over, as everywhere.
    fn commit(&mut self, slot: Slot, tokens: &[TokenId]);

    /// What may come next in each row: one guess for each ask, in order, none longer than its `most`.
    fn propose(&mut self, asks: &[Ask]) -> Vec<Guess>;

    /// Forgets a row.
    fn close(&mut self, slot: Slot);
}
