//! One forward pass: packed tokens, and the rows that they continue.
//!
//! Invariant: positions are fixed before the first layer appends, so that no layer sees another's progress.

use super::Adapted;
use tandem_contracts::tensor::{Attend, Device, Error, ErrorKind, Precision, Result, RowSpan, Tensor};
use tandem_kv::rows::{Part, Rows};

/// What every layer of a pass shares.
pub(crate) struct Pass<'p> {
    pub(crate) device: &'p Device,
    pub(crate) precision: Precision,
    /// Position of each packed token in its row: `i32 [tokens]`.
    pub(crate) positions: &'p Tensor,
    pub(crate) parts: &'p [Part],
    /// Rows with adapters: no token is in two of them.
    pub(crate) adapted: &'p [Adapted<'p>],
    /// In a step of these parts.
    pub(crate) rows: &'p mut dyn Rows,
}

impl Pass<'_> {
    /// Appends packed keys and values `[tokens, heads, width]` of a layer, each row's own to that row.
    pub(crate) fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.rows.append(layer, keys, values)
    }

    /// Attention of packed queries `[tokens, heads, width]` to what their rows keep in a layer. A first step that
    /// begins before `keep_from` sees the last positions of a window only.
    pub(crate) fn attend(
        &self,
        layer: usize,
        queries: &Tensor,
        how: &Attend<'_>,
        keep_from: usize,
    ) -> Result<Tensor> {
        let views = self.rows.views(layer)?;
        let spans = views.iter().zip(self.parts).map(|(view, part)| view.span(part.tokens.clone()));
        if keep_from == 0 {
            return self.device.attend(queries, &spans.collect::<Vec<_>>(), how);
        }
        let [_, heads, width] = [0, 1, 2].map(|axis| queries.shape()[axis]);
        let row = |span: RowSpan<'_>| {
            let own = self.device.slice(queries, &[span.queries.clone(), 0..heads, 0..width])?;
            if (1..keep_from).contains(&span.position) {
                let message =
                    format!("a prompt of {keep_from} tokens must be one step, got: {}", span.position);
                return Err(Error::new(ErrorKind::Unsupported, "attend", message));
            }
            let keep = if span.position < keep_from { 0 } else { how.keep };
            let span = RowSpan { queries: 0..span.queries.len(), ..span };
            self.device.attend(&own, &[span], &Attend { keep, ..*how })
        };
        let rows = spans.map(row).collect::<Result<Vec<_>>>()?;
        self.device.concat(&rows.iter().collect::<Vec<_>>(), 0)
    }
}
