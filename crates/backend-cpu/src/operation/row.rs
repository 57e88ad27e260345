//! Operations along one axis: the rows of the operand beside the rows of the contiguous result.

use crate::layout::{Layout, Walk};
use crate::number::Number;
use crate::pool::{Pool, Scratch};
use crate::value::Value;
use std::ops::Range;

/// All rows along an axis. The result has the operand's shape, but for the extent of that axis.
#[derive(Debug)]
pub(crate) struct Rows {
    walk: Walk<2>,
    /// Elements of the operand's rows.
    pub(crate) extent: usize,
    /// Steps along the axis, in the operand and in the result.
    pub(crate) steps: [usize; 2],
}

/// Where a row begins in the operand and in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Rows {
    /// The rows of `x` along `axis`, and those of a contiguous result whose shape is given.
    pub(crate) fn new(x: &Value, axis: usize, result: &[usize]) -> Self {
        if x.layout.is_contiguous() && axis + 1 == result.len() && x.layout.shape() == result {
            // The usual case costs no allocation.
            let extent = result[axis];
            let count = x.layout.elements() / extent.max(1);
            return Self { walk: Walk::line(count, [extent, extent]), extent, steps: [1, 1] };
        }
        let (rest, extent, step) = x.layout.without(axis);
        let (result, _, result_step) = Layout::contiguous(result, 0).without(axis);
        let walk = Walk::new(rest.shape(), [rest.strides(), result.strides()]);
        Self { walk, extent, steps: [step, result_step] }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.walk.runs() * self.walk.inner().count
    }

    /// Calls `work` for each row that has elements, on the pool if there is much to do: `cost` counts
    /// elements touched by a row.
    pub(crate) fn each(&self, pool: &Pool, cost: usize, work: impl Fn(Row, &mut Scratch) + Sync) {
        self.share(pool, cost, &work);
    }

    /// Compiled once for all kinds of work.
    fn share(&self, pool: &Pool, cost: usize, work: &(dyn Fn(Row, &mut Scratch) + Sync)) {
        const GRAIN: usize = 16 << 10;
        let count = if self.extent == 0 { 0 } else { self.count() };
        let parts = (count.saturating_mul(cost) / GRAIN).min(4 * pool.threads()).min(count).max(1);
        pool.run(parts, |part, scratch| {
            let rows = count * part / parts..count * (part + 1) / parts;
            self.visit(rows, &mut |row| work(row, scratch));
        });
    }

    fn visit(&self, rows: Range<usize>, work: &mut dyn FnMut(Row)) {
        if rows.is_empty() {
            return;
        }
        let count = self.walk.inner().count;
        let mut run = rows.start / count;
        self.walk.visit(run..rows.end.div_ceil(count), |[from, to], inner| {
            let first = rows.start.max(run * count) - run * count;
            let last = rows.end.min((run + 1) * count) - run * count;
            for i in first..last {
                work(Row { from: from + i * inner.strides[0], to: to + i * inner.strides[1] });
            }
            run += 1;
        });
    }
}

/// Widens a strided row into `to`.
pub(crate) fn widen<T: Number>(from: &[T], step: usize, to: &mut [f32]) {
    if step == 1 {
        let count = to.len();
        to.iter_mut().zip(&from[..count]).for_each(|(to, x)| *to = x.to_f32());
    } else {
        to.iter_mut().enumerate().for_each(|(i, to)| *to = from[i * step].to_f32());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::rc::Rc;
    use tandem_contracts::tensor::{DeviceId, Dtype};

    #[test]
    fn each_row_is_met_once_in_any_partition() {
        let buffer = Rc::new(Memory::default().take(4 * 120).unwrap());
        let layout = Layout::contiguous(vec![2, 3, 4, 5], 0).transpose(&[3, 0, 1, 2]);
        let x = Value { buffer, layout, dtype: Dtype::F32, device: DeviceId::unique() };
        let rows = Rows::new(&x, 2, &[5, 2, 1, 4]);
        assert_eq!((rows.count(), rows.extent, rows.steps), (40, 3, [20, 4]));
        let mut all = Vec::new();
        rows.visit(0..40, &mut |row| all.push(row));
        assert_eq!(all.iter().map(|row| row.to).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        assert_eq!(all[..5].iter().map(|row| row.from).collect::<Vec<_>>(), [0, 5, 10, 15, 60]);
        let mut parts = Vec::new();
        for start in (0..40).step_by(7) {
            rows.visit(start..40.min(start + 7), &mut |row| parts.push(row));
        }
        assert_eq!(parts, all);
    }
}
