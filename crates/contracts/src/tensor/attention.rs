//! Attention over row spans.
//!
//! A packed call carries queries of many rows. Each [`RowSpan`] says which queries are its own, where they stand in
//! their row, and where that row's keys and values lie: as [`Run`]s of consecutive positions in a [`Plane`]. Padding,
//! rings, kept prefixes, paged blocks and rows that own their planes are all lists of runs, so no mask is built.
//!
//! On an invariant device the keys of a query are summed in ascending position, in blocks cut at absolute multiples
//! of [`BLOCK`] from the row's first token: neither storage, ring index, padding, chunk nor threads change the bits.

use super::{Quantized, Tensor};
use std::ops::Range;

/// Positions in one block of the one-pass softmax.
pub const BLOCK: usize = 64;

/// How keys or values are stored, `[rows, heads, columns, width]`; a row of the plane may be shared or owned.
#[derive(Clone, Copy, Debug)]
pub enum Plane<'a> {
    /// Floats.
    Plain(&'a Tensor),
    /// Affine codes along the width.
    Affine(&'a Quantized),
}

impl Plane<'_> {
    /// `[rows, heads, columns, width]`, codes counted as elements.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Plain(plane) => plane.shape().to_vec(),
            Self::Affine(plane) => {
                let mut shape = plane.scales.shape().to_vec();
                if let Some(width) = shape.last_mut() {
                    *width *= plane.format.group as usize;
                }
                shape
            }
        }
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
    /// `f32 [heads]`: one more score for each head, which takes part in the softmax and adds no value.
    pub sinks: Option<&'a Tensor>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

impl Attend<'_> {
    /// Causal attention over everything before.
    pub const fn causal(scale: f32) -> Self {
        Self { scale, causal: true, window: None, sinks: None, soft_cap: None }
    }

    /// Positions that a query at `position` may see, of a row whose last live one is before `end`.
    pub fn visible(&self, position: usize, end: usize) -> Range<usize> {
        let last = if self.causal { end.min(position + 1) } else { end };
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        first.min(last)..last
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
}
