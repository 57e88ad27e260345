//! Appends to one layer of some rows, which the device writes together.
//!
//! Invariants: no row's turn moves before all of them are written; what an append may have overwritten counts as gone,
//! whether it succeeded or not.

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
    let appended = device.kv_append_each(&mut appends);
    for Entry { layer, pending, next, .. } in entries {
        layer.place.write(pending.step.end());
        if appended.is_ok() {
            pending.layers = next;
        }
    }
    appended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Blueprint, Kind, LayerShape,
        ragged::{Kit, Packed, RaggedRow},
    };
    use std::rc::Rc;
    use tandem_contracts::{fake, tensor::Dtype};

    #[test]
    fn what_an_append_that_failed_may_have_overwritten_cannot_be_gone_back_to() {
        let shape = LayerShape { heads: 1, key_width: 2, value_width: 2 };
        let kind = Kind::Window { shape, window: 6, keep: 0 };
        let kit = Kit::open(&fake::open(), Blueprint::plain(vec![kind], Dtype::F32).unwrap()).unwrap();
        let device = Rc::clone(kit.device());
        let x = |tokens: usize| device.upload_f32(&vec![1.0; 2 * tokens], &[tokens, 1, 2]).unwrap();
        let rows = [true, false].map(|fails| {
            let mut row = RaggedRow::new(Rc::clone(&kit));
            for tokens in [40; 10] {
                row.begin(tokens).unwrap();
                row.append(&mut Packed::new(&kit, 0, &x(tokens), &x(tokens)), 0..tokens).unwrap();
                row.commit(tokens).unwrap();
            }
            let floor = row.floor();
            row.begin(20).unwrap();
            let (given, narrow) = (x(20), [x(20), device.reshape(&x(20), &[40, 1, 1]).unwrap()]);
            let mut packed = Packed::new(&kit, 0, &given, &given);
            row.encode(&mut packed, &(0..20)).unwrap();
            let entry = row.entry(&packed, &(0..20)).unwrap().unwrap();
            let fields = if fails { &narrow } else { entry.fields };
            assert_eq!(append(&device, [Entry { fields, ..entry }]).is_err(), fails);
            assert_eq!(row.view(0).is_err(), fails, "it is still the layer's turn");
            row.roll_back();
            assert!(row.floor() > floor, "the ring has gone round");
            row
        });
        assert_eq!(rows[0].tokens(), 400);
        assert_eq!(rows[0].floor(), rows[1].floor());
    }
}
