//! Scores of a chunk's queries with a block's codes.

use super::super::score::soften;
use super::super::{CHUNK, Chunk, Lines};
use super::Integral;
use crate::operation::attention::plane::code::Meaning;
use crate::operation::attention::query::{Numbers, SPAN};
use crate::simd::{LANES, Simd};
use tandem_contracts::tensor::attention::BLOCK;

/// Vectors of places in a block.
const VECTORS: usize = BLOCK / LANES;

/// Writes the scores of all places between the first and the last that some vector sees; those of places that are not
/// live are arbitrary.
#[inline(always)]
pub(in super::super) fn fill<S: Simd>(
    simd: S,
    chunk: &Chunk<'_>,
    keys: &Integral<'_>,
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    let numbers = &chunk.numbers;
    match chunk.count {
        _ if !S::WIDE => {
            for (numbers, line) in numbers.iter().zip(lines).take(chunk.count) {
                score::<S, 1, 1>(simd, chunk, (keys, &[*numbers]), soft_cap, std::array::from_mut(line));
            }
        }
        1 => several::<S, 1, 4>(simd, chunk, (keys, numbers), soft_cap, lines),
        2 => several::<S, 2, 4>(simd, chunk, (keys, numbers), soft_cap, lines),
        3 => several::<S, 3, 2>(simd, chunk, (keys, numbers), soft_cap, lines),
        _ => several::<S, 4, 2>(simd, chunk, (keys, numbers), soft_cap, lines),
    }
}

/// The first `Q` of a chunk's vectors.
#[inline(always)]
fn several<S: Simd, const Q: usize, const T: usize>(
    simd: S,
    chunk: &Chunk<'_>,
    (keys, numbers): (&Integral<'_>, &[Numbers<'_>; CHUNK]),
    soft_cap: Option<f32>,
    lines: &mut Lines,
) {
    if let (Some(numbers), Some(lines)) = (numbers.first_chunk::<Q>(), lines.first_chunk_mut::<Q>()) {
        score::<S, Q, T>(simd, chunk, (keys, numbers), soft_cap, lines);
    }
}

/// `Q` queries with `T` vectors of places at a time.
#[inline(always)]
fn score<S: Simd, const Q: usize, const T: usize>(
    simd: S,
    chunk: &Chunk<'_>,
    (keys, numbers): (&Integral<'_>, &[Numbers<'_>; Q]),
    soft_cap: Option<f32>,
    lines: &mut [[f32; BLOCK]; Q],
) {
    let union = chunk.union();
    let (groups, spans) = (keys.factors.len() / (2 * BLOCK), keys.codes.group / SPAN);
    // The next block's places are asked for in as many parts as there are spans of vectors.
    let part = BLOCK / (VECTORS * groups * spans).max(1);
    let words: &[[[_; VECTORS]; SPAN / 4]] = keys.words.as_chunks().0.as_chunks().0;
    for first in (union.start / LANES / T * T..union.end.div_ceil(LANES)).step_by(T) {
        let mut sums = [[simd.splat(0.0); T]; Q];
        for group in 0..groups {
            let mut dots = [[simd.no_dots(); T]; Q];
            for span in group * spans..(group + 1) * spans {
                let words = &words[span];
                let place = (span * VECTORS + first) * part;
                keys.ask(simd, place..place + T * part, chunk.first == 0);
                #[allow(
                    clippy::needless_range_loop,
                    reason = "iterators are not sure to stay within the kernel's instructions"
                )]
                for i in 0..SPAN / 4 {
                    for q in 0..Q {
                        let [high, low] = numbers[q].quad(span, i);
                        let by = [simd.repeat(high), simd.repeat(low)];
                        for t in 0..T {
                            dots[q][t] = simd.dot(dots[q][t], simd.words(&words[i][first + t]), by);
                        }
                    }
                }
            }
            let [a, b] = keys.factors(group);
            for q in 0..Q {
                let sum = numbers[q].sum(group * spans..(group + 1) * spans);
                let less = simd.repeat((keys.codes.offset * sum as i32) as u32);
                let sum = simd.splat(sum);
                for t in 0..T {
                    let dot = simd.total(dots[q][t], less);
                    let (a, b) = (simd.load(&a[first + t]), simd.load(&b[first + t]));
                    sums[q][t] = match keys.codes.meaning {
                        Meaning::Shifted => simd.fma(simd.fma(b, sum, dot), a, sums[q][t]),
                        _ => simd.fma(b, sum, simd.fma(dot, a, sums[q][t])),
                    };
                }
            }
        }
        for q in 0..Q {
            let step = simd.splat(numbers[q].step());
            let line = lines[q].as_chunks_mut::<LANES>().0;
            for t in 0..T {
                simd.store(&mut line[first + t], soften(simd, simd.mul(sums[q][t], step), soft_cap));
            }
        }
    }
}
