//! What a bank is of: one layer of a kit, stored one way; and how positions move between planes.

use crate::{
    codec::Field,
    ragged::{Coders, Kit, Layer, Layout, Place, Store, columns},
};
use std::{ops::Range, rc::Rc};
use tandem_contracts::tensor::{Device, Result, Run, Scalar, Tensor};

/// One layer, before its transition or after it.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) kit: Rc<Kit>,
    pub(crate) layer: usize,
    pub(crate) encoded: bool,
}

/// Consecutive positions, and where they lie in two planes: row and first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) from: (usize, usize),
    pub(crate) to: (usize, usize),
    pub(crate) count: usize,
}

impl Scope {
    pub(crate) fn device(&self) -> &Device {
        self.kit.device()
    }

    pub(crate) fn layout(&self) -> Result<&Layout> {
        self.kit.own(self.layer)
    }

    pub(crate) fn coders(&self) -> Result<&Coders> {
        Ok(self.layout()?.coders(self.encoded))
    }

    /// Positions before `position` that the query there reads.
    pub(crate) fn read_by(&self, position: usize) -> Result<Range<usize>> {
        Ok(Place::new(self.layout()?.window).read_by(position))
    }

    /// Planes `[rows, heads, columns, extent]` of zeros, one for each field.
    pub(crate) fn zeros(&self, rows: usize, columns: usize) -> Result<Vec<Tensor>> {
        let heads = self.layout()?.shape.heads;
        let plane = |field: &Field| {
            let zero = if field.dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
            self.device().full(zero, field.dtype, &[rows, heads, columns, field.extent])
        };
        self.coders()?.fields()?.iter().map(plane).collect()
    }

    /// A row's own layer: fresh planes with what its next step reads, which lies in `runs` of `planes`.
    pub(crate) fn lift(&self, planes: &[Tensor], runs: &[Run], tokens: usize) -> Result<Layer> {
        let layout = self.layout()?;
        let place = Place::new(layout.window).room(layout.growth, tokens, 0);
        let read = place.read_by(tokens);
        if read.is_empty() {
            let place = Place::new(layout.window);
            return Ok(Layer { place, store: Store::Empty, encoded: self.encoded });
        }
        let transfers = transfers(runs, &place.runs(read));
        let fresh = self.zeros(1, place.capacity())?;
        let lifted = fresh.into_iter().zip(planes);
        let lifted = lifted.map(|(fresh, plane)| carry(self.device(), fresh, plane, &transfers));
        Ok(Layer { place, store: Store::Held(lifted.collect::<Result<_>>()?), encoded: self.encoded })
    }
}

/// How positions that lie in `from` come to lie in `to`: the same ones, ascending.
pub(crate) fn transfers(from: &[Run], to: &[Run]) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    let mut to = to.iter();
    let mut target = Run { row: 0, column: 0, positions: 0..0 };
    for source in from {
        let mut first = source.positions.start;
        while first < source.positions.end {
            if target.positions.is_empty() {
                let Some(next) = to.next() else { return transfers };
                target = next.clone();
            }
            let count = target.positions.len().min(source.positions.end - first);
            let column = source.column + (first - source.positions.start);
            let (from, to) = ((source.row, column), (target.row, target.column));
            transfers.push(Transfer { from, to, count });
            first += count;
            target.column += count;
            target.positions.start += count;
        }
    }
    transfers
}

/// A plane with columns of another one.
pub(crate) fn carry(
    device: &Device,
    plane: Tensor,
    other: &Tensor,
    transfers: &[Transfer],
) -> Result<Tensor> {
    transfers.iter().try_fold(plane, |plane, one| {
        let piece = columns(device, other, one.from.0, (one.from.1, one.count))?;
        device.slice_update(plane, &piece, &[one.to.0, 0, one.to.1, 0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(row: usize, column: usize, positions: Range<usize>) -> Run {
        Run { row, column, positions }
    }

    #[test]
    fn positions_find_each_other_whatever_their_runs() {
        let from = [run(3, 6, 10..12), run(3, 0, 12..17)];
        let to = [run(1, 20, 10..11), run(2, 0, 11..15), run(0, 4, 15..17)];
        let expected = [((3, 6), (1, 20), 1), ((3, 7), (2, 0), 1), ((3, 0), (2, 1), 3), ((3, 3), (0, 4), 2)];
        assert_eq!(transfers(&from, &to), expected.map(|(from, to, count)| Transfer { from, to, count }));
        assert_eq!(transfers(&[], &[]), []);
    }
}
