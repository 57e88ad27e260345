//! Orders along an axis: the largest element, sorted and partly sorted indices. NaN counts as larger than
//! all.

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
    let mut draft = device.fresh("argmax", Dtype::I32, &shape)?;
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
    device.own("argsort", &[x])?;
    shape::along("argsort", x, axis, false)?;
    permute(device, "argsort", (x, axis), <[Ranked]>::sort_unstable)
}

pub(crate) fn argpartition(device: &CpuDevice, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
    device.own("argpartition", &[x])?;
    shape::argpartition(x, kth, axis)?;
    permute(device, "argpartition", (x, axis), |ranked| {
        ranked.select_nth_unstable(kth);
    })
}

/// An element's rank in the upper half, its index in the lower: equal elements keep their order.
type Ranked = u64;

/// A number that orders as the element does: NaN above all, and both zeros alike.
fn rank<T: Number>(x: T) -> u32 {
    const SIGN: u32 = 1 << 31;
    if !T::DTYPE.is_float() {
        let lowest = if T::DTYPE == Dtype::U32 { 0 } else { i64::from(i32::MIN) };
        return (x.to_i64() - lowest) as u32;
    }
    let x = x.to_f32();
    // Adding 0 makes the negative zero positive.
    let bits = (x + 0.0).to_bits();
    match bits & SIGN {
        _ if x.is_nan() => u32::MAX,
        0 => bits | SIGN,
        _ => !bits,
    }
}

/// Rearranges the indices of each row.
fn permute(
    device: &CpuDevice,
    operation: &'static str,
    (x, axis): (&Tensor, usize),
    arrange: impl Fn(&mut [Ranked]) + Sync,
) -> Result<Tensor> {
    let source = device.value(operation, x)?;
    let rows = Rows::new(source, axis, x.shape());
    let mut draft = device.fresh(operation, Dtype::I32, x.shape())?;
    let to = Disjoint::new(draft.elements::<i32>());
    with_numeric!(source.dtype, T => {
        let from = source.read::<T>();
        rows.each(&device.pool, 16 * rows.extent, |row, scratch| {
            let ranked = scratch.lend::<Ranked>(rows.extent);
            for (i, ranked) in ranked.iter_mut().enumerate() {
                let rank = rank(from[row.from + i * rows.steps[0]]);
                *ranked = Ranked::from(rank) << 32 | i as Ranked;
            }
            arrange(ranked);
            for (k, ranked) in ranked.iter().enumerate() {
                let place = row.to + k * rows.steps[1];
                // SAFETY: each element of the result belongs to one row.
                unsafe { to.range(place..place + 1)[0] = *ranked as i32 };
            }
        });
    });
    Ok(device.finish(draft))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn ranks_order_as_elements() {
        let floats = [f32::NEG_INFINITY, -2.5, -1.0e-40, 0.0, 1.0e-40, 3.0, f32::INFINITY, f32::NAN];
        assert!(floats.map(rank::<f32>).is_sorted_by(|a, b| a < b));
        assert_eq!(rank(-0.0f32), rank(0.0f32));
        assert_eq!(rank(-f32::NAN), rank(f32::NAN));
        assert!(
            [f16::NEG_INFINITY, f16::from_f32(-3.0), f16::ZERO].map(rank::<f16>).is_sorted_by(|a, b| a < b)
        );
        assert!([i32::MIN, -1, 0, i32::MAX].map(rank::<i32>).is_sorted_by(|a, b| a < b));
        assert!([0, 1 << 31, u32::MAX].map(rank::<u32>).is_sorted_by(|a, b| a < b));
        assert!([-128i8, 0, 127].map(rank::<i8>).is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_first_of_the_largest_is_found_in_any_block() {
        let mut xs: Vec<f32> = (0..1000).map(|i| (i * 37 % 1000) as f32).collect();
        xs[990] = 2000.0;
        xs[700] = 2000.0;
        assert_eq!(largest(&xs, 1, 1000), 700);
        // Every third: 2000 stands at index 330.
        assert_eq!(largest(&xs, 3, 333), 330);
        xs[256] = f32::NAN;
        xs[999] = f32::NAN;
        assert_eq!(largest(&xs, 1, 1000), 256);
    }
}
