//! What attention reads of one layer of one row.
//!
//! Invariant: a view holds values, not places. It stays what it is when its row is appended to, shortened or dropped; but
//! while it lives an append has to copy the planes that it holds.

use super::{
    kit::Coders,
    layer::{Layer, Stretch},
    place::Runs,
};
use crate::codec::Held;
use std::ops::Range;
use tandem_contracts::tensor::{Error, ErrorKind, Result, RowSpan, Tensor};

/// Keys and values, where their positions lie, and where the queries stand.
#[derive(Clone, Debug)]
pub struct View {
    position: usize,
    runs: Runs,
    keys: Held,
    values: Held,
}

impl View {
    /// Of a layer that has the step's tokens.
    pub(super) fn new(layer: &Layer, coders: &Coders, step: Stretch) -> Result<Self> {
        let runs = layer.place.sight(step.position, step.tokens);
        Self::over(coders, layer.store.planes()?, (step.position, runs))
    }

    /// Of runs of planes `[rows, heads, columns, extent]`, for queries from `position` on.
    pub(crate) fn over(coders: &Coders, planes: &[Tensor], (position, runs): (usize, Runs)) -> Result<Self> {
        if runs.is_empty() {
            return Err(Error::new(ErrorKind::State, "view", "nothing is held"));
        }
        if planes.is_empty() {
            return Err(Error::new(ErrorKind::State, "view", "nothing is reserved"));
        }
        let (keys, values) = planes.split_at(coders.key_fields.min(planes.len()));
        let (keys, values) = (coders.keys.held(keys)?, coders.values.held(values)?);
        Ok(Self { position, runs, keys, values })
    }

    /// The span of the row's queries, which are at `queries` of the packed ones.
    pub fn span(&self, queries: Range<usize>) -> RowSpan<'_> {
        RowSpan {
            queries,
            position: self.position,
            keys: self.keys.plane(),
            values: self.values.plane(),
            runs: &self.runs,
        }
    }
}
