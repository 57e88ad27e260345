//! One forward pass: packed tokens, and the rows that they continue.
//!
//! Invariant: positions are fixed before the first layer appends, so that no layer sees another's progress.

use std::{collections::BTreeMap, ops::Range};
use tandem_contracts::{
    model::Slot,
    tensor::{Device, Error, ErrorKind, Precision, Result, RowSpan, Tensor},
};
use tandem_kv::Row;

/// Open rows of a session.
pub(crate) type Rows = BTreeMap<Slot, Row>;

/// A row's place among the packed tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedRow {
    pub(crate) slot: Slot,
    pub(crate) tokens: Range<usize>,
}

/// What every layer of a pass shares.
pub(crate) struct Pass<'p> {
    pub(crate) device: &'p Device,
    pub(crate) precision: Precision,
    /// Position of each packed token in its row: `i32 [tokens]`.
    pub(crate) positions: &'p Tensor,
    pub(crate) packed: &'p [PackedRow],
    pub(crate) rows: &'p mut Rows,
}

impl Pass<'_> {
    /// Appends packed keys and values `[tokens, heads, width]` of a layer, each row's own to that row.
    pub(crate) fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        for PackedRow { slot, tokens } in self.packed {
            let row = self.rows.get_mut(slot).ok_or_else(|| not_open(*slot))?;
            row.append(layer, keys, values, tokens.clone())?;
        }
        Ok(())
    }

    /// What the packed queries attend to in a layer.
    pub(crate) fn spans(&self, layer: usize) -> Result<Vec<RowSpan<'_>>> {
        let span = |PackedRow { slot, tokens }: &PackedRow| {
            self.rows.get(slot).ok_or_else(|| not_open(*slot))?.span(layer, tokens.clone())
        };
        self.packed.iter().map(span).collect()
    }
}

/// The error of a slot that holds no row.
pub(crate) fn not_open(slot: Slot) -> Error {
    Error::new(ErrorKind::State, "session", format!("slot is not open: {}", slot.0))
}
