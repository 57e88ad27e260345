//! One forward pass: packed tokens, and the rows that they continue.
//!
//! Invariant: positions are fixed before the first layer appends, so that no layer sees another's progress.

use tandem_contracts::tensor::{Attend, Device, Precision, Result, RowSpan, Tensor};
use tandem_kv::rows::{Part, Rows};

/// What every layer of a pass shares.
pub(crate) struct Pass<'p> {
    pub(crate) device: &'p Device,
    pub(crate) precision: Precision,
    /// Position of each packed token in its row: `i32 [tokens]`.
    pub(crate) positions: &'p Tensor,
    pub(crate) parts: &'p [Part],
    /// In a step of these parts.
    pub(crate) rows: &'p mut dyn Rows,
}

impl Pass<'_> {
    /// Appends packed keys and values `[tokens, heads, width]` of a layer, each row's own to that row.
    pub(crate) fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.rows.append(layer, keys, values)
    }

    /// Attention of packed queries `[tokens, heads, width]` to what their rows keep in a layer.
    pub(crate) fn attend(&self, layer: usize, queries: &Tensor, how: &Attend<'_>) -> Result<Tensor> {
        let views = self.rows.views(layer)?;
        let spans: Vec<RowSpan<'_>> =
            views.iter().zip(self.parts).map(|(view, part)| view.span(part.tokens.clone())).collect();
        self.device.attend(queries, &spans, how)
    }
}
