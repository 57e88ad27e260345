//! Which position of a row lies in which column of a layer's planes.
//!
//! Position `p` lies in column `p % capacity`. A layer that keeps everything has at least as many columns as positions,
//! so that columns are positions. A window has as many as its next step reads and writes, and goes round; first
//! positions, where they are kept, lie before the columns that go round.
//!
//! Invariants: what a step reads is intact until the next one begins, so that every step can be given up or kept in
//! part; positions from `oldest` on are intact, and those that are kept.

use crate::Growth;
use smallvec::SmallVec;
use std::ops::Range;
use tandem_contracts::tensor::Run;

/// Runs of columns; those of a row that owns its planes need no memory of their own.
pub(crate) type Runs = SmallVec<[Run; 2]>;

/// The columns of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    window: Option<usize>,
    /// First positions that are never overwritten; fewer than the window.
    keep: usize,
    capacity: usize,
    oldest: usize,
}

/// Columns that keep their order but change their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) count: usize,
}

impl Place {
    /// No column yet; `window` positions are seen by a query, or all.
    pub(crate) fn new(window: Option<usize>) -> Self {
        Self { window, keep: 0, capacity: 0, oldest: 0 }
    }

    /// The same with so many of the window's positions being the first ones.
    pub(crate) fn keeping(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Positions before `position` that the query there reads, but for those of [`Place::kept_by`].
    pub(crate) fn read_by(&self, position: usize) -> Range<usize> {
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window - self.keep));
        if first <= self.keep { 0..position } else { first..position }
    }

    /// First positions that the query at `position` reads beside those before it.
    pub(crate) fn kept_by(&self, position: usize) -> Range<usize> {
        0..self.keep.min(self.read_by(position).start)
    }

    /// All positions before `position` that the query there reads, ascending.
    pub(crate) fn reads(&self, position: usize) -> [Range<usize>; 2] {
        [self.kept_by(position), self.read_by(position)]
    }

    /// Fewest tokens to which the row can be shortened: what is read from there on is intact.
    pub(crate) fn floor(&self) -> usize {
        match (self.oldest, self.window) {
            (_, None) => 0,
            (oldest, _) if oldest <= self.keep => 0,
            (oldest, Some(window)) => oldest + window - self.keep - 1,
        }
    }

    /// The place in which a step of `tokens` tokens at `position` can be written; the same if this one will do.
    pub(crate) fn room(&self, growth: Growth, position: usize, tokens: usize) -> Self {
        let [kept, read] = self.reads(position);
        let needed = growth.capacity(kept.len() + read.len() + tokens);
        // A window gives back what a long step took, but not so eagerly that steps of changing length move it.
        let most = self.window.map_or(usize::MAX, |_| needed.saturating_add(growth.columns()));
        if (needed..=most).contains(&self.capacity) {
            return self.clone();
        }
        Self { capacity: needed, oldest: read.start, ..self.clone() }
    }

    /// Notes that positions before `end` have been written.
    pub(crate) fn write(&mut self, end: usize) {
        self.oldest = self.oldest.max(end.saturating_sub(self.capacity.saturating_sub(self.keep)));
    }

    /// Positions as runs of columns, ascending.
    pub(crate) fn runs(&self, positions: Range<usize>) -> Runs {
        let mut runs = Runs::new();
        let mut first = positions.start;
        while first < positions.end {
            let column = self.column(first);
            // One that is kept is followed by the column after it, as is one that has not come to the last column.
            let end = positions.end.min(first + self.capacity - column);
            let end = if first < self.keep { end.min(self.keep) } else { end };
            match runs.last_mut() {
                Some(last) if last.column + last.positions.len() == column => last.positions.end = end,
                _ => runs.push(Run { row: 0, column, positions: first..end }),
            }
            first = end;
        }
        runs
    }

    fn column(&self, position: usize) -> usize {
        match position.checked_sub(self.keep) {
            None => position,
            Some(after) => self.keep + after % (self.capacity - self.keep),
        }
    }

    /// Runs of all that the query at `position` reads before it, and of the `tokens` tokens there.
    pub(crate) fn sight(&self, position: usize, tokens: usize) -> Runs {
        let [kept, read] = self.reads(position);
        let mut runs = self.runs(kept);
        runs.extend(self.runs(read.start..position + tokens));
        runs
    }

    /// What has to move so that what the query at `position` reads, which lies `from` there, lies here.
    pub(crate) fn moves(&self, from: &Self, position: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        for old in from.sight(position, 0) {
            for new in self.runs(old.positions.clone()) {
                let from = old.column + (new.positions.start - old.positions.start);
                moves.push(Move { from, to: new.column, count: new.positions.len() });
            }
        }
        moves
    }

    /// Places what the query at `position` reads, which lies one after the other in columns from 0 on.
    pub(crate) fn spread(&self, position: usize) -> Vec<Move> {
        let mut from = 0;
        let spread = |Run { column, positions, .. }: Run| {
            from += positions.len();
            Move { from: from - positions.len(), to: column, count: positions.len() }
        };
        self.sight(position, 0).into_iter().map(spread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroUsize;

    fn growth(columns: usize) -> Growth {
        Growth::by(NonZeroUsize::new(columns).unwrap())
    }

    fn run(column: usize, positions: Range<usize>) -> Run {
        Run { row: 0, column, positions }
    }

    #[test]
    fn a_window_goes_round() {
        let place = Place { capacity: 8, ..Place::new(Some(6)) };
        assert_eq!(place.read_by(3), 0..3);
        assert_eq!(place.read_by(6), 1..6);
        assert_eq!(place.runs(5..11)[..], [run(5, 5..8), run(0, 8..11)]);
        assert!(place.runs(16..16).is_empty());
        // The query at 11 reads 6 to 10.
        assert_eq!(place.spread(11), [Move { from: 0, to: 6, count: 2 }, Move { from: 2, to: 0, count: 3 }]);
    }

    #[test]
    fn first_positions_stay_before_what_goes_round() {
        // Columns 2 to 6 go round: positions 2 to 6, then 7 to 11.
        let mut place = Place { capacity: 7, ..Place::new(Some(5)).keeping(2) };
        assert_eq!(place.reads(4), [0..0, 0..4]);
        assert_eq!(place.reads(5), [0..2, 3..5]);
        assert_eq!(place.reads(11), [0..2, 9..11]);
        assert_eq!(place.runs(0..7)[..], [run(0, 0..7)]);
        assert_eq!(place.sight(11, 2)[..], [run(0, 0..2), run(4, 9..12), run(2, 12..13)]);
        place.write(7);
        assert_eq!(place.floor(), 0);
        place.write(9);
        // Positions 2 and 3 are gone; the query at 6 reads 4 and 5.
        assert_eq!((place.floor(), place.read_by(6)), (6, 4..6));
    }

    /// `mlx_lm`'s ring of `max_size` columns that keeps its first `keep`, written one token at a time: when the last
    /// column has been written the next one is that after the kept ones.
    #[test]
    fn one_token_at_a_time_it_sees_what_a_ring_of_mlx_holds() {
        let (window, keep) = (16, 4);
        let place = Place::new(Some(window)).keeping(keep);
        let (mut ring, mut next) = (vec![None; window], 0);
        for position in 0..200 {
            if next == window {
                next = keep;
            }
            ring[next] = Some(position);
            next += 1;
            let mut held: Vec<usize> = ring.iter().flatten().copied().collect();
            held.sort_unstable();
            let reads = place.reads(position).into_iter().flatten().chain([position]);
            assert_eq!(reads.collect::<Vec<_>>(), held);
        }
    }

    #[test]
    fn columns_of_a_whole_row_are_positions() {
        let place = Place::new(None).room(growth(4), 0, 5).room(growth(4), 5, 6);
        assert_eq!((place.capacity(), &place.runs(0..11)[..]), (12, &[run(0, 0..11)][..]));
        assert_eq!(place.room(growth(4), 2, 1), place, "a whole row never shrinks");
        assert_eq!(place.floor(), 0);
    }

    #[test]
    fn a_window_grows_for_a_long_step_and_shrinks_after_it() {
        let place = Place::new(Some(6)).room(growth(4), 0, 20);
        assert_eq!(place.capacity(), 20);
        // Five positions before the query and itself.
        assert_eq!(place.room(growth(4), 20, 1).capacity(), 8);
        // One growth more than needed is left alone.
        let place = Place::new(Some(6)).room(growth(4), 0, 12);
        assert_eq!(place.room(growth(4), 12, 1).capacity(), 12);
    }

    #[test]
    fn a_window_can_go_back_to_what_is_intact() {
        let mut place = Place { capacity: 8, ..Place::new(Some(3)) };
        place.write(8);
        assert_eq!(place.floor(), 0);
        place.write(10);
        // Positions 0 and 1 are gone; the query at 4 reads 2 and 3.
        assert_eq!((place.floor(), place.read_by(4)), (4, 2..4));
    }

    proptest! {
        /// Steps of any length, each kept in part: what a step reads is where it was written, in every layer of columns.
        #[test]
        fn what_is_read_is_what_was_written(
            window in prop::option::of(1..9_usize),
            keep in 0..8_usize,
            columns in 1..5_usize,
            steps in prop::collection::vec((1..9_usize, 0..9_usize), 1..20),
        ) {
            let mut place = Place::new(window).keeping(window.map_or(0, |window| keep % window));
            let mut held: Vec<Option<usize>> = Vec::new();
            let mut position = 0;
            for (tokens, keep) in steps {
                let [kept, read] = place.reads(position);
                let room = place.room(growth(columns), position, tokens);
                if room != place {
                    let mut moved = vec![None; room.capacity()];
                    for Move { from, to, count } in room.moves(&place, position) {
                        moved[to..to + count].copy_from_slice(&held[from..from + count]);
                    }
                    (place, held) = (room, moved);
                }
                prop_assert!(place.capacity() >= kept.len() + read.len() + tokens);
                for run in place.runs(position..position + tokens) {
                    for (column, position) in (run.column..).zip(run.positions) {
                        held[column] = Some(position);
                    }
                }
                place.write(position + tokens);
                for run in place.sight(position, tokens) {
                    for (column, position) in (run.column..).zip(run.positions) {
                        prop_assert_eq!(held[column], Some(position));
                    }
                }
                position += keep.min(tokens);
                prop_assert!(place.floor() <= position);
            }
        }
    }
}
