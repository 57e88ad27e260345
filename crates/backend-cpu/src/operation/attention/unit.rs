//! What is computed together, and how it is cut into parts for threads.

use super::SEGMENT;
use super::block::{CHUNK, Soon, panel_space, staged};
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
    pub(super) group: usize,
    /// Packed index of the first query.
    token: usize,
    queries: usize,
    sight: Sight,
    /// Blocks that any of them sees.
    pub(super) blocks: Range<usize>,
}

/// What queries see.
#[derive(Clone, Copy, Debug)]
struct Sight {
    causal: bool,
    window: Option<usize>,
    keep: usize,
    /// Position of the first query.
    position: usize,
    /// One past the row's last live position.
    end: usize,
}

impl Sight {
    /// From the first to the last position that a query sees.
    fn of(self, query: usize) -> Range<usize> {
        self.rule().visible(self.position + query, self.end)
    }

    /// Positions between them that are hidden.
    fn gap(self, query: usize) -> Range<usize> {
        self.rule().gap(self.position + query)
    }

    fn rule(self) -> Attend<'static> {
        let Self { causal, window, keep, .. } = self;
        Attend { causal, window, keep, ..Attend::causal(1.0) }
    }
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
        let queries = together.min(row.queries.len() - first);
        let position = row.position + first;
        let sight = Sight { causal: how.causal, window: how.window, keep: how.keep, position, end };
        // Later queries see no less of the end, and no more of the beginning.
        let (start, end) = (sight.of(0).start, sight.of(queries - 1).end);
        for shared in 0..keys.heads {
            units.push(Unit {
                keys,
                values,
                runs: row.runs,
                shared,
                group,
                token: row.queries.start + first,
                queries,
                sight,
                blocks: start / BLOCK..end.div_ceil(BLOCK),
            });
        }
    }
}

impl Unit<'_> {
    #[inline(always)]
    pub(super) fn vectors(&self) -> usize {
        self.queries * self.group
    }

    /// Query of a vector, and its head in the group.
    #[inline(always)]
    pub(super) fn split(&self, vector: usize) -> (usize, usize) {
        (vector / self.group, vector % self.group)
    }

    /// Packed index of a query, and that of one of its heads.
    #[inline(always)]
    pub(super) fn place_of(&self, query: usize, head: usize) -> (usize, usize) {
        (self.token + query, self.shared * self.group + head)
    }

    /// Packed query of a vector.
    #[inline(always)]
    pub(super) fn token(&self, vector: usize) -> usize {
        self.token + vector / self.group
    }

    /// Query head of a vector.
    #[inline(always)]
    pub(super) fn head(&self, vector: usize) -> usize {
        self.shared * self.group + vector % self.group
    }

    /// From the first to the last place of a block that a query sees, and those between them that are hidden.
    #[inline(always)]
    pub(super) fn places(&self, query: usize, block: usize) -> (Range<usize>, Range<usize>) {
        let (visible, gap) = (self.sight.of(query), self.sight.gap(query));
        let place = |position: usize| position.saturating_sub(block * BLOCK).min(BLOCK);
        let (start, end) = (place(visible.start), place(visible.end));
        let (hidden, shown) = (place(gap.start), place(gap.end));
        // What is hidden at an end of the block is not between.
        match (hidden <= start, shown >= end) {
            _ if gap.is_empty() => (start..end, 0..0),
            (true, true) => (0..0, 0..0),
            (true, false) => (start.max(shown)..end, 0..0),
            (false, true) => (start..end.min(hidden), 0..0),
            (false, false) => (start..end, hidden..shown),
        }
    }

    /// The live places of a block, and where they lie.
    #[inline(always)]
    pub(super) fn stripes(&self, block: usize) -> impl Iterator<Item = Stripe> {
        let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
        let first = self.runs.partition_point(|run| run.positions.end <= start);
        let live = self.runs[first..].iter().take_while(move |run| run.positions.start < end);
        live.map(move |run| {
            let from = run.positions.start.max(start);
            Stripe {
                places: from - start..run.positions.end.min(end) - start,
                row: run.row,
                column: run.column + from - run.positions.start,
            }
        })
    }

    /// Where the vector of a stripe's column lies in the planes.
    #[inline(always)]
    pub(super) fn place(&self, stripe: &Stripe, column: usize) -> Place {
        Place { row: stripe.row, head: self.shared, column: stripe.column + column }
    }

    /// A block of keys or values, as far as its places follow each other, to be asked for before it is read.
    #[inline(always)]
    pub(super) fn soon(&self, source: &Source<'_>, block: usize) -> Soon {
        match self.stripes(block).next() {
            Some(stripe) => source.soon(self.place(&stripe, 0)),
            None => Soon::NONE,
        }
    }

    pub(super) fn extents(&self) -> Extents {
        let width = self.values.padded();
        let staged = staged(self, self.keys) + staged(self, self.values);
        let working = CHUNK * width + staged + panel_space(self);
        Extents { vectors: self.vectors(), width, working }
    }

    /// Segments that any query sees.
    fn segments(&self) -> Range<usize> {
        self.blocks.start / SEGMENT..self.blocks.end.div_ceil(SEGMENT)
    }

    /// Blocks of a segment that any query sees.
    pub(super) fn segment(&self, segment: usize) -> Range<usize> {
        self.blocks.start.max(segment * SEGMENT)..self.blocks.end.min((segment + 1) * SEGMENT)
    }

    /// In segments of one vector.
    fn cost(&self) -> usize {
        self.segments().len() * self.vectors()
    }
}

/// A part: some segments of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) unit: usize,
    pub(super) segments: Range<usize>,
    /// Where each segment's `(m, l, o)` goes if the unit is cut.
    pub(super) slots: Option<Range<usize>>,
}

/// All parts of a call.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    stretches: Vec<Stretch>,
    /// Which of them each unit was cut into.
    pieces: Vec<Range<usize>>,
    slots: usize,
}

/// Parts for each thread, so that a thread that comes late leaves little undone.
const PARTS: usize = 6;

impl Plan {
    /// Cuts units into stretches of about equal cost, unless there are enough of them.
    pub(super) fn new(units: &[Unit<'_>], threads: usize) -> Self {
        let total: usize = units.iter().map(Unit::cost).sum();
        let share = if threads == 1 { usize::MAX } else { total.div_ceil(PARTS * threads) };
        let mut plan = Self {
            stretches: Vec::with_capacity(units.len().max(PARTS * threads)),
            pieces: Vec::with_capacity(units.len()),
            slots: 0,
        };
        for (index, unit) in units.iter().enumerate() {
            let segments = unit.segments();
            let most = (share / unit.vectors().max(1)).max(1);
            let pieces = segments.len().div_ceil(most).max(1);
            let cut = |piece: usize| segments.start + segments.len() * piece / pieces;
            for piece in 0..pieces {
                let own = cut(piece)..cut(piece + 1);
                let slots = (pieces > 1).then(|| plan.lay(own.len() * unit.extents().slot()));
                plan.stretches.push(Stretch { unit: index, segments: own, slots });
            }
            plan.pieces.push(plan.stretches.len() - pieces..plan.stretches.len());
        }
        plan
    }

    /// The next `count` floats of what stretches leave behind.
    fn lay(&mut self, count: usize) -> Range<usize> {
        let start = self.slots;
        self.slots += count;
        start..self.slots
    }

    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Floats that stretches leave behind.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The stretches of each unit.
    pub(super) fn pieces(&self) -> &[Range<usize>] {
        &self.pieces
    }
}
