//! Rows of one blueprint that are stepped together.
//!
//! ```text
//!   begin([row 3: tokens 0..1, row 7: tokens 1..6])
//!     append(layer 0, keys, values)  views(layer 0)
//!     append(layer 1, keys, values)  views(layer 1)  ..
//!   commit([1, 4])                  row 7 keeps four of its five tokens
//! ```
//!
//! Between steps a row can be taken out, whole and alone, and be put into any other set of rows of the same kit: that
//! is how rows finish, are stored, and are resumed. What lies between is a layout:
//!
//! | layout | planes of a layer | for |
//! |---|---|---|
//! | [`RaggedRows`](crate::ragged::RaggedRows) | each row its own; a join or leave moves nothing | devices whose attention takes such rows |
//! | [`BankRows::padded`](crate::bank::BankRows::padded) | one for all rows, aligned at their ends | devices that attend to many rows at once |
//! | [`BankRows::paged`](crate::bank::BankRows::paged) | blocks of one pool; forks share them | many rows with common beginnings |
//!
//! Invariants of every implementation:
//!
//! 1. What a row holds does not depend on its company: taken out, it equals the row that was stepped alone.
//! 2. A call that fails has changed no row's token count. After tokens that could not be appended, or a state that could
//!    not be carried, the step can only be given up. Rows that a device failure hit say so in every later call, and can
//!    only be dropped.
//! 3. Nothing here evaluates, but to bound the memory of planes that are made of others: of a conversion, and of rows
//!    that move together.

use crate::{
    ragged::{Kit, RaggedRow, View},
    recurrence::Recurrence,
};
use std::{fmt, ops::Range, rc::Rc};
use tandem_contracts::{
    model::Slot,
    tensor::{Result, Tensor},
};

/// A row's part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The row.
    pub slot: Slot,
    /// Its tokens among the packed ones, at least one.
    pub tokens: Range<usize>,
}

/// Rows of one kit, by slot.
pub trait Rows: fmt::Debug {
    /// What the rows are made with.
    fn kit(&self) -> &Rc<Kit>;

    /// Whether there is such a row.
    fn contains(&self, slot: Slot) -> bool;

    /// Tokens that a row holds; those of an open step do not count.
    ///
    /// # Errors
    /// There is no such row, it is unusable, or a step is open that it takes part in.
    fn tokens(&self, slot: Slot) -> Result<usize>;

    /// Fewest tokens to which a row can be shortened now. It may depend on how long its steps were and with whom: planes of
    /// a window that have changed keep only what is read.
    ///
    /// # Errors
    /// As [`Rows::tokens`].
    fn floor(&self, slot: Slot) -> Result<usize>;

    /// Puts a row in.
    ///
    /// # Errors
    /// The slot is taken, the row is of another kit, unusable or in a step, or the device's own.
    fn join(&mut self, slot: Slot, row: RaggedRow) -> Result<()>;

    /// Takes a row out: fresh planes of its own, or those that it had.
    ///
    /// # Errors
    /// There is no such row, a step is open that it takes part in, or the device's own; the row is still there then.
    fn leave(&mut self, slot: Slot) -> Result<RaggedRow>;

    /// Drops a row, whatever its state. Its part leaves an open step, so that what is given for each part, or asked of
    /// each, is one less.
    fn discard(&mut self, slot: Slot);

    /// Makes `to` a copy of `from`.
    ///
    /// # Errors
    /// As [`Rows::leave`] and [`Rows::join`].
    fn fork(&mut self, from: Slot, to: Slot) -> Result<()>;

    /// Shortens a row to its first `tokens` tokens.
    ///
    /// # Errors
    /// As [`RaggedRow::trim`], or there is no such row.
    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()>;

    /// Opens a step: makes room for the parts' tokens, and encodes what their rows hold where a threshold is passed.
    ///
    /// # Errors
    /// A step is open already, a row occurs twice, or as [`RaggedRow::begin`]; no step is open then.
    fn begin(&mut self, parts: &[Part]) -> Result<()>;

    /// Appends packed keys and values `[tokens, heads, width]` of a layer, each part's own to its row.
    ///
    /// # Errors
    /// As [`RaggedRow::append`]; the step can only be given up then.
    fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()>;

    /// Takes the step through a layer that carries a state: packed `inputs`, each with tokens as its first axis, of
    /// which each part has its own. Gives the outputs of all packed tokens. The step holds on to inputs and recurrence
    /// until it is closed, so that it can be kept in part.
    ///
    /// # Errors
    /// As [`recur`](crate::ragged::recur); no row has changed then.
    fn recur(&mut self, layer: usize, inputs: &[Tensor], recurrence: &Rc<dyn Recurrence>) -> Result<Tensor>;

    /// What attention reads in a layer, for each part of the open step in order.
    ///
    /// # Errors
    /// As [`RaggedRow::view`].
    fn views(&self, layer: usize) -> Result<Vec<View>>;

    /// Whether everything that was stored for a part since the step began, and of its row where it was encoded, is finite,
    /// and what layers that carry a state gave: `i32 [parts]`, 1 or 0. None before the first layer. A row with 0 must end.
    ///
    /// # Errors
    /// No step is open, or the device's own.
    fn sound(&self) -> Result<Option<Tensor>>;

    /// Closes the step; each part's first tokens, as many as `keep` says, count from now on. Gives the planes that the
    /// step has written.
    ///
    /// # Errors
    /// No step is open, a layer was not appended to, or more tokens are to be kept than there are; the step stays open.
    fn commit(&mut self, keep: &[usize]) -> Result<Vec<Tensor>>;

    /// Gives up an open step, if there is one.
    fn roll_back(&mut self);
}
