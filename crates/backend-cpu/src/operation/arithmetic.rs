//! Elementwise operations of two operands that give the dtype of their operands.

use crate::device::CpuDevice;
use crate::layout::Walk;
use crate::memory::Element;
use crate::number::{Number, Real, Truth, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use tandem_contracts::tensor::{Binary, Dtype, Result, Tensor, shape};

pub(crate) fn binary(device: &CpuDevice, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
    device.own("binary", &[&a, b])?;
    let (shape, dtype) = shape::binary(op, &a, b)?;
    shape::elements("binary", &shape)?;
    let other = device.value("binary", b)?;
    if matches!(op, Binary::Equal | Binary::Less | Binary::LessEqual) {
        return super::compare::binary(device, op, (device.value("binary", &a)?, other), shape);
    }
    let mut draft = if a.shape() == shape {
        device.take_contiguous("binary", a)?
    } else {
        let a = device.value("binary", &a)?;
        device.copy("binary", &Value { layout: a.layout.broadcast(&shape), ..a.clone() })?
    };
    match dtype {
        Dtype::I32 => integers::<i32>(device, op, &mut draft, other),
        Dtype::U32 => integers::<u32>(device, op, &mut draft, other),
        Dtype::I8 => integers::<i8>(device, op, &mut draft, other),
        Dtype::U8 => integers::<u8>(device, op, &mut draft, other),
        Dtype::Bool => truths(device, op, &mut draft, other),
        float => with_real!(float, T => floats::<T>(device, op, &mut draft, other)),
    }
    Ok(device.finish(draft))
}

/// The second operand along one run of the first.
#[derive(Clone, Copy)]
enum Other<'a, T> {
    Each(&'a [T]),
    One(T),
}

/// Elements of a scattered operand that are gathered at once.
const GATHERED: usize = 256;

/// Calls `apply` with runs of the draft, which is contiguous, and what stands beside them in `other`,
/// broadcast.
fn runs<T: Number>(
    device: &CpuDevice,
    draft: &mut Draft,
    other: &Value,
    apply: impl Fn(&mut [T], Other<'_, T>) + Sync,
) {
    let strides = other.layout.strides_for(draft.layout.shape());
    let walk = Walk::new(draft.layout.shape(), [draft.layout.strides(), &strides]);
    let count = walk.inner().count;
    let to = Disjoint::new(draft.elements::<T>());
    let from = other.read::<T>();
    if walk.runs() == 1 {
        return device.spread(count, 1, |range| {
            // SAFETY: the parts' ranges do not overlap.
            let to = unsafe { to.range(range.clone()) };
            run(to, from, (range.start * walk.inner().strides[1], walk.inner().strides[1]), &apply);
        });
    }
    device.spread(walk.runs(), count, |runs| {
        walk.visit(runs, |[start, other], inner| {
            // SAFETY: the parts' runs do not overlap, and the draft is contiguous.
            let to = unsafe { to.range(start..start + count) };
            run(to, from, (other, inner.strides[1]), &apply);
        });
    });
}

/// One run; `(start, step)` say where the second operand lies.
fn run<T: Number>(
    to: &mut [T],
    from: &[T],
    (start, step): (usize, usize),
    apply: &impl Fn(&mut [T], Other<'_, T>),
) {
    match step {
        0 => apply(to, Other::One(from[start])),
        1 => apply(to, Other::Each(&from[start..start + to.len()])),
        _ => {
            let mut gathered = [T::from_i64(0); GATHERED];
            for (chunk, to) in to.chunks_mut(GATHERED).enumerate() {
                let first = start + chunk * GATHERED * step;
                for (i, gathered) in gathered[..to.len()].iter_mut().enumerate() {
                    *gathered = from[first + i * step];
                }
                apply(to, Other::Each(&gathered[..to.len()]));
            }
        }
    }
}

fn floats<T: Real>(device: &CpuDevice, op: Binary, draft: &mut Draft, other: &Value) {
    let isa = device.pool.isa();
    runs::<T>(device, draft, other, |a, b| dispatch(isa, InPlace { op, a, b }));
}

struct InPlace<'a, T> {
    op: Binary,
    a: &'a mut [T],
    b: Other<'a, T>,
}

impl<T: Real> Kernel for InPlace<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { op, a, b } = self;
        match op {
            Binary::Add => each::<S, T, Add>(simd, a, b),
            Binary::Subtract => each::<S, T, Subtract>(simd, a, b),
            Binary::Multiply => each::<S, T, Multiply>(simd, a, b),
            Binary::Divide => each::<S, T, Divide>(simd, a, b),
            Binary::Minimum => each::<S, T, Minimum>(simd, a, b),
            Binary::Maximum => each::<S, T, Maximum>(simd, a, b),
            // In f64, so that the system's library leaves no trace in the rounded result.
            Binary::Power => {
                scalar(a, b, |a, b| T::from_f32(f64::from(a.to_f32()).powf(f64::from(b.to_f32())) as f32))
            }
            _ => {}
        }
    }
}

/// A function of two vectors.
trait Function {
    fn of<S: Simd>(simd: S, a: S::Lanes, b: S::Lanes) -> S::Lanes;
}

#[inline(always)]
fn each<S: Simd, T: Real, F: Function>(simd: S, a: &mut [T], b: Other<'_, T>) {
    let (vectors, rest) = a.as_chunks_mut::<LANES>();
    match b {
        Other::One(b) => {
            let b = simd.splat(b.to_f32());
            for vector in vectors {
                let a = T::load(simd, vector);
                T::store(simd, vector, F::of(simd, a, b));
            }
            let a = T::load_part(simd, rest);
            T::store_part(simd, rest, F::of(simd, a, b));
        }
        Other::Each(b) => {
            let (others, other_rest) = b.as_chunks::<LANES>();
            for (vector, other) in vectors.iter_mut().zip(others) {
                let a = T::load(simd, vector);
                T::store(simd, vector, F::of(simd, a, T::load(simd, other)));
            }
            let a = T::load_part(simd, rest);
            T::store_part(simd, rest, F::of(simd, a, T::load_part(simd, other_rest)));
        }
    }
}

macro_rules! functions {
    ($($name:ident($simd:ident, $a:ident, $b:ident) $body:expr;)*) => {$(
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn of<S: Simd>($simd: S, $a: S::Lanes, $b: S::Lanes) -> S::Lanes {
                $body
            }
        }
    )*};
}
functions! {
    Add(simd, a, b) simd.add(a, b);
    Subtract(simd, a, b) simd.sub(a, b);
    Multiply(simd, a, b) simd.mul(a, b);
    Divide(simd, a, b) simd.div(a, b);
    // A NaN on the right comes through the operation, one on the left by the choice.
    Minimum(simd, a, b) simd.select(simd.is_nan(a), a, simd.min(a, b));
    Maximum(simd, a, b) simd.select(simd.is_nan(a), a, simd.max(a, b));
}

/// Element by element, without vectors of our own; simple loops the compiler makes wide by itself.
#[inline(always)]
fn scalar<T: Copy>(a: &mut [T], b: Other<'_, T>, function: impl Fn(T, T) -> T) {
    match b {
        Other::One(b) => a.iter_mut().for_each(|a| *a = function(*a, b)),
        Other::Each(b) => a.iter_mut().zip(b).for_each(|(a, &b)| *a = function(*a, b)),
    }
}

/// Integer arithmetic that wraps; shifts beyond the width wrap too.
pub(crate) trait Wrapping: Element + Ord {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn left(self, bits: Self) -> Self;
    fn right(self, bits: Self) -> Self;
}

macro_rules! wrapping {
    ($($integer:ident),*) => {$(
        impl Wrapping for $integer {
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn left(self, bits: Self) -> Self { self.wrapping_shl(bits as u32) }
            fn right(self, bits: Self) -> Self { self.wrapping_shr(bits as u32) }
        }
    )*};
}
wrapping!(i32, u32, i8, u8);

fn integers<T: Number + Wrapping>(device: &CpuDevice, op: Binary, draft: &mut Draft, other: &Value) {
    runs::<T>(device, draft, other, |a, b| match op {
        Binary::Add => scalar(a, b, T::plus),
        Binary::Subtract => scalar(a, b, T::minus),
        Binary::Multiply => scalar(a, b, T::times),
        Binary::Minimum => scalar(a, b, T::min),
        Binary::Maximum => scalar(a, b, T::max),
        Binary::And => scalar(a, b, T::and),
        Binary::Or => scalar(a, b, T::or),
        Binary::ShiftLeft => scalar(a, b, T::left),
        Binary::ShiftRight => scalar(a, b, T::right),
        _ => {}
    });
}

fn truths(device: &CpuDevice, op: Binary, draft: &mut Draft, other: &Value) {
    runs::<Truth>(device, draft, other, |a, b| match op {
        Binary::And => scalar(a, b, |a, b| (a.holds() && b.holds()).into()),
        _ => scalar(a, b, |a, b| (a.holds() || b.holds()).into()),
    });
}
