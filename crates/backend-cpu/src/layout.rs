//! Where the elements of a value lie in its buffer, and how several operands are walked together.
//!
//! Invariants: every index that a [`Layout`] forms lies inside the buffer for which it was made; strides of
//! axes of extent 1 mean nothing; an axis of stride 0 and a larger extent repeats its elements.

mod walk;

pub(crate) use walk::Walk;

use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// One number for each axis; those of four axes, which is what models have, need no memory of their own.
pub(crate) type Axes = SmallVec<[usize; 4]>;

/// Shape, strides and offset, all counted in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: Axes,
    strides: Axes,
    offset: usize,
    contiguous: bool,
}

impl Layout {
    /// Row-major from the buffer's element `offset` on.
    pub(crate) fn contiguous(shape: impl Into<Axes>, offset: usize) -> Self {
        let shape = shape.into();
        let strides = row_major(&shape);
        Self { shape, strides, offset, contiguous: true }
    }

    fn strided(shape: Axes, strides: Axes, offset: usize) -> Self {
        let contiguous = is_row_major(&shape, &strides);
        Self { shape, strides, offset, contiguous }
    }

    /// Extent of each axis.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Steps in the buffer along each axis.
    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The buffer's element at index 0 of every axis.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the elements follow each other in row-major order.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Whether no two indices share an element.
    pub(crate) fn is_injective(&self) -> bool {
        // Only broadcasting makes elements repeat, and it makes strides of 0; cuts and permutations keep the
        // rest.
        self.shape.iter().zip(&self.strides).all(|(&extent, &stride)| extent <= 1 || stride > 0)
    }

    /// The same elements in row-major order under another shape of as many, unless that needs a copy.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Self> {
        if self.contiguous {
            return Some(Self::contiguous(shape, self.offset));
        }
        let strides = restride(&self.shape, &self.strides, shape)?;
        Some(Self::strided(shape.into(), strides, self.offset))
    }

    /// Axis `i` of the result is axis `axes[i]`; `axes` is a permutation.
    pub(crate) fn transpose(&self, axes: &[usize]) -> Self {
        let pick = |of: &[usize]| -> Axes { axes.iter().map(|&axis| of[axis]).collect() };
        Self::strided(pick(&self.shape), pick(&self.strides), self.offset)
    }

    /// Repeats axes of extent 1 and adds leading ones, up to `shape`, to which it broadcasts.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Self {
        Self::strided(shape.into(), self.strides_for(shape), self.offset)
    }

    /// Strides of this layout broadcast to `shape`.
    pub(crate) fn strides_for(&self, shape: &[usize]) -> Axes {
        let added = shape.len() - self.shape.len();
        let own = self.shape.iter().zip(&self.strides).zip(&shape[added..]);
        let own = own.map(|((&extent, &stride), &wanted)| if extent == wanted { stride } else { 0 });
        std::iter::repeat_n(0, added).chain(own).collect()
    }

    /// Cuts a box out; the ranges lie inside.
    pub(crate) fn slice(&self, ranges: &[Range<usize>]) -> Self {
        let shape: Axes = ranges.iter().map(ExactSizeIterator::len).collect();
        let empty = shape.contains(&0);
        let starts = ranges.iter().zip(&self.strides).map(|(range, stride)| range.start * stride);
        // An empty box may begin at the end of an axis, outside the buffer.
        let offset = self.offset + if empty { 0 } else { starts.sum::<usize>() };
        Self::strided(shape, self.strides.clone(), offset)
    }

    /// The layout without one axis, at that axis's index 0, and the axis's extent and stride.
    pub(crate) fn without(&self, axis: usize) -> (Self, usize, usize) {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        let (extent, stride) = (shape.remove(axis), strides.remove(axis));
        (Self::strided(shape, strides, self.offset), extent, stride)
    }

    /// The offsets of all elements in row-major order.
    #[cfg(test)]
    fn offsets(&self) -> Vec<usize> {
        let mut offsets = Vec::new();
        let walk = Walk::new(&self.shape, [&self.strides]);
        walk.visit(0..walk.runs(), |[start], inner| {
            offsets.extend((0..inner.count).map(|i| self.offset + start + i * inner.strides[0]));
        });
        offsets
    }
}

/// Strides of a row-major layout.
fn row_major(shape: &[usize]) -> Axes {
    let mut strides: Axes = smallvec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut next = 1;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 && stride != next {
            return false;
        }
        next *= extent;
    }
    true
}

/// Strides for the same elements under another shape, if there are any: each run of axes that holds as many
/// elements on both sides must have one stride.
fn restride(old: &[usize], strides: &[usize], new: &[usize]) -> Option<Axes> {
    let axes: SmallVec<[(usize, usize); 4]> =
        old.iter().copied().zip(strides.iter().copied()).filter(|axis| axis.0 != 1).collect();
    let mut result: Axes = smallvec![0; new.len()];
    let (mut from, mut to) = (0, 0);
    while from < axes.len() && to < new.len() {
        let (mut from_end, mut to_end) = (from + 1, to + 1);
        let (mut from_count, mut to_count) = (axes[from].0, new[to]);
        while from_count != to_count {
            if to_count < from_count {
                to_count *= *new.get(to_end)?;
                to_end += 1;
            } else {
                from_count *= axes.get(from_end)?.0;
                from_end += 1;
            }
        }
        if axes[from..from_end].windows(2).any(|pair| pair[0].1 != pair[1].0 * pair[1].1) {
            return None;
        }
        let mut stride = axes[from_end - 1].1;
        for axis in (to..to_end).rev() {
            result[axis] = stride;
            stride *= new[axis];
        }
        (from, to) = (from_end, to_end);
    }
    // What is left on either side are axes of extent 1.
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn views_share_elements() {
        let base = Layout::contiguous(vec![2, 3, 4], 0);
        assert_eq!(base.strides(), [12, 4, 1]);
        let turned = base.transpose(&[1, 0, 2]);
        assert_eq!((turned.shape(), turned.is_contiguous()), (&[3, 2, 4][..], false));
        assert_eq!(turned.offsets()[..5], [0, 1, 2, 3, 12]);
        let cut = base.slice(&[1..2, 1..3, 0..4]);
        assert!(cut.is_contiguous());
        assert_eq!(cut.offsets(), (16..24).collect::<Vec<_>>());
        let wide = Layout::contiguous(vec![3, 1], 5).broadcast(&[2, 3, 2]);
        assert!(!wide.is_injective());
        assert_eq!(wide.offsets(), [5, 5, 6, 6, 7, 7, 5, 5, 6, 6, 7, 7]);
        assert_eq!(base.slice(&[2..2, 0..3, 0..4]).offsets(), [0; 0]);
    }

    #[test]
    fn a_reshape_that_needs_no_copy_makes_none() {
        // Heads cut out of a joined projection.
        let joined = Layout::contiguous(vec![5, 20], 0).slice(&[0..5, 4..12]);
        let heads = joined.reshape(&[5, 2, 4]).unwrap();
        assert_eq!((heads.strides(), heads.offset()), (&[20, 4, 1][..], 4));
        assert_eq!(heads.offsets(), joined.offsets());
        assert!(joined.reshape(&[40]).is_none());
        assert!(joined.transpose(&[1, 0]).reshape(&[40]).is_none());
        assert_eq!(joined.reshape(&[1, 5, 1, 8, 1]).unwrap().offsets(), joined.offsets());
        assert_eq!(Layout::contiguous(vec![], 3).reshape(&[1, 1]).unwrap().offsets(), [3]);
    }

    proptest! {
        #[test]
        fn reshapes_keep_the_order(
            shape in prop::collection::vec(1usize..4, 1..4),
            turn in any::<prop::sample::Index>(),
            cut in any::<bool>(),
            split in any::<prop::sample::Index>(),
        ) {
            let base = Layout::contiguous(shape.clone(), 0);
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            axes.rotate_left(turn.index(shape.len()));
            let mut layout = base.transpose(&axes);
            if cut {
                let ranges: Vec<_> = layout.shape().iter().map(|&extent| extent / 2..extent).collect();
                layout = layout.slice(&ranges);
            }
            let count = layout.elements();
            let divisors: Vec<usize> = (1..=count).filter(|d| count.is_multiple_of(*d)).collect();
            let first = divisors[split.index(divisors.len())];
            if let Some(reshaped) = layout.reshape(&[first, count / first]) {
                prop_assert_eq!(reshaped.offsets(), layout.offsets());
            } else {
                prop_assert!(!layout.is_contiguous());
            }
        }
    }
}
