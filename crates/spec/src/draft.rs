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

/// Proposes tokens for rows.
pub trait DraftProvider: fmt::Debug {
    /// Names what a stored row's proposals depend on besides its tokens, settings included.
    fn namespace(&self) -> String;

    /// Whether it can propose for rows with adapters.
    fn adapters(&self) -> bool;

    /// Begins a row with its history so far. A row that is known begins anew.
    fn open(&mut self, slot: Slot, history: &[TokenId]);

    /// The tokens that have been chosen since. Rows that are not known are passed over, as everywhere.
    fn commit(&mut self, slot: Slot, tokens: &[TokenId]);

    /// What may come next in each row: one list for each ask, in order, none longer than its `most`, and empty where there
    /// is nothing to say.
    fn propose(&mut self, asks: &[Ask]) -> Vec<Vec<TokenId>>;

    /// Forgets a row.
    fn close(&mut self, slot: Slot);
}
