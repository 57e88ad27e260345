//! Orders along an axis: the largest element, sorted and partly sorted indices. NaN counts as larger than all.

use super::row::Rows;
use crate::device::CpuDevice;
use crate::number::{Number, with_numeric};
use crate::pool::Disjoint;
use std::cmp::Ordering;
use tandem_contracts::tensor::{Dtype, Result, Tensor, shape};

pub(crate) fn argmax(device: &CpuDevice, x: &Tensor, axis: usize) -> Result<Tensor> {
    let source = device.value("argmax", x)?;
    let shape = shape::argmax(x, axis)?;
    let rows = Rows::new(source, axis, &shape);
    let mut draft = device.fresh("argmax", Dtype::I32, shape)?;
    let to = Disjoint::new(draft.elements::<i32>());
    with_numeric!(source.dtype, T => {
        let from = source.read::<T>();
        rows.each(&device.pool, rows.extent, |row, _| {
            // SAFETY: each row has one element of the result.
            let to = unsafe { to.range(row.to..row.to + 1) };
            to[0] = largest(&from[row.from..], rows.steps[0], rows.extent) as i32;
        });
    });
    Ok(device.finish(draft))
}

/// Elements that are looked at together before the place of the largest is sought.
const BLOCK: usize = 256;

/// Index of the first of the largest elements.
fn largest<T: Number>(xs: &[T], step: usize, count: usize) -> usize {
    let mut best = 0;
    let mut first = 0;
    while first < count {
        let end = count.min(first + BLOCK);
        let better = |a: T, b: T| order(a, b) == Ordering::Greater;
        // A block without a better element, the common case, costs one comparison for each and no branch.
        let limit = xs[best * step];
        let worse = step == 1 && xs[first..end].iter().fold(true, |all, &x| all & (x <= limit));
        if !worse {
            for i in first..end {
                if better(xs[i * step], xs[best * step]) {
                    best = i;
                }
            }
        }
        first = end;
    }
    best
}

/// Ascending, NaN last.
fn order<T: PartialOrd>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let nan = |x: &T| x.partial_cmp(x).is_none();
        nan(&a).cmp(&nan(&b))
    })
}

pub(crate) fn argsort(device: &CpuDevice, x: &Tensor, axis: usize) -> Result<Tensor> {
    shape::along("argsort", x, axis, false)?;
    permute(device, "argsort", (x, axis), |indices, order| indices.sort_unstable_by(order))
}

pub(crate) fn argpartition(device: &CpuDevice, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
    device.own("argpartition", &[x])?;
    shape::argpartition(x, kth, axis)?;
    permute(device, "argpartition", (x, axis), |indices, order| {
        indices.select_nth_unstable_by(kth, order);
    })
}

/// Rearranges the indices of each row with an order that is total: of elements, then of indices.
fn permute(
    device: &CpuDevice,
    operation: &'static str,
    (x, axis): (&Tensor, usize),
    arrange: impl Fn(&mut [i32], &mut dyn FnMut(&i32, &i32) -> Ordering) + Sync,
) -> Result<Tensor> {
    let source = device.value(operation, x)?;
    let rows = Rows::new(source, axis, x.shape());
    let mut draft = device.fresh(operation, Dtype::I32, x.shape().to_vec())?;
    let to = Disjoint::new(draft.elements::<i32>());
    with_numeric!(source.dtype, T => {
        let from = source.read::<T>();
        rows.each(&device.pool, 16 * rows.extent, |row, scratch| {
            let indices = scratch.lend::<i32>(rows.extent);
            indices.iter_mut().zip(0..).for_each(|(index, i)| *index = i);
            let at = |index: i32| from[row.from + index as usize * rows.steps[0]];
            arrange(indices, &mut |&i, &j| order(at(i), at(j)).then(i.cmp(&j)));
            for (k, index) in indices.iter().enumerate() {
                let place = row.to + k * rows.steps[1];
                // SAFETY: each element of the result belongs to one row.
                unsafe { to.range(place..place + 1)[0] = *index };
            }
        });
    });
    Ok(device.finish(draft))
}
