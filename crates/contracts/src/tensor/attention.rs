//! Attention over row spans.
//!
//! A packed call carries queries of many rows. Each [`RowSpan`] says which queries are its own, where they stand in
//! their row, and where that row's keys and values lie: as [`Run`]s of consecutive positions in a [`Plane`]. Padding,
//! rings, kept prefixes, paged blocks and rows that own their planes are all lists of runs, so no mask is built.
//!
//! On an invariant device the keys of a query are summed in ascending position, in blocks cut at absolute multiples
//! of [`BLOCK`] from the row's first token: neither storage, ring index, padding, chunk nor threads change the bits.
//!
//! # Codes in `fast`
//!
//! In [`Precision::Exact`] codes are read as f32, as [`Plane`] says. In [`Precision::Fast`] a device may multiply codes
//! as the integers that they are, in the one arithmetic below, and otherwise takes them as in `Exact`. Floats are
//! never rounded either way.
//!
//! `whole(x, largest)` is `x * (16256 / largest)` to the nearest integer, halves to even, within 16256 either way; it
//! counts in steps of `largest * (1 / 16256)`. A largest magnitude below `2^-100` is taken as 0, and all numbers with
//! it. All is f32 but for products and sums of integers, which are exact and made f32 once.
//!
//! ```text
//! n      = whole(scaled query, its largest magnitude)
//! score  = step * chain over groups g in ascending order, from 0:
//!          affine:    s = fma(bias_g, sum n, fma(sum n code, scale_g, s))
//!          TurboQuant s = fma(fma(zero_g, sum n, sum n code), scale_g, s)
//! weight = exp(score - largest score of the block)
//! n      = whole(weight * scale_g, their largest magnitude in the block)     for each group of values by itself
//! mixed  = fma(sum n code, step, sum of weight * bias_g)
//! ```
//!
//! The codes of TurboQuant's values stand for `level / unit` to the nearest integer, where `unit` is the 127th part of
//! the largest level, and the step of their mix is `step * unit`; there are no biases. Books of more than 16 levels are
//! read as f32, because bytes would blur them. A weight of 0 adds nothing whatever its factors are; another's factors
//! that are infinite or NaN make NaN.
//!
//! 16256 is 127 times 128: two digits of a byte. An element is off by at most half a step, 1/32512 of the largest, less
//! than bf16 rounds by; weights too, which is why the quality of 8-bit keys and values is that of their codes.

use super::{Precision, Quantized, Tensor, TurboKeys, TurboValues, turbo};
use std::ops::Range;

/// Positions in one block of the one-pass softmax.
pub const BLOCK: usize = 64;

/// How keys or values are stored, `[rows, heads, columns, width]`; a row of the plane may be shared or owned.
#[derive(Clone, Copy, Debug)]
pub enum Plane<'a> {
    /// Floats.
    Plain(&'a Tensor),
    /// Affine codes along the width, each read as f32: `fma(scale, code, bias)`.
    Affine(&'a Quantized),
    /// TurboQuant's keys, each read as f32: `(code + zero) * scale`.
    TurboKeys(&'a TurboKeys),
    /// TurboQuant's values, mixed in their rotated domain, `levels[code] * scale`, and turned back once for each query.
    TurboValues(&'a TurboValues),
}

impl Plane<'_> {
    /// `[rows, heads, columns, width]`, codes counted as elements.
    pub fn shape(&self) -> Vec<usize> {
        let (factors, group) = match self {
            Self::Plain(plane) => (*plane, 1),
            Self::Affine(plane) => (&plane.scales, usize::from(plane.format.group)),
            Self::TurboKeys(plane) => (&plane.scales, turbo::GROUP),
            Self::TurboValues(plane) => (&plane.scales, turbo::GROUP),
        };
        let mut shape = factors.shape().to_vec();
        if let Some(width) = shape.last_mut() {
            *width *= group;
        }
        shape
    }
}

/// Consecutive positions in consecutive columns of one row of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Row of the plane.
    pub row: usize,
    /// Column of the first position.
    pub column: usize,
    /// Positions, counted from the row's first token.
    pub positions: Range<usize>,
}

/// One row's part of a packed attention call.
#[derive(Clone, Debug)]
pub struct RowSpan<'a> {
    /// The row's queries among the packed ones. Spans are in order and do not overlap.
    pub queries: Range<usize>,
    /// Position of the first of them.
    pub position: usize,
    /// Keys.
    pub keys: Plane<'a>,
    /// Values; the width may differ from that of the keys.
    pub values: Plane<'a>,
    /// Live positions, ascending, without overlap. The queries' own positions are among them.
    pub runs: &'a [Run],
}

/// What a query may see, and how scores are made.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// Multiplies the dot products.
    pub scale: f32,
    /// Keys after the query's own position are hidden.
    pub causal: bool,
    /// A query sees this many positions, its own included.
    pub window: Option<usize>,
    /// So many of the window are not the last positions but the row's first ones, which stay visible for ever. Less than
    /// the window, and 0 where there is none.
    pub keep: usize,
    /// `f32 [heads]`: one more score for each head, which takes part in the softmax and adds no value.
    pub sinks: Option<&'a Tensor>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// How codes are met. A device without arithmetic of its own for codes in [`Precision::Fast`] takes both the same.
    pub precision: Precision,
}

impl Attend<'_> {
    /// Causal attention over everything before.
    pub const fn causal(scale: f32) -> Self {
        Self {
            scale,
            causal: true,
            window: None,
            keep: 0,
            sinks: None,
            soft_cap: None,
            precision: Precision::Exact,
        }
    }

    /// From the first to the last position that a query at `position` may see, of a row whose last live one is before
    /// `end`. Those of its [`Attend::gap`] are hidden.
    pub fn visible(&self, position: usize, end: usize) -> Range<usize> {
        let last = if self.causal { end.min(position + 1) } else { end };
        let first = if self.keep == 0 { self.first(position) } else { 0 };
        first.min(last)..last
    }

    /// Positions between the row's first ones, which stay visible, and the last ones.
    pub fn gap(&self, position: usize) -> Range<usize> {
        let first = self.first(position);
        if self.keep == 0 || first <= self.keep { 0..0 } else { self.keep..first }
    }

    /// Whether a query at `position` sees the key at another, of a row whose last live one is before `end`.
    pub fn sees(&self, position: usize, end: usize, key: usize) -> bool {
        self.visible(position, end).contains(&key) && !self.gap(position).contains(&key)
    }

    /// The first of the last positions of a window.
    fn first(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window - self.keep.min(window)))
    }
}

/// New tokens of one row, to be written into one row of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvWrite {
    /// The row's tokens among the packed ones.
    pub tokens: Range<usize>,
    /// Row of the plane.
    pub row: usize,
    /// Column of the first token; the rest follow it.
    pub column: usize,
}

/// One plane of those that are appended to together.
#[derive(Debug)]
pub struct KvAppend<'a> {
    /// The plane, and after the append the handle of what it became.
    pub plane: &'a mut Tensor,
    /// Packed tokens `[tokens, heads, width]`.
    pub tokens: &'a Tensor,
    /// Where they go.
    pub writes: &'a [KvWrite],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_the_query_itself() {
        let mut how = Attend::causal(1.0);
        assert_eq!(how.visible(5, 6), 0..6);
        how.window = Some(3);
        assert_eq!(how.visible(5, 6), 3..6);
        assert_eq!(how.visible(1, 6), 0..2);
        how.causal = false;
        assert_eq!(how.visible(1, 6), 0..6);
    }

    #[test]
    fn the_first_positions_may_stay() {
        let how = Attend { window: Some(5), keep: 2, ..Attend::causal(1.0) };
        let seen =
            |position| (0..20).filter(|&key| how.sees(position, position + 1, key)).collect::<Vec<_>>();
        assert_eq!(seen(1), [0, 1]);
        assert_eq!(seen(4), [0, 1, 2, 3, 4]);
        // Two first ones and three last ones.
        assert_eq!(seen(5), [0, 1, 3, 4, 5]);
        assert_eq!(seen(11), [0, 1, 9, 10, 11]);
        assert_eq!((how.visible(11, 12), how.gap(11), how.gap(4)), (0..12, 2..9, 0..0));
    }
}
