//! What is computed together, and how it is cut into parts for threads.

use super::plane::{Place, Source};
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;
use tandem_contracts::tensor::{Attend, RowSpan, Run};

/// Query vectors that share loads of keys and values.
const VECTORS: usize = 64;

/// Some queries of one row with one key head. Vector `v` is query `v / group` with head `v % group` of its
/// group.
#[derive(Clone, Debug)]
pub(super) struct Unit<'a> {
    pub(super) keys: &'a Source<'a>,
    pub(super) values: &'a Source<'a>,
    runs: &'a [Run],
    /// Key head.
    shared: usize,
    /// Query heads for each key head.
    group: usize,
    /// Packed index of the first query.
    token: usize,
    /// Positions that each query may see, as places in the row.
    visible: Vec<Range<usize>>,
    /// Blocks that any of them sees.
    pub(super) blocks: Range<usize>,
}

/// Sizes of a unit's working space, in floats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) vectors: usize,
    /// Padded width of values.
    pub(super) width: usize,
    /// Space for what a block mixes, for widened keys and values, and for turned keys.
    working: usize,
}

impl Extents {
    /// For one `(m, l, o)` of each vector.
    pub(super) fn slot(self) -> usize {
        self.vectors * (self.width + 2)
    }

    pub(super) fn working(self) -> usize {
        self.working
    }
}

/// Consecutive places of a block in consecutive columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stripe {
    /// Places in the block, within `0..64`.
    pub(super) places: Range<usize>,
    pub(super) row: usize,
    /// Column of the first of them.
    pub(super) column: usize,
}

/// Cuts a row into units.
pub(super) fn cut<'a>(
    row: &RowSpan<'a>,
    (keys, values): (&'a Source<'a>, &'a Source<'a>),
    (heads, how): (usize, &Attend<'_>),
    units: &mut Vec<Unit<'a>>,
) {
    let end = row.runs.last().map_or(0, |run| run.positions.end);
    let group = heads / keys.heads;
    let together = (VECTORS / group).max(1);
    for first in (0..row.queries.len()).step_by(together) {
        let queries = first..row.queries.len().min(first + together);
        let visible: Vec<_> = queries.map(|query| how.visible(row.position + query, end)).collect();
        let start = visible.iter().map(|visible| visible.start).min().unwrap_or(0);
        let end = visible.iter().map(|visible| visible.end).max().unwrap_or(0);
        for shared in 0..keys.heads {
            units.push(Unit {
                keys,
                values,
                runs: row.runs,
                shared,
                group,
                token: row.queries.start + first,
                visible: visible.clone(),
                blocks: start / BLOCK..end.div_ceil(BLOCK),
            });
        }
    }
}

impl Unit<'_> {
    pub(super) fn vectors(&self) -> usize {
        self.visible.len() * self.group
    }

    /// Packed query of a vector.
    pub(super) fn token(&self, vector: usize) -> usize {
        self.token + vector / self.group
    }

    /// Query head of a vector.
    pub(super) fn head(&self, vector: usize) -> usize {
        self.shared * self.group + vector % self.group
    }

    /// The places of a block that a vector sees.
    pub(super) fn places(&self, vector: usize, block: usize) -> Range<usize> {
        let visible = &self.visible[vector / self.group];
        let place = |position: usize| position.saturating_sub(block * BLOCK).min(BLOCK);
        place(visible.start)..place(visible.end)
    }

    /// The live places of a block, and where they lie.
    pub(super) fn stripes(&self, block: usize, stripes: &mut Vec<Stripe>) {
        stripes.clear();
        let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
        let first = self.runs.partition_point(|run| run.positions.end <= start);
        for run in self.runs[first..].iter().take_while(|run| run.positions.start < end) {
            let from = run.positions.start.max(start);
            stripes.push(Stripe {
                places: from - start..run.positions.end.min(end) - start,
                row: run.row,
                column: run.column + from - run.positions.start,
            });
        }
    }

    /// Where the vector of a stripe's column lies in the planes.
    pub(super) fn place(&self, stripe: &Stripe, column: usize) -> Place {
        Place { row: stripe.row, head: self.shared, column: stripe.column + column }
    }

    pub(super) fn extents(&self) -> Extents {
        let width = self.values.padded();
        let staged =
            |source: &Source<'_>| if source.direct().is_some() { 0 } else { BLOCK * source.padded() };
        let working = super::block::CHUNK * width
            + staged(self.keys)
            + staged(self.values)
            + super::block::panel_space(self);
        Extents { vectors: self.vectors(), width, working }
    }

    /// In blocks of one vector.
    fn cost(&self) -> usize {
        self.blocks.len() * self.vectors()
    }
}

/// A part: some blocks of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) unit: usize,
    pub(super) blocks: Range<usize>,
    /// Where the results go if the unit is cut: one slot from the first stretch, one for each block from
    /// others.
    pub(super) slots: Option<Range<usize>>,
}

/// All parts of a call.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    stretches: Vec<Stretch>,
    slots: usize,
}

/// Parts for each thread, so that a thread that comes late leaves little undone.
const PARTS: usize = 6;

/// Blocks below which cutting a unit costs more than it saves.
const FEWEST: usize = 2;

impl Plan {
    /// Cuts units into stretches of about equal cost, unless there are enough of them.
    pub(super) fn new(units: &[Unit<'_>], threads: usize) -> Self {
        let total: usize = units.iter().map(Unit::cost).sum();
        let share = if threads == 1 { usize::MAX } else { total.div_ceil(PARTS * threads) };
        let (mut stretches, mut slots) = (Vec::new(), 0);
        for (index, unit) in units.iter().enumerate() {
            let blocks = unit.blocks.len();
            let most = (share / unit.vectors().max(1)).max(FEWEST);
            let pieces = blocks.div_ceil(most).max(1);
            for piece in 0..pieces {
                let cut = |piece: usize| unit.blocks.start + blocks * piece / pieces;
                let own = cut(piece)..cut(piece + 1);
                let count = if piece == 0 { 1 } else { own.len() };
                let length = count * unit.extents().slot();
                let place = (pieces > 1).then_some(slots..slots + length);
                slots = place.as_ref().map_or(slots, |place| place.end);
                stretches.push(Stretch { unit: index, blocks: own, slots: place });
            }
        }
        Self { stretches, slots }
    }

    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Floats that stretches leave behind.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The stretches of each unit that was cut.
    pub(super) fn joined(&self) -> impl Iterator<Item = &[Stretch]> {
        self.stretches.chunk_by(|a, b| a.unit == b.unit).filter(|stretches| stretches.len() > 1)
    }
}
