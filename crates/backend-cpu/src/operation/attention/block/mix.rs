//! Weighted sums of a block's values.

use super::{CHUNK, Chunk, Lines, View};
use crate::simd::{LANES, Simd};
use std::array::from_fn;
use std::ops::Range;

/// Writes each vector's `o_b` to `mixed`, `[CHUNK, padded width]`. Hidden values are not touched at all, because
/// their weight of 0 would make NaN of an infinity.
#[inline(always)]
pub(super) fn fill<S: Simd>(simd: S, chunk: &Chunk<'_>, view: &View<'_>, weights: &Lines, mixed: &mut [f32]) {
    let width = mixed.len() / CHUNK;
    mixed[..chunk.count * width].fill(0.0);
    let visible = &chunk.visible[..chunk.count];
    let start = visible.iter().map(|places| places.start).max().unwrap_or(0);
    let end = visible.iter().map(|places| places.end).min().unwrap_or(0);
    // Places that all vectors see; neighbouring queries differ by a few places before and after.
    let common = start.min(end)..end;
    for stripe in view.stripes {
        let mut add = |places: Range<usize>, vectors: Range<usize>| {
            let places = places.start.max(stripe.places.start)..places.end.min(stripe.places.end);
            if !places.is_empty() {
                let elements = view.values.from(stripe, places.start);
                Values { elements, step: view.values.step, places }.mix(simd, weights, vectors, mixed);
            }
        };
        for (vector, places) in visible.iter().enumerate() {
            add(places.start..places.end.min(common.start), vector..vector + 1);
        }
        add(common.clone(), 0..chunk.count);
        for (vector, places) in visible.iter().enumerate() {
            add(places.start.max(common.end)..places.end, vector..vector + 1);
        }
    }
}

/// Consecutive values, those of some places of the block.
struct Values<'a> {
    elements: &'a [f32],
    step: usize,
    places: Range<usize>,
}

impl Values<'_> {
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
        let lines: [&[f32]; Q] = from_fn(|q| &weights[first + q][self.places.clone()]);
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
        lines: &[&[f32]; Q],
        column: usize,
        (to, width): (&mut [f32], usize),
    ) -> usize {
        let count = self.places.len();
        let lines: [&[f32]; Q] = from_fn(|q| &lines[q][..count]);
        let mut sums: [[S::Lanes; D]; Q] =
            from_fn(|q| from_fn(|d| simd.load(&to[q * width..].as_chunks::<LANES>().0[d])));
        (0..count).for_each(|place| {
            let value = self.elements[place * self.step + column..][..D * LANES].as_chunks::<LANES>().0;
            let value: [S::Lanes; D] = from_fn(|d| simd.load(&value[d]));
            for q in 0..Q {
                let weight = simd.splat(lines[q][place]);
                for d in 0..D {
                    sums[q][d] = simd.fma(weight, value[d], sums[q][d]);
                }
            }
        });
        for (q, sums) in sums.into_iter().enumerate() {
            let (to, _) = to[q * width..].as_chunks_mut::<LANES>();
            to.iter_mut().zip(sums).for_each(|(to, sum)| simd.store(to, sum));
        }
        D
    }
}
