//! Where a row sits in planes that it shares.

use crate::ragged::Runs;
use std::ops::Range;
use tandem_contracts::{
    model::Slot,
    tensor::{KvWrite, Run},
};

/// A row's columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) slot: Slot,
    /// Row of the planes.
    pub(super) row: usize,
    /// Column of position 0, were it there.
    pub(super) shift: usize,
    /// Positions from here on are intact.
    pub(super) oldest: usize,
    /// Tokens that the row holds.
    pub(super) tokens: usize,
}

impl Seat {
    /// The shift at which a row of `tokens` tokens ends at column `end` of `columns`.
    pub(super) fn shift(tokens: usize, end: usize, columns: usize) -> usize {
        (end % columns + columns - tokens % columns) % columns
    }

    /// Positions as runs of columns, ascending.
    pub(super) fn runs(&self, positions: Range<usize>, columns: usize) -> Runs {
        let mut runs = Runs::new();
        let mut first = positions.start;
        while first < positions.end {
            let column = (first + self.shift) % columns;
            let end = positions.end.min(first + columns - column);
            runs.push(Run { row: self.row, column, positions: first..end });
            first = end;
        }
        runs
    }

    /// How positions are written that are the tokens from `token` on of the packed ones.
    pub(super) fn writes(&self, positions: Range<usize>, columns: usize, token: usize) -> Vec<KvWrite> {
        let first = positions.start;
        let write = |Run { row, column, positions }: Run| KvWrite {
            tokens: token + positions.start - first..token + positions.end - first,
            row,
            column,
        };
        self.runs(positions, columns).into_iter().map(write).collect()
    }

    /// Notes that positions before `end` have been written.
    pub(super) fn write(&mut self, end: usize, columns: usize) {
        self.oldest = self.oldest.max(end.saturating_sub(columns));
    }

    /// Fewest tokens to which the row can be shortened.
    pub(super) fn floor(&self, window: Option<usize>) -> usize {
        match (self.oldest, window) {
            (0, _) | (_, None) => 0,
            (oldest, Some(window)) => oldest + window - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(row: usize, shift: usize, tokens: usize) -> Seat {
        Seat { slot: Slot(0), row, shift, oldest: 0, tokens }
    }

    fn run(row: usize, column: usize, positions: Range<usize>) -> Run {
        Run { row, column, positions }
    }

    #[test]
    fn rows_end_at_one_column() {
        // Rows of 3, 7 and 1 tokens in 8 columns; in 5, of which a window needs 3 before the query.
        assert_eq!([3, 7, 1].map(|tokens| Seat::shift(tokens, 7, 8)), [4, 0, 6]);
        let shifts = [3, 7, 1].map(|tokens| Seat::shift(tokens, 3, 5));
        assert_eq!(shifts, [0, 1, 2]);
        let next = [3, 7, 1].into_iter().zip(shifts).map(|(tokens, shift)| (tokens + shift) % 5);
        assert!(next.eq([3; 3]));
    }

    #[test]
    fn positions_go_round() {
        let seat = seat(2, 1, 7);
        assert_eq!(seat.runs(4..8, 5)[..], [run(2, 0, 4..8)]);
        assert_eq!(seat.runs(2..6, 5)[..], [run(2, 3, 2..4), run(2, 0, 4..6)]);
        assert_eq!(
            seat.writes(3..5, 5, 9),
            [KvWrite { tokens: 9..10, row: 2, column: 4 }, KvWrite { tokens: 10..11, row: 2, column: 0 }]
        );
    }

    #[test]
    fn a_window_can_go_back_to_what_is_intact() {
        let mut seat = seat(0, 3, 8);
        seat.write(8, 8);
        assert_eq!(seat.floor(Some(3)), 0);
        seat.write(10, 8);
        assert_eq!((seat.floor(Some(3)), seat.floor(None)), (4, 0));
    }
}
