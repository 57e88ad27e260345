//! Activation times gate: `activation(gate) * up` of joined halves.
//!
//! In f32, step by step as the port's own body, so that both give the same bits; 16-bit floats are rounded
//! once, at the end.

use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};
use crate::value::{Draft, Value};
use std::f32::consts::FRAC_1_SQRT_2;
use tandem_contracts::tensor::{Activation, Error, Result, Tensor};

pub(crate) fn gated(device: &CpuDevice, gate_up: &Tensor, activation: Activation) -> Result<Tensor> {
    let (source, shape) = halves(device, gate_up)?;
    let mut draft = device.fresh("gated", source.dtype, &shape)?;
    with_real!(source.dtype, T => rows::<T>(device, activation, &source, &mut draft));
    Ok(device.finish(draft))
}

/// The joined halves, one row after the other, and the result's shape.
pub(crate) fn halves(device: &CpuDevice, gate_up: &Tensor) -> Result<(Value, [usize; 2])> {
    let source = device.value("gated", gate_up)?;
    let &[tokens, width] = gate_up.shape() else {
        return Err(Error::shape("gated", format!("needs 2 axes, got: {:?}", gate_up.shape())));
    };
    if width % 2 != 0 {
        return Err(Error::shape("gated", format!("halves of an odd width: {width}")));
    }
    if !source.dtype.is_float() {
        return Err(Error::dtype("gated", format!("takes floats, got: {:?}", source.dtype)));
    }
    Ok((device.contiguous("gated", source)?, [tokens, width / 2]))
}

fn rows<T: Real>(device: &CpuDevice, activation: Activation, source: &Value, draft: &mut Draft) {
    let [tokens, half] = [draft.layout.shape()[0], draft.layout.shape()[1]];
    let from = source.slice::<T>().unwrap_or_default();
    let (isa, to) = (device.pool.isa(), Disjoint::new(draft.elements::<T>()));
    device.spread(tokens, 4 * half, |range| {
        for row in range {
            let (gate, up) = from[row * 2 * half..(row + 1) * 2 * half].split_at(half);
            // SAFETY: rows do not overlap, and each belongs to one part.
            let out = unsafe { to.range(row * half..(row + 1) * half) };
            dispatch(isa, Row { activation, gate, up, out });
        }
    });
}

/// One row.
pub(crate) struct Row<'a, T> {
    pub(crate) activation: Activation,
    pub(crate) gate: &'a [T],
    pub(crate) up: &'a [T],
    pub(crate) out: &'a mut [T],
}

impl<T: Real> Kernel for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.activation {
            Activation::Silu => self.each::<S, Silu>(simd),
            Activation::GeluTanh => self.each::<S, GeluTanh>(simd),
            Activation::Gelu => self.each::<S, Gelu>(simd),
        }
    }
}

impl<T: Real> Row<'_, T> {
    #[inline(always)]
    fn each<S: Simd, F: Function>(self, simd: S) {
        let (gate, gate_rest) = self.gate.as_chunks::<LANES>();
        let (up, up_rest) = self.up.as_chunks::<LANES>();
        let (out, out_rest) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gate.iter().zip(up).zip(out) {
            let active = F::of(simd, T::load(simd, gate));
            T::store(simd, out, simd.mul(active, T::load(simd, up)));
        }
        if !out_rest.is_empty() {
            let active = F::of(simd, T::load_part(simd, gate_rest));
            T::store_part(simd, out_rest, simd.mul(active, T::load_part(simd, up_rest)));
        }
    }
}

/// An activation.
trait Function {
    fn of<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes;
}

struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn of<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
        simd.mul(x, math::sigmoid(simd, x))
    }
}

/// `sqrt(2 / pi)`.
const FRAC_SQRT_2_SQRT_PI: f32 = 0.797_884_6;

struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn of<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
        let cube = simd.mul(simd.mul(simd.mul(x, x), x), simd.splat(0.044_715));
        let inner = simd.mul(simd.add(cube, x), simd.splat(FRAC_SQRT_2_SQRT_PI));
        simd.mul(x, half_plus(simd, math::tanh(simd, inner)))
    }
}

struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn of<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
        simd.mul(x, half_plus(simd, math::erf(simd, simd.mul(x, simd.splat(FRAC_1_SQRT_2)))))
    }
}

/// `(1 + x) / 2`.
#[inline(always)]
fn half_plus<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
    simd.mul(simd.add(x, simd.splat(1.0)), simd.splat(0.5))
}
