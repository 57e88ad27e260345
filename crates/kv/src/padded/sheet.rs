//! One layer of many rows in planes that they share.
//!
//! Invariant: between steps, and in one, every seat's live columns are its row's tokens. Planes are replaced whole, by
//! planes that were made before, or written in place.

use super::seat::Seat;
use crate::{
    bank::{Bank, Scope, Share, carry, transfers},
    ragged::{Layer, Runs, Store, View, lost},
};
use std::collections::BTreeSet;
use tandem_contracts::{
    model::Slot,
    tensor::{Error, ErrorKind, KvWrite, Result, Tensor},
};

/// The bank behind padded rows.
#[derive(Debug)]
pub(super) struct Sheet {
    scope: Scope,
    store: Store,
    columns: usize,
    /// Rows of the planes; those without a seat are dropped when a step begins.
    rows: usize,
    seats: Vec<Seat>,
    lost: BTreeSet<Slot>,
}

/// Planes and who sits where.
struct Laid {
    planes: Vec<Tensor>,
    columns: usize,
    seats: Vec<Seat>,
}

/// What a row brings into new planes.
struct Source<'a> {
    slot: Slot,
    tokens: usize,
    /// Tokens that the step adds.
    more: usize,
    planes: &'a [Tensor],
    /// Where the positions lie that the next step reads.
    runs: Runs,
    oldest: usize,
}

impl Source<'_> {
    fn live(&self) -> usize {
        self.runs.iter().map(|run| run.positions.len()).sum()
    }
}

impl Sheet {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, store: Store::Empty, columns: 0, rows: 0, seats: Vec::new(), lost: BTreeSet::new() }
    }

    fn seat(&self, slot: Slot) -> Result<&Seat> {
        self.seats
            .iter()
            .find(|seat| seat.slot == slot)
            .ok_or_else(|| Error::new(ErrorKind::State, "rows", format!("slot has no seat: {}", slot.0)))
    }

    fn seat_mut(&mut self, slot: Slot) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|seat| seat.slot == slot)
    }

    /// Whether every row of the planes is one row's own.
    fn is_whole(&self) -> bool {
        self.rows == self.seats.len() && self.seats.iter().enumerate().all(|(row, seat)| seat.row == row)
    }

    /// Whether a step can be written where its rows sit.
    fn has_room(&self, shares: &[Share]) -> Result<bool> {
        if self.scope.layout()?.window.is_none() {
            let ends =
                shares.iter().map(|share| Ok(self.seat(share.slot)?.shift.saturating_add(share.step.end())));
            return Ok(ends.collect::<Result<Vec<_>>>()?.into_iter().all(|end| end <= self.columns));
        }
        let mut needed = 0;
        for seat in &self.seats {
            let share = shares.iter().find(|share| share.slot == seat.slot);
            let more = share.map_or(0, |share| share.step.tokens);
            needed = needed.max(self.scope.read_by(seat.tokens)?.len().saturating_add(more));
        }
        // As in a row's own planes: what a long step took is given back, but not at once.
        let growth = self.scope.layout()?.growth;
        let needed = growth.capacity(needed);
        Ok((needed..=needed.saturating_add(growth.columns())).contains(&self.columns))
    }

    /// What new planes are made of: rows of the step in their order, then the others.
    fn sources<'a>(&'a self, shares: &[Share], joining: &[(Slot, &'a Layer)]) -> Result<Vec<Source<'a>>> {
        let mut sources = Vec::new();
        for share in shares {
            let (slot, tokens, more) = (share.slot, share.step.position, share.step.tokens);
            let read = self.scope.read_by(tokens)?;
            let source = match joining.iter().find(|(joining, _)| *joining == slot) {
                Some((_, own)) => Source {
                    slot,
                    tokens,
                    more,
                    planes: own.store.planes()?,
                    runs: if read.is_empty() { Runs::new() } else { own.place.runs(read.clone()) },
                    oldest: read.start,
                },
                None => self.seated(self.seat(slot)?, more)?,
            };
            sources.push(source);
        }
        for seat in self.seats.iter().filter(|seat| !shares.iter().any(|share| share.slot == seat.slot)) {
            sources.push(self.seated(seat, 0)?);
        }
        Ok(sources)
    }

    fn seated(&self, seat: &Seat, more: usize) -> Result<Source<'_>> {
        let read = self.scope.read_by(seat.tokens)?;
        let runs = seat.runs(read.clone(), self.columns);
        let (slot, tokens, planes) = (seat.slot, seat.tokens, self.store.planes()?);
        Ok(Source { slot, tokens, more, planes, runs, oldest: read.start })
    }

    /// Makes planes of these rows, in this order, and their seats.
    fn build(&self, sources: &[Source<'_>]) -> Result<Laid> {
        let longest = |count: fn(&Source<'_>) -> usize| sources.iter().map(count).max().unwrap_or(0);
        let end = longest(|source| source.live());
        let needed = match self.scope.layout()?.window {
            None => end.saturating_add(longest(|source| source.more)),
            Some(_) => longest(|source| source.live().saturating_add(source.more)),
        };
        let columns = self.scope.layout()?.growth.capacity(needed);
        let mut planes = self.scope.zeros(sources.len(), columns)?;
        let mut seats = Vec::new();
        for (row, source) in sources.iter().enumerate() {
            let shift = Seat::shift(source.tokens, end, columns);
            let (slot, tokens, oldest) = (source.slot, source.tokens, source.oldest);
            let seat = Seat { slot, row, shift, oldest, tokens };
            let read = self.scope.read_by(tokens)?;
            let transfers = transfers(&source.runs, &seat.runs(read, columns));
            let carried = planes.into_iter().enumerate();
            let carried = carried.map(|(index, plane)| match source.planes.get(index) {
                Some(old) => carry(self.scope.device(), plane, old, &transfers),
                None => Ok(plane),
            });
            planes = carried.collect::<Result<_>>()?;
            seats.push(seat);
        }
        Ok(Laid { planes, columns, seats })
    }

    /// The planes of a row that comes alone, as they are, if its step fits into them.
    fn adopt(&self, sources: &[Source<'_>], joining: &[(Slot, &Layer)]) -> Option<Laid> {
        let ([source], [(_, own)]) = (sources, joining) else { return None };
        let columns = own.place.capacity();
        if source.planes.is_empty() || source.live().saturating_add(source.more) > columns {
            return None;
        }
        let (slot, tokens, oldest) = (source.slot, source.tokens, source.oldest);
        let seats = vec![Seat { slot, row: 0, shift: 0, oldest, tokens }];
        Some(Laid { planes: source.planes.to_vec(), columns, seats })
    }

    /// What is written of a step, by row, so that rows that write side by side do so in one go.
    fn writes(&self, shares: &[Share]) -> Result<Vec<KvWrite>> {
        let mut writes = Vec::new();
        for share in shares {
            let seat = self.seat(share.slot)?;
            writes.extend(seat.writes(share.step.positions(), self.columns, share.tokens.start));
        }
        writes.sort_by_key(|write| write.row);
        Ok(writes)
    }
}

impl Bank for Sheet {
    fn holds(&self, slot: Slot) -> bool {
        self.lost.contains(&slot) || self.seats.iter().any(|seat| seat.slot == slot)
    }

    fn check(&self, slot: Slot) -> Result<()> {
        if self.lost.contains(&slot) { Err(lost()) } else { Ok(()) }
    }

    fn floor(&self, slot: Slot) -> usize {
        let window = self.scope.layout().map_or(None, |layout| layout.window);
        self.seat(slot).map_or(0, |seat| seat.floor(window))
    }

    fn prepare(&mut self, shares: &[Share], joining: &[(Slot, &Layer)]) -> Result<()> {
        if joining.is_empty() && self.is_whole() && self.has_room(shares)? {
            return Ok(());
        }
        let sources = self.sources(shares, joining)?;
        let Laid { planes, columns, seats } = match self.adopt(&sources, joining) {
            Some(laid) => laid,
            None => {
                let laid = self.build(&sources)?;
                // Before the next layer begins: on a device that defers all of them would be held twice otherwise.
                self.scope.device().eval(&laid.planes.iter().collect::<Vec<_>>())?;
                laid
            }
        };
        (self.store, self.columns, self.rows) = (Store::Held(planes), columns, seats.len());
        self.seats = seats;
        Ok(())
    }

    fn append(&mut self, shares: &[Share], fields: &[Tensor]) -> Result<()> {
        let writes = self.writes(shares)?;
        let written = self.store.append(self.scope.device(), fields, &writes);
        if self.store.is_lost() {
            // Whoever joins later shares nothing with these.
            self.lost.extend(self.seats.drain(..).map(|seat| seat.slot));
            (self.store, self.columns, self.rows) = (Store::Empty, 0, 0);
        }
        written?;
        let columns = self.columns;
        for share in shares {
            if let Some(seat) = self.seat_mut(share.slot) {
                seat.write(share.step.end(), columns);
            }
        }
        Ok(())
    }

    fn view(&self, share: &Share) -> Result<View> {
        let read = self.scope.read_by(share.step.position)?;
        let runs = self.seat(share.slot)?.runs(read.start..share.step.end(), self.columns);
        let coders = self.scope.coders()?;
        View::over(coders, self.store.planes()?, (share.step.position, runs))
    }

    fn settle(&mut self, slot: Slot, tokens: usize) {
        if let Some(seat) = self.seat_mut(slot) {
            seat.tokens = tokens;
        }
    }

    fn lift(&self, slot: Slot) -> Result<Layer> {
        self.check(slot)?;
        let seat = self.seat(slot)?;
        let read = self.scope.read_by(seat.tokens)?;
        self.scope.lift(self.store.planes()?, &seat.runs(read, self.columns), seat.tokens)
    }

    fn fork(&mut self, from: Slot, to: Slot) {
        if let Ok(seat) = self.seat(from) {
            // The planes' row is both rows' until the next step begins, and nobody writes before.
            self.seats.push(Seat { slot: to, ..seat.clone() });
        }
    }

    fn discard(&mut self, slot: Slot) {
        self.seats.retain(|seat| seat.slot != slot);
        self.lost.remove(&slot);
        if self.seats.is_empty() {
            (self.store, self.columns, self.rows) = (Store::Empty, 0, 0);
        }
    }

    fn planes(&self) -> &[Tensor] {
        self.store.planes().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Blueprint, Kind, LayerShape,
        ragged::{Kit, RaggedRow, Stretch},
    };
    use std::{ops::Range, rc::Rc};
    use tandem_contracts::{fake, tensor::Dtype};

    const SHAPE: LayerShape = LayerShape { heads: 1, key_width: 2, value_width: 2 };

    fn share(slot: u32, tokens: Range<usize>, position: usize) -> Share {
        Share { slot: Slot(slot), step: Stretch { position, tokens: tokens.len() }, tokens }
    }

    /// A sheet in which rows of these slots are about to write a token each.
    fn open(kind: Kind, slots: &[u32]) -> (Rc<Kit>, Sheet, Vec<Share>) {
        let kit = Kit::open(&fake::open(), Blueprint::plain(vec![kind], Dtype::F32).unwrap()).unwrap();
        let mut sheet = Sheet::new(Scope { kit: Rc::clone(&kit), layer: 0, encoded: true });
        let shares: Vec<Share> =
            slots.iter().enumerate().map(|(at, &slot)| share(slot, at..at + 1, 0)).collect();
        let row = RaggedRow::new(Rc::clone(&kit));
        let own = row.layer(0).unwrap();
        let joining: Vec<_> = shares.iter().map(|share| (share.slot, own)).collect();
        sheet.prepare(&shares, &joining).unwrap();
        (kit, sheet, shares)
    }

    #[test]
    fn rows_that_end_together_write_side_by_side() {
        for kind in [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: 3, keep: 0 }] {
            let (_, mut sheet, shares) = open(kind, &[7, 3, 5]);
            let write = |row: usize, column| KvWrite { tokens: row..row + 1, row, column };
            assert_eq!(sheet.writes(&shares).unwrap(), [0, 1, 2].map(|row| write(row, 0)));
            // The second one kept nothing, and its columns are not the others' any more; nor are they moved for that.
            for (slot, tokens) in [(7, 1), (3, 0), (5, 1)] {
                sheet.settle(Slot(slot), tokens);
            }
            let shares = [share(7, 0..1, 1), share(3, 1..2, 0), share(5, 2..3, 1)];
            sheet.prepare(&shares, &[]).unwrap();
            assert_eq!(sheet.writes(&shares).unwrap(), [write(0, 1), write(1, 0), write(2, 1)]);
            // When somebody leaves, they are aligned again, in the order of the step.
            sheet.discard(Slot(7));
            let shares = [share(5, 0..1, 1), share(3, 1..2, 0)];
            sheet.prepare(&shares, &[]).unwrap();
            assert_eq!(sheet.writes(&shares).unwrap(), [write(0, 1), write(1, 1)]);
            // A step in another order is written by row, and moves nobody.
            let shares = [share(3, 1..2, 0), share(5, 0..1, 1)];
            sheet.prepare(&shares, &[]).unwrap();
            assert_eq!(sheet.writes(&shares).unwrap(), [write(0, 1), write(1, 1)]);
        }
    }

    #[test]
    fn lost_planes_are_lost_to_those_who_were_there() {
        let (kit, mut sheet, shares) = open(Kind::Full(SHAPE), &[1, 2]);
        sheet.store = Store::Lost;
        let x = kit.device().upload_f32(&[0.5; 4], &[2, 1, 2]).unwrap();
        assert_eq!(sheet.append(&shares, &[x.clone(), x.clone()]).unwrap_err().kind(), ErrorKind::State);
        for slot in [Slot(1), Slot(2)] {
            assert!(sheet.holds(slot) && sheet.check(slot).is_err() && sheet.lift(slot).is_err());
        }
        let row = RaggedRow::new(Rc::clone(&kit));
        let shares = [share(3, 0..1, 0)];
        sheet.prepare(&shares, &[(Slot(3), row.layer(0).unwrap())]).unwrap();
        sheet.append(&shares, &[x.clone(), x]).unwrap();
        sheet.check(Slot(3)).unwrap();
        sheet.discard(Slot(1));
        assert!(!sheet.holds(Slot(1)) && sheet.holds(Slot(2)));
    }
}
