//! Loops over operands of one shape.
//!
//! Axes that every operand crosses evenly are merged, and the last one is left to the caller, so that the
//! common cases (everything contiguous, one operand repeated) are one long inner loop.

use std::ops::Range;

/// The inner loop, the same for every run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner<const N: usize> {
    /// Elements of the run.
    pub(crate) count: usize,
    /// Steps of each operand.
    pub(crate) strides: [usize; N],
}

/// The loops over `N` operands of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Walk<const N: usize> {
    /// Outer axes, outermost first: extent and strides.
    outer: Vec<(usize, [usize; N])>,
    inner: Inner<N>,
    runs: usize,
}

impl<const N: usize> Walk<N> {
    /// The loops for operands whose strides are already broadcast to `shape`.
    pub(crate) fn new(shape: &[usize], strides: [&[usize]; N]) -> Self {
        let mut outer: Vec<(usize, [usize; N])> = Vec::new();
        let mut inner: Option<(usize, [usize; N])> = None;
        let mut empty = false;
        for axis in (0..shape.len()).rev().filter(|&axis| shape[axis] != 1) {
            let (extent, steps) = (shape[axis], strides.map(|strides| strides[axis]));
            empty |= extent == 0;
            let last = outer.last_mut().or(inner.as_mut());
            match last {
                None => inner = Some((extent, steps)),
                // One axis with the one inside it: a step of this one is a whole turn of that one.
                Some((count, inside)) if (0..N).all(|i| steps[i] == inside[i] * *count) => *count *= extent,
                Some(_) => outer.push((extent, steps)),
            }
        }
        outer.reverse();
        let (count, strides) = inner.unwrap_or((1, [0; N]));
        let runs = if empty { 0 } else { outer.iter().map(|axis| axis.0).product() };
        Self { outer, inner: Inner { count, strides }, runs }
    }

    /// One inner loop.
    pub(crate) fn line(count: usize, strides: [usize; N]) -> Self {
        Self { outer: Vec::new(), inner: Inner { count, strides }, runs: 1 }
    }

    /// Times that the inner loop runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    /// The inner loop.
    pub(crate) fn inner(&self) -> Inner<N> {
        self.inner
    }

    /// Calls `run` with each operand's first element, for some of the runs, in row-major order.
    pub(crate) fn visit(&self, runs: Range<usize>, mut run: impl FnMut([usize; N], Inner<N>)) {
        self.step(runs, &mut run);
    }

    /// Compiled once for all kinds of runs.
    fn step(&self, runs: Range<usize>, run: &mut dyn FnMut([usize; N], Inner<N>)) {
        if runs.is_empty() {
            return;
        }
        let mut index = vec![0; self.outer.len()];
        let mut offsets = [0; N];
        let mut rest = runs.start;
        for (axis, (extent, strides)) in self.outer.iter().enumerate().rev() {
            index[axis] = rest % extent;
            rest /= extent;
            (0..N).for_each(|i| offsets[i] += index[axis] * strides[i]);
        }
        for _ in runs {
            run(offsets, self.inner);
            for (axis, (extent, strides)) in self.outer.iter().enumerate().rev() {
                index[axis] += 1;
                if index[axis] < *extent {
                    (0..N).for_each(|i| offsets[i] += strides[i]);
                    break;
                }
                index[axis] = 0;
                (0..N).for_each(|i| offsets[i] -= (extent - 1) * strides[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_axes_are_one_loop() {
        let walk = Walk::new(&[2, 3, 4], [&[12, 4, 1], &[0, 0, 0]]);
        assert_eq!((walk.runs(), walk.inner().count, walk.inner().strides), (1, 24, [1, 0]));
        let walk = Walk::new(&[2, 3, 4], [&[12, 4, 1], &[0, 0, 1]]);
        assert_eq!((walk.runs(), walk.inner().count), (6, 4));
        let walk = Walk::new(&[2, 0], [&[1, 1]]);
        assert_eq!(walk.runs(), 0);
        let walk = Walk::new(&[], [&[]]);
        assert_eq!((walk.runs(), walk.inner().count), (1, 1));
    }

    #[test]
    fn any_part_of_the_runs_can_be_visited() {
        let walk = Walk::new(&[2, 3, 2, 5], [&[1, 2, 6, 12]]);
        let mut all = Vec::new();
        walk.visit(0..walk.runs(), |[offset], _| all.push(offset));
        for start in 0..=all.len() {
            let mut rest = Vec::new();
            walk.visit(start..walk.runs(), |[offset], _| rest.push(offset));
            assert_eq!(rest, all[start..]);
        }
        let mut expected = Vec::new();
        for (i, j, k) in (0..2).flat_map(|i| (0..3).flat_map(move |j| (0..2).map(move |k| (i, j, k)))) {
            expected.push(i + 2 * j + 6 * k);
        }
        assert_eq!(all, expected);
    }
}
