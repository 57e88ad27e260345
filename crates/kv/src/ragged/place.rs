//! Which position of a row lies in which column of a layer's planes.
//!
//! Position `p` lies in column `p % capacity`. A layer that keeps everything has at least as many columns as positions,
//! so that columns are positions. A window has as many as its next step reads and writes, and goes round.
//!
//! Invariants: what a step reads is intact until the next one begins, so that every step can be given up or kept in
//! part; positions from `oldest` on are intact.

use crate::Growth;
use std::ops::Range;
use tandem_contracts::tensor::Run;

/// The columns of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    window: Option<usize>,
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
        Self { window, capacity: 0, oldest: 0 }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Positions before `position` that the query there reads.
    pub(crate) fn read_by(&self, position: usize) -> Range<usize> {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))..position
    }

    /// Fewest tokens to which the row can be shortened: what is read from there on is intact.
    pub(crate) fn floor(&self) -> usize {
        match (self.oldest, self.window) {
            (0, _) | (_, None) => 0,
            (oldest, Some(window)) => oldest + window - 1,
        }
    }

    /// The place in which a step of `tokens` tokens at `position` can be written; the same if this one will do.
    pub(crate) fn room(&self, growth: Growth, position: usize, tokens: usize) -> Self {
        let read = self.read_by(position);
        let needed = growth.capacity(read.len() + tokens);
        // A window gives back what a long step took, but not so eagerly that steps of changing length move it.
        let most = self.window.map_or(usize::MAX, |_| needed.saturating_add(growth.columns()));
        if (needed..=most).contains(&self.capacity) {
            return self.clone();
        }
        Self { window: self.window, capacity: needed, oldest: read.start }
    }

    /// Notes that positions before `end` have been written.
    pub(crate) fn write(&mut self, end: usize) {
        self.oldest = self.oldest.max(end.saturating_sub(self.capacity));
    }

    /// Positions as runs of columns, ascending.
    pub(crate) fn runs(&self, positions: Range<usize>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut first = positions.start;
        while first < positions.end {
            let column = first % self.capacity;
            let end = positions.end.min(first + self.capacity - column);
            runs.push(Run { row: 0, column, positions: first..end });
            first = end;
        }
        runs
    }

    /// What has to move so that `positions`, which lie `from` there, lie here.
    pub(crate) fn moves(&self, from: &Self, positions: Range<usize>) -> Vec<Move> {
        let mut moves = Vec::new();
        for old in from.runs(positions) {
            for new in self.runs(old.positions.clone()) {
                let from = old.column + (new.positions.start - old.positions.start);
                moves.push(Move { from, to: new.column, count: new.positions.len() });
            }
        }
        moves
    }

    /// Places `positions` that lie one after the other in columns from 0 on.
    pub(crate) fn spread(&self, positions: Range<usize>) -> Vec<Move> {
        let first = positions.start;
        let spread =
            |run: Run| Move { from: run.positions.start - first, to: run.column, count: run.positions.len() };
        self.runs(positions).into_iter().map(spread).collect()
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
        let place = Place { window: Some(6), capacity: 8, oldest: 0 };
        assert_eq!(place.read_by(3), 0..3);
        assert_eq!(place.read_by(6), 1..6);
        assert_eq!(place.runs(5..11), [run(5, 5..8), run(0, 8..11)]);
        assert_eq!(place.runs(16..16), []);
        assert_eq!(
            place.spread(5..11),
            [Move { from: 0, to: 5, count: 3 }, Move { from: 3, to: 0, count: 3 }]
        );
    }

    #[test]
    fn columns_of_a_whole_row_are_positions() {
        let place = Place::new(None).room(growth(4), 0, 5).room(growth(4), 5, 6);
        assert_eq!((place.capacity(), place.runs(0..11)), (12, vec![run(0, 0..11)]));
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
        let mut place = Place { window: Some(3), capacity: 8, oldest: 0 };
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
            columns in 1..5_usize,
            steps in prop::collection::vec((1..9_usize, 0..9_usize), 1..20),
        ) {
            let mut place = Place::new(window);
            let mut held: Vec<Option<usize>> = Vec::new();
            let mut position = 0;
            for (tokens, keep) in steps {
                let read = place.read_by(position);
                let room = place.room(growth(columns), position, tokens);
                if room != place {
                    let mut moved = vec![None; room.capacity()];
                    for Move { from, to, count } in room.moves(&place, read.clone()) {
                        moved[to..to + count].copy_from_slice(&held[from..from + count]);
                    }
                    (place, held) = (room, moved);
                }
                prop_assert!(place.capacity() >= read.len() + tokens);
                for run in place.runs(position..position + tokens) {
                    for (column, position) in (run.column..).zip(run.positions) {
                        held[column] = Some(position);
                    }
                }
                place.write(position + tokens);
                for run in place.runs(read.start..position + tokens) {
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
