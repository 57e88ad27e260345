//! Elementwise operations of one operand.

use super::arithmetic::Wrapping;
use crate::device::CpuDevice;
use crate::number::{Number, Real, Truth, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};
use crate::value::Draft;
use tandem_contracts::tensor::{Dtype, Result, Tensor, Unary, shape};

pub(crate) fn unary(device: &CpuDevice, op: Unary, x: Tensor) -> Result<Tensor> {
    device.own("unary", &[&x])?;
    shape::unary(op, &x)?;
    let mut draft = device.take_contiguous("unary", x)?;
    match draft.dtype {
        Dtype::Bool => draft.elements::<Truth>().iter_mut().for_each(|x| *x = (!x.holds()).into()),
        Dtype::I32 => integers::<i32>(op, draft.elements()),
        Dtype::I8 => integers::<i8>(op, draft.elements()),
        dtype => with_real!(dtype, T => floats::<T>(device, op, &mut draft)),
    }
    Ok(device.finish(draft))
}

fn integers<T: Number + Wrapping>(op: Unary, xs: &mut [T]) {
    let zero = T::from_i64(0);
    for x in xs {
        *x = match op {
            Unary::Negate => zero.minus(*x),
            Unary::Abs if *x < zero => zero.minus(*x),
            Unary::Square => x.times(*x),
            _ => *x,
        };
    }
}

fn floats<T: Real>(device: &CpuDevice, op: Unary, draft: &mut Draft) {
    let isa = device.pool.isa();
    let elements = draft.elements::<T>();
    let (count, shared) = (elements.len(), Disjoint::new(elements));
    device.spread(count, cost(op), |range| {
        // SAFETY: the parts' ranges do not overlap.
        let xs = unsafe { shared.range(range) };
        dispatch(isa, InPlace { op, xs });
    });
}

/// Elements' worth of copying that one takes.
fn cost(op: Unary) -> usize {
    match op {
        Unary::Log | Unary::Log1p => 32,
        Unary::Exp | Unary::Sigmoid | Unary::Tanh | Unary::Erf | Unary::Sin | Unary::Cos => 4,
        _ => 1,
    }
}

struct InPlace<'a, T> {
    op: Unary,
    xs: &'a mut [T],
}

impl<T: Real> Kernel for InPlace<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.op {
            Unary::Negate => each::<S, T, Negate>(simd, self.xs),
            Unary::Abs => each::<S, T, Abs>(simd, self.xs),
            Unary::Square => each::<S, T, Square>(simd, self.xs),
            Unary::Exp => each::<S, T, Exp>(simd, self.xs),
            Unary::Sqrt => each::<S, T, Sqrt>(simd, self.xs),
            Unary::Rsqrt => each::<S, T, Rsqrt>(simd, self.xs),
            Unary::Sigmoid => each::<S, T, Sigmoid>(simd, self.xs),
            Unary::Tanh => each::<S, T, Tanh>(simd, self.xs),
            Unary::Erf => each::<S, T, Erf>(simd, self.xs),
            Unary::Sin => each::<S, T, Sin>(simd, self.xs),
            Unary::Cos => each::<S, T, Cos>(simd, self.xs),
            Unary::Round => each::<S, T, Round>(simd, self.xs),
            Unary::Floor => each::<S, T, Floor>(simd, self.xs),
            Unary::Log => in_f64(self.xs, f64::ln),
            Unary::Log1p => in_f64(self.xs, f64::ln_1p),
            Unary::Not => {}
        }
    }
}

/// So that the system's library leaves no trace in the rounded result.
fn in_f64<T: Real>(xs: &mut [T], function: fn(f64) -> f64) {
    xs.iter_mut().for_each(|x| *x = T::from_f32(function(x.to_f32().into()) as f32));
}

/// A function of a vector.
trait Function {
    fn of<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes;
}

#[inline(always)]
fn each<S: Simd, T: Real, F: Function>(simd: S, xs: &mut [T]) {
    let (vectors, rest) = xs.as_chunks_mut::<LANES>();
    for vector in vectors {
        let x = T::load(simd, vector);
        T::store(simd, vector, F::of(simd, x));
    }
    if !rest.is_empty() {
        let x = T::load_part(simd, rest);
        T::store_part(simd, rest, F::of(simd, x));
    }
}

macro_rules! functions {
    ($($name:ident($simd:ident, $x:ident) $body:expr;)*) => {$(
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn of<S: Simd>($simd: S, $x: S::Lanes) -> S::Lanes {
                $body
            }
        }
    )*};
}
functions! {
    // Not `0 - x`, for the sake of 0.
    Negate(simd, x) simd.mul(x, simd.splat(-1.0));
    Abs(simd, x) simd.abs(x);
    Square(simd, x) simd.mul(x, x);
    Exp(simd, x) math::exp(simd, x);
    Sqrt(simd, x) simd.sqrt(x);
    Rsqrt(simd, x) simd.div(simd.splat(1.0), simd.sqrt(x));
    Sigmoid(simd, x) math::sigmoid(simd, x);
    Tanh(simd, x) math::tanh(simd, x);
    Erf(simd, x) math::erf(simd, x);
    Sin(simd, x) math::sine_cosine(simd, x).0;
    Cos(simd, x) math::sine_cosine(simd, x).1;
    Round(simd, x) simd.round(x);
    Floor(simd, x) simd.floor(x);
}
