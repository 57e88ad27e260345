//! Scores against turned keys: vectors hold sixteen keys, so that sums never cross lanes.
//!
//! Turning a block costs as much as scoring a few queries, and pays where many meet it (prompts). A score is
//! the same chain and tree of additions as in [`super::score`], only that each of its sixteen partial sums
//! now is a vector's; they are computed in the order of the tree, so that few are alive at once.
//!
//! Layout: for each sixteen places, for each partial sum `l`, the elements `l, l + 16, ..` of the keys, each
//! a vector of sixteen places.

use super::plane::Held;
use super::score::soften;
use super::{CHUNK, Chunk, Lines, View};
use crate::simd::{LANES, Simd};
use tandem_contracts::tensor::attention::BLOCK;

/// Vectors of places in a block.
const GROUPS: usize = BLOCK / LANES;

/// Turns a block's keys. Places that are not live become arbitrary.
#[inline(always)]
pub(super) fn turn<'a, S: Simd>(simd: S, view: &View<'_>, space: &'a mut [f32]) -> &'a [f32] {
    // Many vectors read keys as f32.
    let Held::F32(keys) = &view.keys else { return &[] };
    let width = space.len() / BLOCK;
    for (group, space) in space.chunks_exact_mut(LANES * width).enumerate() {
        let mut own: [&[[f32; LANES]]; LANES] = [&[]; LANES];
        for stripe in view.unit.stripes(view.block) {
            let first = stripe.places.start.max(group * LANES);
            for place in first..stripe.places.end.min((group + 1) * LANES) {
                own[place % LANES] = keys.from(view.unit, &stripe, place)[..width].as_chunks().0;
            }
        }
        let (to, _) = space.as_chunks_mut::<LANES>();
        for vector in 0..width / LANES {
            let mut rows = [simd.splat(0.0); LANES];
            for (row, key) in rows.iter_mut().zip(own) {
                if let Some(key) = key.get(vector) {
                    *row = simd.load(key);
                }
            }
            let columns = simd.transpose(&rows);
            for (sum, column) in columns.into_iter().enumerate() {
                simd.store(&mut to[sum * (width / LANES) + vector], column);
            }
        }
    }
    space
}

/// Whether there are loops for keys of this padded width: they are unrolled, or they would not pay.
pub(super) fn fits(width: usize) -> bool {
    matches!(width, 64 | 128 | 256)
}

/// Writes the scores of all places that some vector sees; those of places that are not live are arbitrary. Only for keys that [`fits`] takes.
#[inline(always)]
pub(super) fn fill<S: Simd>(
    simd: S,
    chunk: &Chunk<'_>,
    panel: &[f32],
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    match panel.len() / BLOCK {
        64 => fill_width::<S, 4>(simd, chunk, panel, soft_cap, lines),
        128 => fill_width::<S, 8>(simd, chunk, panel, soft_cap, lines),
        _ => fill_width::<S, 16>(simd, chunk, panel, soft_cap, lines),
    }
}

/// Keys of `N` vectors.
#[inline(always)]
fn fill_width<S: Simd, const N: usize>(
    simd: S,
    chunk: &Chunk<'_>,
    panel: &[f32],
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    let union = chunk.union();
    let keys: &[Keys<N>] = panel.as_chunks().0.as_chunks().0.as_chunks().0;
    let mut queries = [[[0.0; LANES]; N]; CHUNK];
    for (to, from) in queries.iter_mut().zip(chunk.queries) {
        to.copy_from_slice(from.as_chunks().0);
    }
    let mut group = union.start / LANES;
    while group < union.end.div_ceil(LANES) {
        // Past the end the last one is computed twice.
        let other = (group + 1).min(GROUPS - 1);
        let (Some(own), Some(beside)) = (keys.get(group), keys.get(other)) else { return };
        for (two, lines) in queries.as_chunks::<2>().0.iter().zip(lines.as_chunks_mut::<2>().0) {
            let scores = total(simd, two, [own, beside]);
            for (line, scores) in lines.iter_mut().zip(scores) {
                let line = line.as_chunks_mut::<LANES>().0;
                simd.store(&mut line[other], soften(simd, scores[1], soft_cap));
                simd.store(&mut line[group], soften(simd, scores[0], soft_cap));
            }
        }
        group += 2;
    }
}

/// Sixteen turned keys of `N` vectors: for each partial sum its elements.
type Keys<const N: usize> = [[[f32; LANES]; N]; LANES];
/// Two queries.
type Queries<const N: usize> = [[[f32; LANES]; N]; 2];
/// Scores of two queries with two times sixteen keys.
type Scores<S> = [[<S as Simd>::Lanes; 2]; 2];

/// The tree over all sixteen partial sums.
#[inline(always)]
fn total<S: Simd, const N: usize>(simd: S, queries: &Queries<N>, keys: [&Keys<N>; 2]) -> Scores<S> {
    let even = add(simd, four(simd, queries, keys, 0), four(simd, queries, keys, 2));
    let odd = add(simd, four(simd, queries, keys, 1), four(simd, queries, keys, 3));
    add(simd, even, odd)
}

/// Partial sums `i`, `i + 8`, `i + 4` and `i + 12`, in the order of the tree.
#[inline(always)]
fn four<S: Simd, const N: usize>(simd: S, queries: &Queries<N>, keys: [&Keys<N>; 2], i: usize) -> Scores<S> {
    let first = add(simd, chain(simd, queries, keys, i), chain(simd, queries, keys, i + 8));
    let second = add(simd, chain(simd, queries, keys, i + 4), chain(simd, queries, keys, i + 12));
    add(simd, first, second)
}

#[inline(always)]
fn add<S: Simd>(simd: S, a: Scores<S>, b: Scores<S>) -> Scores<S> {
    let mut sums = a;
    for q in 0..2 {
        for g in 0..2 {
            sums[q][g] = simd.add(a[q][g], b[q][g]);
        }
    }
    sums
}

/// Partial sum `l`: the fused chain over elements `l, l + 16, ..`.
#[inline(always)]
fn chain<S: Simd, const N: usize>(simd: S, queries: &Queries<N>, keys: [&Keys<N>; 2], l: usize) -> Scores<S> {
    let mut sums = [[simd.splat(0.0); 2]; 2];
    for vector in 0..N {
        for g in 0..2 {
            let key = simd.load(&keys[g][l][vector]);
            for q in 0..2 {
                sums[q][g] = simd.fma(simd.splat(queries[q][vector][l]), key, sums[q][g]);
            }
        }
    }
    sums
}
