//! How a product is cut into parts of about the same cost.
//!
//! The work is a list of lanes of work, one for each segment and run of rows; each is cut at groups of tiles that
//! a kernel takes together. Part `p` of `n` covers the stretch `p/n .. (p+1)/n` of the total cost, cut at the next
//! whole group of tiles, so that nothing is computed twice and no list of parts is built.

use std::ops::Range;

use smallvec::SmallVec;

use super::format::LANES;
use crate::pool::Pool;

/// Cost below which a part is not worth handing out: about two microseconds of one core.
const WORTHWHILE: usize = 40_000;

/// Parts for each thread when there is enough work: late threads then leave little undone.
const SHARES: usize = 8;

/// A segment's tiles for a run of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    /// Which segment, batch and so on: the caller's own number.
    pub(super) index: usize,
    pub(super) tiles: usize,
    /// Tiles that are not separated, because a kernel takes them at once.
    pub(super) together: usize,
    /// Of one tile, see [`cost`].
    pub(super) cost: usize,
}

/// The cost of one tile for some rows, in bytes read: rows cost as much as the bytes that could be read
/// meanwhile. Never nothing, for results have to be written even where there is nothing to read.
pub(super) fn cost(tile_bytes: usize, width: usize, rows: usize) -> usize {
    LANES + tile_bytes + width * rows * 2
}

/// Lanes of work, to be shared by the threads of a pool.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    lanes: SmallVec<[Lane; 2]>,
    total: usize,
    parts: usize,
}

impl Plan {
    pub(super) fn new(pool: &Pool, lanes: impl IntoIterator<Item = Lane>) -> Self {
        let lanes: SmallVec<[Lane; 2]> = lanes.into_iter().collect();
        let total = lanes.iter().map(Lane::total).sum::<usize>();
        let parts = (total / WORTHWHILE).clamp(1, pool.threads() * SHARES);
        Self { lanes, total, parts }
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        if self.total == 0 { 0 } else { self.parts }
    }

    /// The lanes' indices and tiles that a part covers.
    pub(super) fn part(&self, part: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let bound = |part: usize| (self.total as u128 * part as u128 / self.parts as u128) as usize;
        let (start, end) = (bound(part), bound(part + 1));
        self.lanes
            .iter()
            .scan(0, |before, lane| {
                let first = *before;
                *before += lane.total();
                Some((lane, first))
            })
            .filter_map(move |(lane, first)| {
                let tiles = lane.tiles_from(start, first)..lane.tiles_from(end, first);
                (!tiles.is_empty()).then_some((lane.index, tiles))
            })
    }
}

impl Lane {
    fn total(&self) -> usize {
        self.tiles * self.cost
    }

    /// The first tile of the first group of tiles that begins at `at` or later, where tile 0 begins at `first`.
    fn tiles_from(&self, at: usize, first: usize) -> usize {
        let group = (self.together * self.cost).max(1);
        (at.saturating_sub(first).div_ceil(group) * self.together).min(self.tiles)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use proptest::prelude::*;

    use super::*;
    use crate::isa::Isa;

    proptest! {
        #[test]
        fn parts_cover_every_tile_once(
            threads in 1..5usize,
            sizes in proptest::collection::vec((0..200usize, 1..200_000usize, 1..5usize), 0..6),
        ) {
            let pool = Pool::new(NonZeroUsize::new(threads).unwrap(), Isa::Portable).unwrap();
            let lanes = sizes.iter().enumerate().map(|(index, (tiles, cost, together))| Lane {
                index, tiles: *tiles, together: *together, cost: *cost,
            });
            let plan = Plan::new(&pool, lanes);
            let mut seen: Vec<Vec<usize>> = sizes.iter().map(|(tiles, ..)| vec![0; *tiles]).collect();
            for part in 0..plan.parts() {
                for (index, tiles) in plan.part(part) {
                    prop_assert_eq!(tiles.start % sizes[index].2, 0);
                    seen[index][tiles].iter_mut().for_each(|count| *count += 1);
                }
            }
            prop_assert!(seen.iter().flatten().all(|count| *count == 1));
        }
    }

    #[test]
    fn little_work_stays_in_one_part() {
        let pool = Pool::new(NonZeroUsize::new(2).unwrap(), Isa::Portable).unwrap();
        let plan = |tiles| Plan::new(&pool, vec![Lane { index: 0, tiles, together: 4, cost: 1000 }]);
        assert_eq!(plan(0).parts(), 0);
        assert_eq!(plan(4).parts(), 1);
        assert_eq!(plan(100).parts(), 2);
        assert_eq!(plan(10_000).parts(), 16);
    }
}
