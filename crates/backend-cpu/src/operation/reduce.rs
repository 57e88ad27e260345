//! Reductions and running sums along an axis.
//!
//! Elements are combined one after the other, in ascending order; 16-bit floats in f32. What is wide is the
//! number of results computed beside each other.

use super::arithmetic::Wrapping;
use super::row::Rows;
use crate::device::CpuDevice;
use crate::layout::Walk;
use crate::number::{Number, with_numeric};
use crate::pool::Disjoint;
use crate::value::{Draft, Value};
use half::{bf16, f16};
use tandem_contracts::tensor::{Reduce, Result, Tensor, shape};

/// Results computed beside each other.
const BESIDE: usize = 64;

/// An element with the numbers in which it is summed and compared.
trait Sum: Number {
    type Wide: Copy + PartialOrd + Send + Sync;
    const ZERO: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(x: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `x / count`, for floats.
    fn share(x: Self::Wide, count: usize) -> Self::Wide;
}

macro_rules! float_sums {
    ($($real:ident),*) => {$(
        impl Sum for $real {
            type Wide = f32;
            const ZERO: f32 = 0.0;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn narrow(x: f32) -> Self { Self::from_f32(x) }
            #[inline(always)]
            fn add(a: f32, b: f32) -> f32 { a + b }
            fn share(x: f32, count: usize) -> f32 { x / count as f32 }
        }
    )*};
}
float_sums!(f32, f16, bf16);

macro_rules! integer_sums {
    ($($integer:ident),*) => {$(
        impl Sum for $integer {
            type Wide = Self;
            const ZERO: Self = 0;
            #[inline(always)]
            fn widen(self) -> Self { self }
            #[inline(always)]
            fn narrow(x: Self) -> Self { x }
            #[inline(always)]
            fn add(a: Self, b: Self) -> Self { Wrapping::plus(a, b) }
            fn share(x: Self, _: usize) -> Self { x }
        }
    )*};
}
integer_sums!(i32, u32, i8, u8);

pub(crate) fn reduce(device: &CpuDevice, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
    let source = device.value("reduce", x)?;
    let shape = shape::reduce(op, x, axis)?;
    let mut draft = device.fresh("reduce", source.dtype, &shape)?;
    with_numeric!(source.dtype, T => match op {
        Reduce::Sum => fold::<T>(device, (source, axis), &mut draft, T::add, |sum, _| sum),
        Reduce::Mean => fold::<T>(device, (source, axis), &mut draft, T::add, T::share),
        Reduce::Minimum => fold::<T>(device, (source, axis), &mut draft, least, |x, _| x),
        Reduce::Maximum => fold::<T>(device, (source, axis), &mut draft, most, |x, _| x),
    });
    Ok(device.finish(draft))
}

/// The smaller one; NaN if either is.
#[inline(always)]
fn least<W: Copy + PartialOrd>(a: W, b: W) -> W {
    if a <= b || is_nan(a) { a } else { b }
}

/// The larger one; NaN if either is.
#[inline(always)]
fn most<W: Copy + PartialOrd>(a: W, b: W) -> W {
    if a >= b || is_nan(a) { a } else { b }
}

#[inline(always)]
fn is_nan<W: PartialOrd>(x: W) -> bool {
    x.partial_cmp(&x).is_none()
}

/// Reduces rows, [`BESIDE`] of them at a time: the first element, then `step` with each other, then `end`.
fn fold<T: Sum>(
    device: &CpuDevice,
    (source, axis): (&Value, usize),
    draft: &mut Draft,
    step: impl Fn(T::Wide, T::Wide) -> T::Wide + Sync,
    end: impl Fn(T::Wide, usize) -> T::Wide + Sync,
) {
    let (rest, extent, stride) = source.layout.without(axis);
    let walk = Walk::new(rest.shape(), [rest.strides()]);
    let count = walk.inner().count;
    let from = source.read::<T>();
    let to = Disjoint::new(draft.elements::<T>());
    device.spread(walk.runs(), count * extent, |runs| {
        // SAFETY: the parts' runs do not overlap, and each run has its own elements of the result.
        let mut to = unsafe { to.range(runs.start * count..runs.end * count) }.chunks_mut(count.max(1));
        walk.visit(runs, |[start], inner| {
            let to = to.next().unwrap_or_default();
            for (block, to) in to.chunks_mut(BESIDE).enumerate() {
                let start = start + block * BESIDE * inner.strides[0];
                beside(from, [start, inner.strides[0], stride], extent, to, (&step, &end));
            }
        });
    });
}

/// Reduces as many rows as `to` has elements. `places` are the first element, the step to the next row, and
/// the step along each.
#[inline(always)]
fn beside<T: Sum>(
    from: &[T],
    places: [usize; 3],
    extent: usize,
    to: &mut [T],
    (step, end): (impl Fn(T::Wide, T::Wide) -> T::Wide, impl Fn(T::Wide, usize) -> T::Wide),
) {
    let [start, next, along] = places;
    let mut wide = [T::ZERO; BESIDE];
    let wide = &mut wide[..to.len()];
    for k in 0..extent {
        let from = from.get(start + k * along..).unwrap_or_default();
        match (k, next) {
            (0, _) => wide.iter_mut().enumerate().for_each(|(i, wide)| *wide = from[i * next].widen()),
            (_, 1) => wide.iter_mut().zip(from).for_each(|(wide, x)| *wide = step(*wide, x.widen())),
            _ => {
                wide.iter_mut().enumerate().for_each(|(i, wide)| *wide = step(*wide, from[i * next].widen()))
            }
        }
    }
    to.iter_mut().zip(wide).for_each(|(to, wide)| *to = T::narrow(end(*wide, extent)));
}

pub(crate) fn cumsum(device: &CpuDevice, x: &Tensor, axis: usize) -> Result<Tensor> {
    let source = device.value("cumsum", x)?;
    shape::along("cumsum", x, axis, false)?;
    let rows = Rows::new(source, axis, x.shape());
    let mut draft = device.fresh("cumsum", source.dtype, x.shape())?;
    with_numeric!(source.dtype, T => running::<T>(device, source, &rows, &mut draft));
    Ok(device.finish(draft))
}

fn running<T: Sum>(device: &CpuDevice, source: &Value, rows: &Rows, draft: &mut Draft) {
    let from = source.read::<T>();
    let to = Disjoint::new(draft.elements::<T>());
    rows.each(&device.pool, rows.extent, |row, _| {
        let mut sum = T::ZERO;
        for k in 0..rows.extent {
            sum = T::add(sum, from[row.from + k * rows.steps[0]].widen());
            let place = row.to + k * rows.steps[1];
            // SAFETY: each element of the result belongs to one row.
            unsafe { to.range(place..place + 1)[0] = T::narrow(sum) };
        }
    });
}
