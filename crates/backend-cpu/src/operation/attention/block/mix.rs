//! Weighted sums of a block's values.

use super::rows::{Rows, Soon};
use super::{CHUNK, Chunk, Lines, Stripe, View};
use crate::number::Real;
use crate::simd::{LANES, Simd};
use std::array::from_fn;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// Writes each vector's `o_b` to `mixed`, `[CHUNK, padded width]`. Hidden values are not touched at all,
/// because their weight of 0 would make NaN of an infinity. The first chunk asks for the next keys meanwhile.
#[inline(always)]
pub(super) fn fill<S: Simd, T: Real>(
    simd: S,
    chunk: &Chunk<'_>,
    view: &View<'_, T>,
    weights: &Lines,
    mixed: &mut [f32],
) {
    let width = mixed.len() / CHUNK;
    mixed[..chunk.count * width].fill(0.0);
    let visible = &chunk.visible[..chunk.count];
    let start = visible.iter().map(|places| places.start).max().unwrap_or(0);
    let end = visible.iter().map(|places| places.end).min().unwrap_or(0);
    // Places that all vectors see; neighbouring queries differ by a few places before and after.
    let common = start.min(end)..end;
    let soon = if chunk.first == 0 { view.soon } else { Soon::NONE };
    for stripe in view.unit.stripes(view.block) {
        for (vector, places) in visible.iter().enumerate() {
            let before = places.start..places.end.min(common.start);
            add(simd, (view, &stripe, before, Soon::NONE), weights, vector..vector + 1, mixed);
        }
        add(simd, (view, &stripe, common.clone(), soon), weights, 0..chunk.count, mixed);
        for (vector, places) in visible.iter().enumerate() {
            let after = places.start.max(common.end)..places.end;
            add(simd, (view, &stripe, after, Soon::NONE), weights, vector..vector + 1, mixed);
        }
    }
}

/// Adds the values of those places that lie in the stripe.
#[inline(always)]
fn add<S: Simd, T: Real>(
    simd: S,
    (view, stripe, places, soon): (&View<'_, T>, &Stripe, Range<usize>, Soon),
    weights: &Lines,
    vectors: Range<usize>,
    mixed: &mut [f32],
) {
    let places = places.start.max(stripe.places.start)..places.end.min(stripe.places.end);
    if !places.is_empty() {
        let elements = view.values.from(view.unit, stripe, places.start);
        let rows = Rows::new(elements, view.values.step, places.len(), mixed.len() / CHUNK);
        Values { rows, soon, first: places.start }.mix(simd, weights, vectors, mixed);
    }
}

/// Consecutive values, those of the places of the block from `first` on.
struct Values<'a, T> {
    rows: Rows<'a, T>,
    /// By place of the block.
    soon: Soon,
    first: usize,
}

impl<T: Real> Values<'_, T> {
    /// Adds the values to the sums of some vectors.
    #[inline(always)]
    fn mix<S: Simd>(&self, simd: S, weights: &Lines, vectors: Range<usize>, mixed: &mut [f32]) {
        let mut first = vectors.start;
        while first < vectors.end {
            let left = vectors.end - first;
            first += match left {
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
        }
        let mut weights: [&[f32]; Q] = [&[]; Q];
        for (weights, line) in weights.iter_mut().zip(lines) {
            *weights = &line[self.first..][..self.rows.count()];
        }
        for place in 0..self.rows.count() {
            if column == 0 {
                self.soon.ask(simd, self.first + place);
            }
            let mut values = [simd.splat(0.0); D];
            for (d, value) in values.iter_mut().enumerate() {
                // SAFETY: the place is below the count, and `column` and `D` were chosen within the width.
                *value = T::load(simd, unsafe { self.rows.vector(place, column / LANES + d) });
            }
            for (sums, weights) in sums.iter_mut().zip(&weights) {
                let weight = simd.splat(weights[place]);
                for (sum, &value) in sums.iter_mut().zip(&values) {
                    *sum = simd.fma(weight, value, *sum);
                }
            }
        }
        for q in 0..Q {
            let to = to[q * width..].as_chunks_mut::<LANES>().0;
            for d in 0..D {
                simd.store(&mut to[d], sums[q][d]);
            }
        }
        D
    }
}
