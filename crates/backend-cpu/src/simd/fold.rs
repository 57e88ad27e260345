//! Sums and maxima of rows of any length, in one order.
//!
//! ```text
//! lane[l] = f(x[l]) + f(x[l + 64]) + ..     l = 0..64, ascending
//! sum     = tree((v0 + v1) + (v2 + v3))     v_i = lanes 16 i .. 16 i + 16; the tree of the parent module
//! ```
//!
//! Elements beyond the last count as what leaves the sum alone. Four vectors run at once because one chain of
//! additions would wait for itself.

use super::{LANES, Simd};
use crate::number::Real;

/// A step that takes sixteen elements into a sum.
pub(crate) trait Fold {
    /// The sum with `x` in it. An element of 0 must leave it alone.
    fn step<S: Simd>(&self, simd: S, sum: S::Lanes, x: S::Lanes) -> S::Lanes;
}

/// `x`.
pub(crate) struct Plain;

impl Fold for Plain {
    #[inline(always)]
    fn step<S: Simd>(&self, simd: S, sum: S::Lanes, x: S::Lanes) -> S::Lanes {
        simd.add(sum, x)
    }
}

/// `x^2`, fused.
pub(crate) struct Squares;

impl Fold for Squares {
    #[inline(always)]
    fn step<S: Simd>(&self, simd: S, sum: S::Lanes, x: S::Lanes) -> S::Lanes {
        simd.fma(x, x, sum)
    }
}

/// Four vectors of partial sums.
pub(crate) struct Sums<S: Simd>([S::Lanes; 4]);

impl<S: Simd> Sums<S> {
    /// Nothing summed yet.
    #[inline(always)]
    pub(crate) fn new(simd: S) -> Self {
        Self([simd.splat(0.0); 4])
    }

    /// Takes in the vector that begins at element `16 * index`.
    #[inline(always)]
    pub(crate) fn take(&mut self, simd: S, index: usize, fold: &impl Fold, x: S::Lanes) {
        let sum = &mut self.0[index % 4];
        *sum = fold.step(simd, *sum, x);
    }

    /// The sum.
    #[inline(always)]
    pub(crate) fn total(self, simd: S) -> f32 {
        let [a, b, c, d] = self.0;
        simd.sum(simd.add(simd.add(a, b), simd.add(c, d)))
    }
}

/// The sum of a row.
#[inline(always)]
pub(crate) fn sum<S: Simd, T: Real>(simd: S, row: &[T], fold: &impl Fold) -> f32 {
    let mut sums = Sums::new(simd);
    let (wide, rest) = row.as_chunks::<{ 4 * LANES }>();
    for four in wide {
        let (vectors, _) = four.as_chunks::<LANES>();
        for (index, vector) in vectors.iter().enumerate() {
            sums.take(simd, index, fold, T::load(simd, vector));
        }
    }
    let (vectors, rest) = rest.as_chunks::<LANES>();
    for (index, vector) in vectors.iter().enumerate() {
        sums.take(simd, index, fold, T::load(simd, vector));
    }
    if !rest.is_empty() {
        sums.take(simd, vectors.len(), fold, T::load_part(simd, rest));
    }
    sums.total(simd)
}

/// The largest element of a row; `-inf` of an empty one. With a NaN among them, some element or NaN.
#[inline(always)]
pub(crate) fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let lowest = simd.splat(f32::NEG_INFINITY);
    let mut most = [lowest; 4];
    let (vectors, rest) = row.as_chunks::<LANES>();
    for (index, vector) in vectors.iter().enumerate() {
        most[index % 4] = simd.max(simd.load(vector), most[index % 4]);
    }
    most[0] = simd.max(simd.load_part(rest, f32::NEG_INFINITY), most[0]);
    simd.largest(simd.max(simd.max(most[0], most[1]), simd.max(most[2], most[3])))
}
