//! Weighted sums of a block's values.

use super::plane::{Plane, Reader};
use super::rows::{Rows, Soon};
use super::{CHUNK, Chunk, Lines, Stripe, View};
use crate::simd::{LANES, Simd};
use std::array::from_fn;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// Writes each vector's `o_b` to `mixed`, `[CHUNK, padded width]`. Hidden values are not touched at all,
/// because their weight of 0 would make NaN of an infinity. The first chunk asks for the next keys meanwhile.
#[inline(always)]
pub(super) fn fill<S: Simd>(simd: S, chunk: &Chunk<'_>, view: &View<'_>, weights: &Lines, mixed: &mut [f32]) {
    let width = mixed.len() / CHUNK;
    mixed[..chunk.count * width].fill(0.0);
    view.values.meet(simd, Fill { simd, chunk, view, weights, mixed });
}

struct Fill<'a, S> {
    simd: S,
    chunk: &'a Chunk<'a>,
    view: &'a View<'a>,
    weights: &'a Lines,
    mixed: &'a mut [f32],
}

impl<S: Simd> Reader for Fill<'_, S> {
    const KEYS: bool = false;
    const VALUES: bool = true;

    #[inline(always)]
    fn read<P: Plane>(self, plane: &P) {
        let visible = &self.chunk.visible[..self.chunk.count];
        let start = visible.iter().map(|places| places.start).max().unwrap_or(0);
        let end = visible.iter().map(|places| places.end).min().unwrap_or(0);
        // Places that all vectors see; neighbouring queries differ by a few places before and after.
        let common = start.min(end)..end;
        let soon = if self.chunk.first == 0 { self.view.soon } else { Soon::NONE };
        for stripe in self.view.unit.stripes(self.view.block) {
            for part in Part::ALL {
                if let Part::Common = part {
                    if let Some(values) = self.values(plane, &stripe, common.clone(), soon) {
                        values.mix(self.simd, self.weights, visible.len(), self.mixed);
                    }
                    continue;
                }
                for (vector, own) in visible.iter().enumerate() {
                    let own = match part {
                        Part::Before => own.start..own.end.min(common.start),
                        _ => own.start.max(common.end)..own.end,
                    };
                    if let Some(values) = self.values(plane, &stripe, own, Soon::NONE) {
                        values.columns::<S, 1>(self.simd, self.weights, vector, self.mixed);
                    }
                }
            }
        }
    }
}

/// Parts of what a vector sees, in ascending order.
#[derive(Clone, Copy)]
enum Part {
    Before,
    /// What all vectors see.
    Common,
    After,
}

impl Part {
    const ALL: [Self; 3] = [Self::Before, Self::Common, Self::After];
}

impl<S: Simd> Fill<'_, S> {
    /// The values of those places that lie in the stripe.
    #[inline(always)]
    fn values<P: Plane>(
        &self,
        plane: &P,
        stripe: &Stripe,
        places: Range<usize>,
        soon: Soon,
    ) -> Option<Values<P::Rows>> {
        let places = places.start.max(stripe.places.start)..places.end.min(stripe.places.end);
        if places.is_empty() {
            return None;
        }
        let first = places.start;
        Some(Values { rows: plane.rows(self.view.unit, stripe, places), soon, first })
    }
}

/// Consecutive values, those of the places of the block from `first` on.
struct Values<R> {
    rows: R,
    /// By place of the block.
    soon: Soon,
    first: usize,
}

impl<R: Rows> Values<R> {
    /// Adds the values to the sums of so many vectors.
    #[inline(always)]
    fn mix<S: Simd>(&self, simd: S, weights: &Lines, vectors: usize, mixed: &mut [f32]) {
        let mut first = 0;
        while first < vectors {
            first += match vectors - first {
                4.. if S::WIDE => self.columns::<S, 4>(simd, weights, first, mixed),
                3 if S::WIDE => self.columns::<S, 3>(simd, weights, first, mixed),
                2.. => self.columns::<S, 2>(simd, weights, first, mixed),
                _ => self.columns::<S, 1>(simd, weights, first, mixed),
            };
        }
    }

    /// `Q` vectors, as many columns at a time as registers hold. Gives `Q`.
    #[inline(always)]
    fn columns<S: Simd, const Q: usize>(
        &self,
        simd: S,
        weights: &Lines,
        first: usize,
        mixed: &mut [f32],
    ) -> usize {
        let width = mixed.len() / CHUNK;
        let lines: [&[f32; BLOCK]; Q] = from_fn(|q| &weights[first + q]);
        let mut column = 0;
        while column < width {
            let to = &mut mixed[first * width + column..];
            column += LANES
                * match (width - column) / LANES {
                    4.. if S::WIDE => self.tile::<S, Q, 4>(simd, &lines, column, (to, width)),
                    3 if S::WIDE => self.tile::<S, Q, 3>(simd, &lines, column, (to, width)),
                    2.. => self.tile::<S, Q, 2>(simd, &lines, column, (to, width)),
                    _ => self.tile::<S, Q, 1>(simd, &lines, column, (to, width)),
                };
        }
        Q
    }

    /// `Q` vectors with `D` times sixteen columns. Gives `D`.
    #[inline(always)]
    fn tile<S: Simd, const Q: usize, const D: usize>(
        &self,
        simd: S,
        lines: &[&[f32; BLOCK]; Q],
        column: usize,
        (to, width): (&mut [f32], usize),
    ) -> usize {
        let mut sums = [[simd.splat(0.0); D]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            let from = to[q * width..].as_chunks::<LANES>().0;
            for (sum, from) in sums.iter_mut().zip(from) {
                *sum = simd.load(from);
            }
            for two in sums.as_chunks_mut::<2>().0 {
                if R::DEALT && D.is_multiple_of(2) {
                    *two = simd.deal(two[0], two[1]);
                }
            }
        }
        let mut weights: [&[f32]; Q] = [&[]; Q];
        for (weights, line) in weights.iter_mut().zip(lines) {
            *weights = &line[self.first..][..self.rows.count()];
        }
        // By index, so that all sums stay in registers: iterators over them left half of the sums in memory.
        #[allow(clippy::needless_range_loop, reason = "see above")]
        for place in 0..self.rows.count() {
            if column == 0 {
                self.soon.ask(simd, self.first + place);
            }
            let mut values = [simd.splat(0.0); D];
            if R::DEALT && D.is_multiple_of(2) {
                for (d, values) in values.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    // SAFETY: the place is below the count, and `column` and `D` were chosen within the width.
                    *values = unsafe { self.rows.dealt(simd, place, column / LANES + 2 * d) };
                }
            } else {
                for (d, value) in values.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *value = unsafe { self.rows.vector(simd, place, column / LANES + d) };
                }
            }
            for q in 0..Q {
                let weight = simd.splat(weights[q][place]);
                for d in 0..D {
                    sums[q][d] = simd.fma(weight, values[d], sums[q][d]);
                }
            }
        }
        for q in 0..Q {
            for two in sums[q].as_chunks_mut::<2>().0 {
                if R::DEALT && D.is_multiple_of(2) {
                    *two = simd.zip(two[0], two[1]);
                }
            }
            let to = to[q * width..].as_chunks_mut::<LANES>().0;
            for d in 0..D {
                simd.store(&mut to[d], sums[q][d]);
            }
        }
        D
    }
}
