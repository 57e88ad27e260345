//! Rows whose layers lie together.
//!
//! ```text
//!   BankRows --- RaggedRows, from which layers have been taken out
//!      |
//!      \-- for each layer, before and after its transition: a Bank with that layer of all rows
//!            Sheet  (padded)   Pool  (paged)
//! ```
//!
//! A row joins with planes of its own. When it takes part in a step its layers move into their banks; layers that no
//! bank is for, and long steps of rows that share no plane yet, are stepped as ragged rows are. So rows of one step may
//! lie anywhere, some before a threshold and some beyond it, and each is what it would be alone.
//!
//! Invariants:
//!
//! 1. A layer of a row lies in the row or in one bank, never in both.
//! 2. A bank that fails before the device has its planes has changed nothing. A failure while the device has them loses
//!    the layer of every row in the bank, and each of those rows says so from then on; rows that join later do not.

mod rows;
mod scope;
#[cfg(test)]
mod tests;

pub use crate::paged::{Cause, Paging, Unpaged};
pub use rows::BankRows;
pub(crate) use scope::{Scope, Transfer, carry, transfers};

use crate::ragged::{Layer, Stretch, View};
use std::{fmt, ops::Range};
use tandem_contracts::{
    model::Slot,
    tensor::{Result, Tensor},
};

/// A row's part of an open step.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) slot: Slot,
    /// Its tokens among the packed ones.
    pub(crate) tokens: Range<usize>,
    pub(crate) step: Stretch,
}

/// One layer, stored one way, of many rows.
pub(crate) trait Bank: fmt::Debug {
    /// Whether a row's layer lies here, be it lost.
    fn holds(&self, slot: Slot) -> bool;

    /// Whether it can still be read.
    ///
    /// # Errors
    /// It was lost.
    fn check(&self, slot: Slot) -> Result<()>;

    /// Fewest tokens to which a row can be shortened.
    fn floor(&self, slot: Slot) -> usize;

    /// Makes room for a step of rows that lie here or join now, with their own layers.
    ///
    /// # Errors
    /// No room, or the device's own. None has joined then.
    fn prepare(&mut self, shares: &[Share], joining: &[(Slot, &Layer)]) -> Result<()>;

    /// Writes the step's fields, packed `[tokens, heads, extent]`.
    ///
    /// # Errors
    /// Operands that do not fit, or the device's own.
    fn append(&mut self, shares: &[Share], fields: &[Tensor]) -> Result<()>;

    /// What attention reads.
    ///
    /// # Errors
    /// The device's own.
    fn view(&self, share: &Share) -> Result<View>;

    /// Notes that a row has so many tokens, whatever was written beyond.
    fn settle(&mut self, slot: Slot, tokens: usize);

    /// The row's layer in planes of its own.
    ///
    /// # Errors
    /// It was lost, or the device's own.
    fn lift(&self, slot: Slot) -> Result<Layer>;

    /// Makes `to` a copy of `from`.
    fn fork(&mut self, from: Slot, to: Slot);

    /// Forgets a row.
    fn discard(&mut self, slot: Slot);

    /// Every plane.
    fn planes(&self) -> &[Tensor];
}
