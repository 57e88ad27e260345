//! Scores: dot products of a chunk's queries with a block's keys.

use super::plane::{Plane, Reader};
use super::rows::{Rows, Soon};
use super::{CHUNK, Chunk, Lines, View};
use crate::simd::{LANES, Simd, math};

/// Writes the scores of all live places that some vector sees. The first chunk asks for the values meanwhile.
#[inline(always)]
pub(super) fn fill<S: Simd>(
    simd: S,
    chunk: &Chunk<'_>,
    view: &View<'_>,
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    view.keys.meet(simd, Fill { simd, chunk, view, soft_cap, lines });
}

struct Fill<'a, S> {
    simd: S,
    chunk: &'a Chunk<'a>,
    view: &'a View<'a>,
    soft_cap: Option<f32>,
    lines: &'a mut Lines,
}

impl<S: Simd> Reader for Fill<'_, S> {
    const KEYS: bool = true;
    const VALUES: bool = false;

    #[inline(always)]
    fn read<P: Plane>(self, plane: &P) {
        let Self { simd, chunk, view, soft_cap, lines } = self;
        let union = chunk.union();
        for stripe in view.unit.stripes(view.block) {
            let places = stripe.places.start.max(union.start)..stripe.places.end.min(union.end);
            if places.is_empty() {
                continue;
            }
            let soon = match chunk.first {
                0 => view.values.soon(view.unit, &stripe, places.start),
                _ => Soon::NONE,
            };
            let keys = Keys { rows: plane.rows(view.unit, &stripe, places.clone()), soon, soft_cap };
            match chunk.count {
                1 => keys.score::<S, 1, 16>(simd, &chunk.queries, lines, places.start),
                2 => keys.score::<S, 2, 8>(simd, &chunk.queries, lines, places.start),
                3 if S::WIDE => keys.sixteen::<S, 3>(simd, &chunk.queries, lines, places.start),
                4 if S::WIDE => keys.sixteen::<S, 4>(simd, &chunk.queries, lines, places.start),
                3 => keys.score::<S, 3, 4>(simd, &chunk.queries, lines, places.start),
                _ => keys.score::<S, 4, 4>(simd, &chunk.queries, lines, places.start),
            }
        }
    }
}

/// Consecutive keys.
struct Keys<R> {
    rows: R,
    /// Their values.
    soon: Soon,
    soft_cap: Option<f32>,
}

impl<R: Rows> Keys<R> {
    /// Scores of the first `Q` queries with all keys, `K` keys at a time; `Q * K` is at most 16.
    #[inline(always)]
    fn score<S: Simd, const Q: usize, const K: usize>(
        &self,
        simd: S,
        queries: &[&[f32]; CHUNK],
        lines: &mut Lines,
        place: usize,
    ) {
        let mut own: [&[[f32; LANES]]; Q] = [&[]; Q];
        for (own, query) in own.iter_mut().zip(queries) {
            *own = query.as_chunks().0;
        }
        for first in (0..self.rows.count()).step_by(K) {
            for k in 0..K {
                self.soon.ask(simd, first + k);
            }
            let sums = self.dots::<S, Q, K>(simd, &own, first);
            let mut scores = [0.0; LANES];
            simd.store(&mut scores, soften(simd, simd.sums(&sums), self.soft_cap));
            let count = K.min(self.rows.count() - first);
            for (line, scores) in lines.iter_mut().zip(scores.chunks_exact(K)).take(Q) {
                let line = &mut line[place + first..];
                match (line.first_chunk_mut::<K>(), scores.first_chunk::<K>()) {
                    (Some(line), Some(scores)) if count == K => *line = *scores,
                    _ => line[..count].copy_from_slice(&scores[..count]),
                }
            }
        }
    }

    /// Scores of the first `Q` queries with all keys, sixteen keys at a time, so that each query's fill a vector.
    #[inline(always)]
    fn sixteen<S: Simd, const Q: usize>(
        &self,
        simd: S,
        queries: &[&[f32]; CHUNK],
        lines: &mut Lines,
        place: usize,
    ) {
        let mut own: [&[[f32; LANES]]; Q] = [&[]; Q];
        for (own, query) in own.iter_mut().zip(queries) {
            *own = query.as_chunks().0;
        }
        for first in (0..self.rows.count()).step_by(LANES) {
            let mut begun = [[simd.splat(0.0); 4]; Q];
            #[allow(
                clippy::needless_range_loop,
                reason = "iterators are not sure to stay within the kernel's instructions"
            )]
            for i in 0..4 {
                for k in 0..4 {
                    self.soon.ask(simd, first + 4 * i + k);
                }
                let tile = self.tile::<S, Q, 4>(simd, &own, (first + i, 4));
                for q in 0..Q {
                    begun[q][i] = simd.begin_sums(&tile[q]);
                }
            }
            let count = LANES.min(self.rows.count() - first);
            for q in 0..Q {
                let scores = soften(simd, simd.end_sums(&begun[q]), self.soft_cap);
                let line = &mut lines[q][place + first..];
                match line.first_chunk_mut() {
                    Some(line) if count == LANES => simd.store(line, scores),
                    _ => simd.store_part(&mut line[..count], scores),
                }
            }
        }
    }

    /// Partial sums of the queries with the `K` keys from `first` on: sum `q * K + k` for query `q` and key `k`.
    #[inline(always)]
    fn dots<S: Simd, const Q: usize, const K: usize>(
        &self,
        simd: S,
        queries: &[&[[f32; LANES]]; Q],
        first: usize,
    ) -> [S::Lanes; LANES] {
        let mut sums = [simd.splat(0.0); LANES];
        if S::WIDE {
            let tile = self.tile::<S, Q, K>(simd, queries, (first, 1));
            for (sums, tile) in sums.chunks_exact_mut(K).zip(&tile) {
                sums.copy_from_slice(tile);
            }
            return sums;
        }
        // Four sums fill the registers.
        for (q, query) in queries.iter().enumerate() {
            for k in (0..K).step_by(4) {
                let tile = self.tile::<S, 1, 4>(simd, &[query], (first + k, 1));
                sums[q * K + k..][..4].copy_from_slice(&tile[0]);
            }
        }
        sums
    }

    /// Partial sums of the queries with each `step`th of the keys from `first` on.
    #[inline(always)]
    fn tile<S: Simd, const Q: usize, const K: usize>(
        &self,
        simd: S,
        queries: &[&[[f32; LANES]]; Q],
        (first, step): (usize, usize),
    ) -> [[S::Lanes; K]; Q] {
        // Past the end the last key is taken again; its scores are left out.
        let mut rows = [0; K];
        for (k, row) in rows.iter_mut().enumerate() {
            *row = (first + k * step).min(self.rows.count() - 1);
        }
        let mut sums = [[simd.splat(0.0); K]; Q];
        for vector in 0..queries[0].len() {
            for k in 0..K {
                // SAFETY: the row is below the count, and rows are as wide as queries.
                let key = unsafe { self.rows.vector(simd, rows[k], vector) };
                for (sums, query) in sums.iter_mut().zip(queries) {
                    sums[k] = simd.fma(simd.load(&query[vector]), key, sums[k]);
                }
            }
        }
        sums
    }
}

/// `cap * tanh(score / cap)`.
#[inline(always)]
pub(super) fn soften<S: Simd>(simd: S, scores: S::Lanes, cap: Option<f32>) -> S::Lanes {
    let Some(cap) = cap else { return scores };
    let cap = simd.splat(cap);
    simd.mul(cap, math::tanh(simd, simd.div(scores, cap)))
}
