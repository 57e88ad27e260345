//! Appends to one layer of some rows, which the device writes together.
//!
//! Invariant: no row's turn moves before all of them are written.

use super::{layer::Layer, row::Pending};
use smallvec::SmallVec;
use tandem_contracts::tensor::{Device, KvAppend, KvWrite, Result, Tensor};

/// One row's part of an append.
pub(super) struct Entry<'a> {
    pub(super) layer: &'a mut Layer,
    pub(super) pending: &'a mut Pending,
    /// The layer whose turn comes then.
    pub(super) next: usize,
    pub(super) fields: &'a [Tensor],
    pub(super) writes: SmallVec<[KvWrite; 2]>,
}

/// Appends to one layer of some rows at once.
///
/// # Errors
/// As [`RaggedRow::append`](super::RaggedRow::append); no row's turn has moved then.
pub(super) fn append<'a>(device: &Device, entries: impl IntoIterator<Item = Entry<'a>>) -> Result<()> {
    let mut entries: SmallVec<[Entry<'a>; 1]> = entries.into_iter().collect();
    let mut appends = Vec::with_capacity(2 * entries.len());
    for Entry { layer, fields, writes, .. } in &mut entries {
        let planes = layer.store.planes_mut(fields.len())?.iter_mut().zip(*fields);
        appends.extend(planes.map(|(plane, tokens)| KvAppend { plane, tokens, writes }));
    }
    device.kv_append_each(&mut appends)?;
    for Entry { layer, pending, next, .. } in entries {
        layer.place.write(pending.step.end());
        pending.layers = next;
    }
    Ok(())
}
