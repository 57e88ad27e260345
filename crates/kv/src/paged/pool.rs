//! One layer of many rows in blocks.
//!
//! Invariant: between steps a row's table has as many blocks as its tokens fill, the last one in part. A block that more
//! than one table names is written by nobody.

use super::{Paging, ledger::Ledger};
use crate::{
    bank::{Bank, Scope, Share, Transfer, transfers},
    ragged::{Layer, Runs, Store, View, columns, lost},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Range,
};
use tandem_contracts::{
    model::Slot,
    tensor::{Error, ErrorKind, KvWrite, Result, Run, Tensor},
};

/// The bank behind paged rows.
#[derive(Debug)]
pub(super) struct Pool {
    scope: Scope,
    paging: Paging,
    store: Store,
    books: Books,
    lost: BTreeSet<Slot>,
}

/// Who has which blocks.
#[derive(Clone, Debug, Default)]
struct Books {
    ledger: Ledger,
    tables: BTreeMap<Slot, Table>,
}

/// A row's blocks, in order of position.
#[derive(Clone, Debug, Default)]
struct Table {
    blocks: Vec<usize>,
    tokens: usize,
}

/// Columns, and where in a plane they are to be.
struct Patch {
    piece: Tensor,
    row: usize,
    column: usize,
}

/// A block, and the one that it is to be a copy of.
struct Copy {
    from: usize,
    to: usize,
}

impl Table {
    /// Positions as runs, ascending.
    fn runs(&self, positions: Range<usize>, block: usize) -> Runs {
        let mut runs = Runs::new();
        let mut first = positions.start;
        while first < positions.end {
            let end = positions.end.min((first / block + 1) * block);
            // Every position of a row has its block.
            let Some(&row) = self.blocks.get(first / block) else { break };
            runs.push(Run { row, column: first % block, positions: first..end });
            first = end;
        }
        runs
    }
}

impl Books {
    /// Gives every row of a step its blocks, as far as there are any; a copy for each shared one that is written.
    fn reserve(&mut self, shares: &[Share], block: usize) -> Option<Vec<Copy>> {
        let mut copies = Vec::new();
        for Share { slot, step, .. } in shares {
            let table = self.tables.entry(*slot).or_default();
            table.tokens = step.position;
            if let Some(first) = table.blocks.get_mut(step.position / block)
                && self.ledger.users(*first) > 1
            {
                let to = self.ledger.take()?;
                self.ledger.release(*first);
                copies.push(Copy { from: mem::replace(first, to), to });
            }
            while table.blocks.len() < step.end().div_ceil(block) {
                table.blocks.push(self.ledger.take()?);
            }
        }
        Some(copies)
    }

    /// Gives back the blocks of a row beyond the first `blocks`, the last one first.
    fn shorten(&mut self, slot: Slot, blocks: usize) {
        let Some(table) = self.tables.get_mut(&slot) else { return };
        while table.blocks.len() > blocks {
            if let Some(block) = table.blocks.pop() {
                self.ledger.release(block);
            }
        }
    }
}

impl Pool {
    pub(super) fn new(scope: Scope, paging: Paging) -> Self {
        Self { scope, paging, store: Store::Empty, books: Books::default(), lost: BTreeSet::new() }
    }

    fn block(&self) -> usize {
        self.paging.block.get()
    }

    fn table(&self, slot: Slot) -> Result<&Table> {
        let missing = || Error::new(ErrorKind::State, "rows", format!("slot has no blocks: {}", slot.0));
        self.books.tables.get(&slot).ok_or_else(missing)
    }

    /// Blocks that a step takes: for its tokens, and for copies of shared blocks that it writes into. Of those who share
    /// one the last needs no copy.
    fn wanted(&self, shares: &[Share]) -> usize {
        let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut wanted: usize = 0;
        for Share { slot, step, .. } in shares {
            let blocks = self.books.tables.get(slot).map_or(&[][..], |table| &table.blocks);
            wanted = wanted.saturating_add(step.end().div_ceil(self.block()).saturating_sub(blocks.len()));
            if let Some(&block) = blocks.get(step.position / self.block()) {
                *writers.entry(block).or_default() += 1;
            }
        }
        let copies = |(block, writers): (usize, usize)| writers.min(self.books.ledger.users(block) - 1);
        wanted.saturating_add(writers.into_iter().map(copies).sum())
    }

    /// Blocks that the pool is to have, so that `wanted` are free.
    fn size(&self, wanted: usize) -> Result<usize> {
        let (blocks, free) = (self.books.ledger.blocks(), self.books.ledger.free());
        if wanted <= free {
            return Ok(blocks);
        }
        let most = self.paging.limit();
        let needed = blocks.saturating_add(wanted - free);
        if needed > most {
            return Err(Error::new(
                ErrorKind::Memory,
                "pool",
                format!("{} of {most} blocks are free, wanted: {wanted}", free + most.saturating_sub(blocks)),
            ));
        }
        Ok(self.paging.blocks(needed))
    }

    /// The pool's planes with so many blocks; those that it has, if it has as many.
    fn grown(&self, blocks: usize) -> Result<Option<Vec<Tensor>>> {
        let held = self.books.ledger.blocks();
        if blocks == held {
            return Ok(None);
        }
        let more = self.scope.zeros(blocks - held, self.block())?;
        let planes = self.store.planes()?;
        if planes.is_empty() {
            return Ok(Some(more));
        }
        let joined = planes.iter().zip(&more);
        joined
            .map(|(plane, more)| self.scope.device().concat(&[plane, more], 0))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// What is to be written into a plane: what rows bring, and copies of shared blocks that will be written.
    fn patches(
        &self,
        (index, plane): (usize, &Tensor),
        books: &Books,
        copies: &[Copy],
        joining: &[(Slot, &Layer)],
    ) -> Result<Vec<Patch>> {
        let device = self.scope.device();
        let mut patches = Vec::new();
        for Copy { from, to } in copies {
            // Not a slice, which would hold the plane and make the update copy all of it.
            let block = device.upload_i32(&[i32::try_from(*from).unwrap_or(i32::MAX)], &[1])?;
            patches.push(Patch { piece: device.take(plane, &block, 0)?, row: *to, column: 0 });
        }
        for (slot, own) in joining {
            let (Some(table), Some(old)) = (books.tables.get(slot), own.store.planes()?.get(index)) else {
                continue;
            };
            let read = self.scope.read_by(table.tokens)?;
            let runs = if read.is_empty() { Runs::new() } else { own.place.runs(read.clone()) };
            for Transfer { from, to, count } in transfers(&runs, &table.runs(read, self.block())) {
                let piece = columns(device, old, from.0, (from.1, count))?;
                patches.push(Patch { piece, row: to.0, column: to.1 });
            }
        }
        Ok(patches)
    }

    /// The planes with their patches.
    fn patched(&self, planes: Vec<Tensor>, patches: Vec<Vec<Patch>>) -> Result<Vec<Tensor>> {
        let device = self.scope.device();
        let write =
            |plane, Patch { piece, row, column }| device.slice_update(plane, &piece, &[row, 0, column, 0]);
        planes
            .into_iter()
            .zip(patches)
            .map(|(plane, patches)| patches.into_iter().try_fold(plane, write))
            .collect()
    }

    /// The planes are gone, and with them everybody's blocks.
    fn lose(&mut self) {
        let books = mem::take(&mut self.books);
        self.lost.extend(books.tables.into_keys());
        self.store = Store::Empty;
    }
}

impl Bank for Pool {
    fn holds(&self, slot: Slot) -> bool {
        self.lost.contains(&slot) || self.books.tables.contains_key(&slot)
    }

    fn check(&self, slot: Slot) -> Result<()> {
        if self.lost.contains(&slot) { Err(lost()) } else { Ok(()) }
    }

    fn floor(&self, _: Slot) -> usize {
        0
    }

    fn prepare(&mut self, shares: &[Share], joining: &[(Slot, &Layer)]) -> Result<()> {
        let blocks = self.size(self.wanted(shares))?;
        let mut books = self.books.clone();
        books.ledger.grow(blocks);
        let copies = books
            .reserve(shares, self.block())
            .ok_or_else(|| Error::new(ErrorKind::Memory, "pool", format!("no block is free of: {blocks}")))?;
        let grown = self.grown(blocks)?;
        // All that can run out of memory, while the planes are still whole.
        let planes = grown.as_deref().map_or_else(|| self.store.planes(), Ok)?.iter().enumerate();
        let patches = planes.map(|plane| self.patches(plane, &books, &copies, joining));
        let patches = patches.collect::<Result<Vec<_>>>()?;
        let planes = match (grown, mem::replace(&mut self.store, Store::Lost)) {
            (Some(grown), _) => grown,
            (None, Store::Held(planes)) => planes,
            (None, _) => Vec::new(),
        };
        match self.patched(planes, patches) {
            Ok(planes) => (self.store, self.books) = (Store::Held(planes), books),
            Err(error) => {
                self.lose();
                return Err(error);
            }
        }
        Ok(())
    }

    fn append(&mut self, shares: &[Share], fields: &[Tensor]) -> Result<()> {
        let mut writes = Vec::new();
        for Share { slot, tokens, step } in shares {
            let first = tokens.start;
            let write = |Run { row, column, positions }: Run| KvWrite {
                tokens: first + positions.start - step.position..first + positions.end - step.position,
                row,
                column,
            };
            writes.extend(self.table(*slot)?.runs(step.positions(), self.block()).into_iter().map(write));
        }
        let written = self.store.append(self.scope.device(), fields, &writes);
        if self.store.is_lost() {
            self.lose();
        }
        written
    }

    fn view(&self, share: &Share) -> Result<View> {
        let runs = self.table(share.slot)?.runs(0..share.step.end(), self.block());
        let coders = self.scope.coders()?;
        View::over(coders, self.store.planes()?, (share.step.position, runs))
    }

    fn settle(&mut self, slot: Slot, tokens: usize) {
        let blocks = tokens.div_ceil(self.block());
        self.books.shorten(slot, blocks);
        if let Some(table) = self.books.tables.get_mut(&slot) {
            table.tokens = tokens;
        }
    }

    fn lift(&self, slot: Slot) -> Result<Layer> {
        self.check(slot)?;
        let table = self.table(slot)?;
        let runs = table.runs(0..table.tokens, self.block());
        self.scope.lift(self.store.planes()?, &runs, table.tokens)
    }

    fn fork(&mut self, from: Slot, to: Slot) {
        if let Some(table) = self.books.tables.get(&from).cloned() {
            table.blocks.iter().for_each(|&block| self.books.ledger.share(block));
            self.books.tables.insert(to, table);
        }
    }

    fn discard(&mut self, slot: Slot) {
        self.books.shorten(slot, 0);
        self.books.tables.remove(&slot);
        self.lost.remove(&slot);
        if self.books.tables.is_empty() {
            (self.store, self.books) = (Store::Empty, Books::default());
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
        ragged::{Kit, Packed, RaggedRow, Stretch},
    };
    use std::{num::NonZeroUsize, rc::Rc};
    use tandem_contracts::{fake, tensor::Dtype};

    /// A pool of blocks of four, and a row that has nothing yet.
    fn open() -> (Rc<Kit>, Pool, RaggedRow) {
        let shape = LayerShape { heads: 1, key_width: 2, value_width: 2 };
        let blueprint = Blueprint::plain(vec![Kind::Full(shape)], Dtype::F32).unwrap();
        let kit = Kit::open(&fake::open(), blueprint).unwrap();
        let paging = Paging { block: NonZeroUsize::new(4).unwrap(), tokens: 8, most: 8 };
        let scope = Scope { kit: Rc::clone(&kit), layer: 0, encoded: true };
        (Rc::clone(&kit), Pool::new(scope, paging), RaggedRow::new(kit))
    }

    fn share(slot: u32) -> Share {
        Share { slot: Slot(slot), tokens: 0..2, step: Stretch { position: 0, tokens: 2 } }
    }

    /// What cannot be copied costs nobody anything: the device fails before it has the planes.
    #[test]
    fn copies_that_fail_lose_nothing() {
        let (kit, mut pool, row) = open();
        let x = kit.device().upload_f32(&[0.5; 4], &[2, 1, 2]).unwrap();
        pool.prepare(&[share(1)], &[(Slot(1), row.layer(0).unwrap())]).unwrap();
        pool.append(&[share(1)], &[x.clone(), x.clone()]).unwrap();
        pool.settle(Slot(1), 2);
        // A row whose planes this device cannot read.
        let (elsewhere, ..) = open();
        let mut stranger = RaggedRow::new(Rc::clone(&elsewhere));
        let y = elsewhere.device().upload_f32(&[0.5; 4], &[2, 1, 2]).unwrap();
        stranger.begin(2).unwrap();
        stranger.append(&mut Packed::new(&elsewhere, 0, &y, &y), 0..2).unwrap();
        stranger.commit(2).unwrap();
        let step = Stretch { position: 2, tokens: 1 };
        let joining = Share { slot: Slot(2), tokens: 0..1, step };
        let refused = pool.prepare(&[joining], &[(Slot(2), stranger.layer(0).unwrap())]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Foreign);
        assert!(!pool.holds(Slot(2)));
        pool.check(Slot(1)).unwrap();
        let own = pool.lift(Slot(1)).unwrap();
        let held = own.store.planes().unwrap()[0].to_vec::<f32>().unwrap();
        assert_eq!(held[..4], [0.5; 4]);
        pool.prepare(&[share(3)], &[(Slot(3), row.layer(0).unwrap())]).unwrap();
    }

    #[test]
    fn lost_planes_are_lost_to_those_who_were_there() {
        let (kit, mut pool, row) = open();
        let x = kit.device().upload_f32(&[0.5; 4], &[2, 1, 2]).unwrap();
        pool.prepare(&[share(1)], &[(Slot(1), row.layer(0).unwrap())]).unwrap();
        pool.store = Store::Lost;
        assert_eq!(pool.append(&[share(1)], &[x.clone(), x.clone()]).unwrap_err().kind(), ErrorKind::State);
        assert!(pool.holds(Slot(1)) && pool.check(Slot(1)).is_err() && pool.lift(Slot(1)).is_err());
        pool.prepare(&[share(2)], &[(Slot(2), row.layer(0).unwrap())]).unwrap();
        pool.append(&[share(2)], &[x.clone(), x]).unwrap();
        pool.check(Slot(2)).unwrap();
        pool.discard(Slot(1));
        assert!(!pool.holds(Slot(1)));
    }
}
