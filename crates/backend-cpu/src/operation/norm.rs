//! Norms over the last axis, in f32, with sums in the order of [`fold`].
//!
//! ```text
//! rms:    r = 1 / sqrt(sum x^2 / n + epsilon)                        y = (x * r) * weight
//! layer:  d = x - sum x / n     r = 1 / sqrt(sum d^2 / n + epsilon)   y = fma(d * r, weight, bias)
//!                                                                     y = fma(d, r, bias) without weight
//! ```

use super::row::Rows;
use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::fold::{self, Plain, Squares};
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use tandem_contracts::tensor::{Result, Tensor, shape};

pub(crate) fn rms_norm(
    device: &CpuDevice,
    x: &Tensor,
    weight: Option<&Tensor>,
    epsilon: f32,
) -> Result<Tensor> {
    let parameters = Parameters::new(device, "rms_norm", x, [weight, None])?;
    shape::norm("rms_norm", x, &[weight], epsilon)?;
    let mut draft = device.fresh("rms_norm", x.dtype(), x.shape())?;
    with_real!(x.dtype(), T => rms_rows::<T>(device, &parameters, epsilon, &mut draft));
    Ok(device.finish(draft))
}

pub(crate) fn layer_norm(
    device: &CpuDevice,
    x: &Tensor,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    epsilon: f32,
) -> Result<Tensor> {
    let parameters = Parameters::new(device, "layer_norm", x, [weight, bias])?;
    shape::norm("layer_norm", x, &[weight, bias], epsilon)?;
    let mut draft = device.fresh("layer_norm", x.dtype(), x.shape())?;
    with_real!(x.dtype(), T => layer_rows::<T>(device, &parameters, epsilon, &mut draft));
    Ok(device.finish(draft))
}

/// The operands, the elements of each row and parameter one after the other.
struct Parameters {
    x: Value,
    weight: Option<Value>,
    bias: Option<Value>,
}

impl Parameters {
    fn new(
        device: &CpuDevice,
        operation: &'static str,
        x: &Tensor,
        parameters: [Option<&Tensor>; 2],
    ) -> Result<Self> {
        let x = device.value(operation, x)?;
        let together = x.layout.strides().last().is_none_or(|stride| *stride == 1);
        let x = if together { x.clone() } else { device.contiguous(operation, x)? };
        let [weight, bias] = parameters.map(|parameter| {
            parameter
                .map(|p| device.value(operation, p).and_then(|p| device.contiguous(operation, p)))
                .transpose()
        });
        Ok(Self { x, weight: weight?, bias: bias? })
    }

    fn rows(&self) -> Rows {
        let shape = self.x.layout.shape();
        Rows::new(&self.x, shape.len() - 1, shape)
    }

    fn weight<T: Real>(&self) -> Option<&[T]> {
        self.weight.as_ref().and_then(Value::slice)
    }

    fn bias<T: Real>(&self) -> Option<&[T]> {
        self.bias.as_ref().and_then(Value::slice)
    }
}

fn rms_rows<T: Real>(device: &CpuDevice, parameters: &Parameters, epsilon: f32, draft: &mut Draft) {
    let (rows, from) = (parameters.rows(), parameters.x.read::<T>());
    let weight = parameters.weight();
    let width = rows.extent;
    let (isa, to) = (device.pool.isa(), Disjoint::new(draft.elements::<T>()));
    rows.each(&device.pool, 2 * width, |row, _| {
        let x = &from[row.from..row.from + width];
        // SAFETY: rows do not overlap.
        let out = unsafe { to.range(row.to..row.to + width) };
        dispatch(isa, Rms { x, weight, epsilon, out });
    });
}

/// One row of the root-mean-square norm.
pub(crate) struct Rms<'a, T> {
    pub(crate) x: &'a [T],
    pub(crate) weight: Option<&'a [T]>,
    pub(crate) epsilon: f32,
    pub(crate) out: &'a mut [T],
}

impl<T: Real> Kernel for Rms<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { x, weight, epsilon, out } = self;
        let mean = fold::sum(simd, x, &Squares) / x.len() as f32;
        let share = simd.splat(1.0 / (mean + epsilon).sqrt());
        let Some(weight) = weight else {
            return map(simd, (x, x), out, |simd, x, _| simd.mul(x, share));
        };
        map(simd, (x, weight), out, |simd, x, weight| simd.mul(simd.mul(x, share), weight));
    }
}

/// `out = function(a, b)`, elementwise.
#[inline(always)]
fn map<S: Simd, A: Real, B: Real, C: Real>(
    simd: S,
    (a, b): (&[A], &[B]),
    out: &mut [C],
    function: impl Fn(S, S::Lanes, S::Lanes) -> S::Lanes,
) {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        C::store(simd, out, function(simd, A::load(simd, a), B::load(simd, b)));
    }
    if !out_rest.is_empty() {
        let (a, b) = (A::load_part(simd, a_rest), B::load_part(simd, b_rest));
        C::store_part(simd, out_rest, function(simd, a, b));
    }
}

fn layer_rows<T: Real>(device: &CpuDevice, parameters: &Parameters, epsilon: f32, draft: &mut Draft) {
    let (rows, from) = (parameters.rows(), parameters.x.read::<T>());
    let (weight, bias) = (parameters.weight(), parameters.bias());
    let width = rows.extent;
    let (isa, to) = (device.pool.isa(), Disjoint::new(draft.elements::<T>()));
    rows.each(&device.pool, 4 * width, |row, scratch| {
        let x = &from[row.from..row.from + width];
        // SAFETY: rows do not overlap.
        let out = unsafe { to.range(row.to..row.to + width) };
        let distance = scratch.lend(width);
        dispatch(isa, Layer { x, weight, bias, epsilon, distance, out });
    });
}

/// One row of the layer norm.
struct Layer<'a, T> {
    x: &'a [T],
    weight: Option<&'a [T]>,
    bias: Option<&'a [T]>,
    epsilon: f32,
    /// Working space of the row's width.
    distance: &'a mut [f32],
    out: &'a mut [T],
}

impl<T: Real> Kernel for Layer<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { x, weight, bias, epsilon, distance, out } = self;
        let count = x.len() as f32;
        let mean = simd.splat(fold::sum(simd, x, &Plain) / count);
        map(simd, (x, x), distance, |simd, x, _| simd.sub(x, mean));
        let variance = fold::sum(simd, distance, &Squares) / count;
        let share = simd.splat(1.0 / (variance + epsilon).sqrt());
        match (weight, bias) {
            (None, None) => map(simd, (distance, distance), out, |simd, d, _| simd.mul(d, share)),
            (Some(weight), None) => {
                map(simd, (distance, weight), out, |simd, d, weight| simd.mul(simd.mul(d, share), weight));
            }
            (None, Some(bias)) => map(simd, (distance, bias), out, |simd, d, bias| simd.fma(d, share, bias)),
            (Some(weight), Some(bias)) => {
                map(simd, (x, x), distance, |simd, x, _| simd.mul(simd.sub(x, mean), share));
                let both = distance.chunks(LANES).zip(weight.chunks(LANES)).zip(bias.chunks(LANES));
                for (((d, weight), bias), out) in both.zip(out.chunks_mut(LANES)) {
                    let (weight, bias) = (T::load_part(simd, weight), T::load_part(simd, bias));
                    T::store_part(simd, out, simd.fma(simd.load_part(d, 0.0), weight, bias));
                }
            }
        }
    }
}
