//! Scores: dot products of a chunk's queries with a block's keys.

use super::{CHUNK, Chunk, Lines, View};
use crate::simd::{LANES, Simd, math};
use std::array::from_fn;

/// Writes the scores of all live places that some vector sees.
#[inline(always)]
pub(super) fn fill<S: Simd>(
    simd: S,
    chunk: &Chunk<'_>,
    view: &View<'_>,
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    let union = chunk.union();
    for stripe in view.stripes {
        let places = stripe.places.start.max(union.start)..stripe.places.end.min(union.end);
        if places.is_empty() {
            continue;
        }
        let keys = Keys {
            elements: view.keys.from(stripe, places.start),
            step: view.keys.step,
            count: places.len(),
            soft_cap,
        };
        match chunk.count {
            1 => keys.score::<S, 1, 16>(simd, &chunk.queries, lines, places.start),
            2 => keys.score::<S, 2, 8>(simd, &chunk.queries, lines, places.start),
            3 => keys.score::<S, 3, 4>(simd, &chunk.queries, lines, places.start),
            _ => keys.score::<S, 4, 4>(simd, &chunk.queries, lines, places.start),
        }
    }
}

/// Consecutive keys.
struct Keys<'a> {
    elements: &'a [f32],
    step: usize,
    count: usize,
    soft_cap: Option<f32>,
}

impl Keys<'_> {
    /// Scores of the first `Q` queries with all keys, `K` keys at a time; `Q * K` is at most 16.
    #[inline(always)]
    fn score<S: Simd, const Q: usize, const K: usize>(
        &self,
        simd: S,
        queries: &[&[f32]; CHUNK],
        lines: &mut Lines,
        place: usize,
    ) {
        let width = queries[0].len();
        let queries: [&[[f32; LANES]]; Q] = from_fn(|q| queries[q][..width].as_chunks().0);
        for first in (0..self.count).step_by(K) {
            // Past the end the last key is taken again and its scores are left out.
            let key = |k: usize| (first + k).min(self.count - 1) * self.step;
            let mut keys: [&[[f32; LANES]]; K] = [&[]; K];
            for (k, to) in keys.iter_mut().enumerate() {
                *to = self.elements[key(k)..][..width].as_chunks().0;
            }
            let mut sums = [simd.splat(0.0); LANES];
            dots::<S, Q, K>(simd, &queries, &keys, &mut sums);
            let mut scores = [0.0; LANES];
            simd.store(&mut scores, soften(simd, simd.sums(&sums), self.soft_cap));
            let count = K.min(self.count - first);
            for (line, scores) in lines.iter_mut().zip(scores.chunks_exact(K)).take(Q) {
                let line = &mut line[place + first..];
                match (line.first_chunk_mut::<K>(), scores.first_chunk::<K>()) {
                    (Some(line), Some(scores)) if count == K => *line = *scores,
                    _ => line[..count].copy_from_slice(&scores[..count]),
                }
            }
        }
    }
}

/// Partial sums of `Q * K` dot products, sum `q * K + k` for query `q` and key `k`.
#[inline(always)]
fn dots<S: Simd, const Q: usize, const K: usize>(
    simd: S,
    queries: &[&[[f32; LANES]]; Q],
    keys: &[&[[f32; LANES]]; K],
    sums: &mut [S::Lanes; LANES],
) {
    if S::WIDE {
        let tile = tile::<S, Q, K>(simd, queries, keys);
        for (sums, tile) in sums.chunks_exact_mut(K).zip(&tile) {
            sums.copy_from_slice(tile);
        }
        return;
    }
    // Four sums fill the registers.
    for (q, query) in queries.iter().enumerate() {
        for first in (0..K).step_by(4) {
            let tile = tile::<S, 1, 4>(simd, &[query], &from_fn(|k| keys[first + k]));
            sums[q * K + first..][..4].copy_from_slice(&tile[0]);
        }
    }
}

#[inline(always)]
fn tile<S: Simd, const Q: usize, const K: usize>(
    simd: S,
    queries: &[&[[f32; LANES]]; Q],
    keys: &[&[[f32; LANES]]; K],
) -> [[S::Lanes; K]; Q] {
    let vectors = queries[0].len();
    let queries: [&[[f32; LANES]]; Q] = queries.map(|query| &query[..vectors]);
    let keys: [&[[f32; LANES]]; K] = keys.map(|key| &key[..vectors]);
    let mut sums = [[simd.splat(0.0); K]; Q];
    for vector in 0..vectors {
        for k in 0..K {
            let key = simd.load(&keys[k][vector]);
            for q in 0..Q {
                sums[q][k] = simd.fma(simd.load(&queries[q][vector]), key, sums[q][k]);
            }
        }
    }
    sums
}

/// `cap * tanh(score / cap)`.
#[inline(always)]
pub(super) fn soften<S: Simd>(simd: S, scores: S::Lanes, cap: Option<f32>) -> S::Lanes {
    let Some(cap) = cap else { return scores };
    let cap = simd.splat(cap);
    simd.mul(cap, math::tanh(simd, simd.div(scores, cap)))
}
