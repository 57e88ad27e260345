//! Weighted sums of a block's codes.

use super::super::{CHUNK, Chunk, Lines};
use super::Integral;
use crate::operation::attention::query::{STEP, range, whole};
use crate::simd::fold::{Plain, Sums};
use crate::simd::{Digits, LANES, LINE, Simd};
use tandem_contracts::tensor::attention::BLOCK;

/// Writes each vector's `o_b` to `mixed`, `[CHUNK, padded width]`.
#[inline(always)]
pub(in super::super) fn fill<S: Simd>(
    simd: S,
    chunk: &Chunk<'_>,
    values: &Integral<'_>,
    weights: &Lines,
    mixed: &mut [f32],
) {
    let width = mixed.len() / CHUNK;
    for column in (0..values.columns).step_by(LINE) {
        let mut first = 0;
        while first < chunk.count {
            let to = (&mut mixed[first * width..], width);
            let asks = chunk.first + first == 0 && column == 0;
            first += match (chunk.count - first, values.codes.group < LINE) {
                (1, false) => mix::<S, 1, 1>(simd, (values, column, asks), &weights[first..], to),
                (1, true) => mix::<S, 1, 2>(simd, (values, column, asks), &weights[first..], to),
                (3, false) if S::WIDE => mix::<S, 3, 1>(simd, (values, column, asks), &weights[first..], to),
                (3, true) if S::WIDE => mix::<S, 3, 2>(simd, (values, column, asks), &weights[first..], to),
                (_, false) if S::WIDE => mix::<S, 2, 1>(simd, (values, column, asks), &weights[first..], to),
                (_, true) if S::WIDE => mix::<S, 2, 2>(simd, (values, column, asks), &weights[first..], to),
                (_, false) => mix::<S, 1, 1>(simd, (values, column, asks), &weights[first..], to),
                (_, true) => mix::<S, 1, 2>(simd, (values, column, asks), &weights[first..], to),
            };
        }
    }
}

/// `Q` vectors at 64 columns, which are of `G` groups; the next block is asked for meanwhile. Gives `Q`.
#[inline(always)]
fn mix<S: Simd, const Q: usize, const G: usize>(
    simd: S,
    (values, column, asks): (&Integral<'_>, usize, bool),
    lines: &[[f32; BLOCK]],
    (to, width): (&mut [f32], usize),
) -> usize {
    let group = column / values.codes.group;
    let groups = values.factors.len() / (2 * BLOCK);
    let mut weights = [[Weights::NONE; G]; Q];
    for (weights, line) in weights.iter_mut().zip(lines) {
        for (g, weights) in weights.iter_mut().enumerate() {
            *weights = Weights::new(simd, line, values, (group + g).min(groups - 1));
        }
    }
    let mut dots = [[simd.no_dots(); 4]; Q];
    let words: &[[_; 4]] = values.words.as_chunks().0;
    let lines = values.columns / LINE;
    for four in 0..BLOCK / 4 {
        let words = &words[four * lines + column / LINE];
        values.ask(simd, 4 * four..4 * four + 4, asks);
        for q in 0..Q {
            let mut by = [simd.repeat(0); 2];
            #[allow(
                clippy::needless_range_loop,
                reason = "iterators are not sure to stay within the kernel's instructions"
            )]
            for digit in 0..2 {
                by[digit] = simd.repeat(weights[q][0].digits[digit][four]);
                if G > 1 {
                    by[digit] = simd.int_halves(by[digit], simd.repeat(weights[q][1].digits[digit][four]));
                }
            }
            for j in 0..4 {
                dots[q][j] = simd.dot(dots[q][j], simd.words(&words[j]), by);
            }
        }
    }
    for q in 0..Q {
        let [first, last] = [&weights[q][0], &weights[q][G - 1]];
        let less = simd.int_halves(simd.repeat(first.less as u32), simd.repeat(last.less as u32));
        let unit = simd.halves(simd.splat(first.unit), simd.splat(last.unit));
        let bias = simd.halves(simd.splat(first.bias), simd.splat(last.bias));
        let mut sums = [bias; 4];
        for j in 0..4 {
            sums[j] = simd.fma(simd.total(dots[q][j], less), unit, bias);
        }
        let to = to[q * width + column..(q + 1) * width].as_chunks_mut().0;
        for (to, sum) in to.iter_mut().zip(simd.unweave(sums)) {
            simd.store(to, sum);
        }
    }
    Q
}

/// A vector's weights with the factors of one group in them, as integers.
#[derive(Clone, Copy)]
struct Weights {
    digits: Digits,
    /// What a product counts.
    unit: f32,
    /// The sum of the weighted biases.
    bias: f32,
    /// What the codes' offset adds to each sum.
    less: i32,
}

impl Weights {
    const NONE: Self = Self { digits: [[0; LANES]; 2], unit: 0.0, bias: 0.0, less: 0 };

    #[inline(always)]
    fn new<S: Simd>(simd: S, line: &[f32; BLOCK], values: &Integral<'_>, group: usize) -> Self {
        let [a, b] = values.factors(group);
        let zero = simd.splat(0.0);
        let (mut weights, mut most) = ([zero; 4], zero);
        let mut biases = Sums::new(simd);
        for (t, share) in line.as_chunks::<LANES>().0.iter().enumerate() {
            let share = simd.load(share);
            // What has no weight adds nothing, whatever its factors are.
            let some = simd.less(zero, share);
            let weight = simd.select(some, simd.mul(share, simd.load(&a[t])), zero);
            let bias = simd.select(some, simd.mul(share, simd.load(&b[t])), zero);
            weights[t] = weight;
            most = simd.max(simd.abs(weight), most);
            // Makes NaN of factors that are none or infinite.
            biases.take(simd, t, &Plain, simd.fma(weight, zero, bias));
        }
        let (most, scale) = range(simd, simd.largest(most));
        let mut numbers = [zero; 4];
        for t in 0..4 {
            numbers[t] = whole(simd, weights[t], scale);
        }
        let mut less = 0;
        if values.codes.offset != 0 {
            let sum = simd.add(simd.add(numbers[0], numbers[1]), simd.add(numbers[2], numbers[3]));
            less = values.codes.offset * simd.sum(sum) as i32;
        }
        let unit = most * STEP * values.codes.unit;
        Self { digits: simd.digits(&numbers), unit, bias: biases.total(simd), less }
    }
}
