//! Where a branch of a block begins and ends: products whose inputs are made as they are quantised, by a norm or a
//! gated activation, and whose results land on the activations between blocks.
//!
//! Fast products of f32 over codes take these ways, which save matrices in between and rounds of the pool; everything
//! else is put together from single operations. Either way the bits are the same.

use super::gate::{self, Row};
use super::linear::{Rows, failed, prepared};
use super::norm::Rms;
use crate::device::CpuDevice;
use crate::product::{Prepared, Quantised};
use crate::simd::dispatch;
use tandem_contracts::tensor::{
    Activation, Backend, Binary, Dtype, Linear, Precision, Result, Tensor, shape,
};

/// Whether inputs may be made as they are quantised: dense weights want the inputs themselves.
fn is_fused(x: &Tensor, weight: &Prepared, precision: Precision) -> bool {
    x.dtype() == Dtype::F32 && precision == Precision::Fast && !weight.has_dense()
}

/// `linear(rms_norm(x))`.
pub(crate) fn norm_linear(
    device: &CpuDevice,
    x: &Tensor,
    (scale, epsilon): (&Tensor, f32),
    weight: &Linear,
    precision: Precision,
) -> Result<Tensor> {
    device.own("norm_linear", &[x, scale])?;
    let whole = prepared(device, "norm_linear", weight)?;
    if !is_fused(x, whole, precision) {
        return device.linear(&device.rms_norm(x, Some(scale), epsilon)?, weight, precision);
    }
    shape::norm("norm_linear", x, &[Some(scale)], epsilon)?;
    let shape = shape::linear(x, weight)?;
    let rows = Rows::of(device, "norm_linear", x)?;
    let scale = device.contiguous("norm_linear", device.value("norm_linear", scale)?)?;
    let (x, scale, isa, width) = (rows.slice(), scale.slice::<f32>(), device.pool.isa(), whole.width());
    let made = whole.quantise_made(&device.pool, shape[0], |row, out| {
        let x = &x[row * width..][..width];
        dispatch(isa, Rms { x, weight: scale, epsilon, out });
    });
    let made = made.map_err(|error| failed("norm_linear", error))?;
    let mut draft = device.fresh("norm_linear", Dtype::F32, &shape)?;
    let done = whole.fast_quantised(&device.pool, &[], &made, draft.elements());
    done.map_err(|error| failed("norm_linear", error))?;
    Ok(device.finish(draft))
}

/// `residual + linear(x)`.
pub(crate) fn linear_add(
    device: &CpuDevice,
    residual: Tensor,
    x: &Tensor,
    weight: &Linear,
    precision: Precision,
) -> Result<Tensor> {
    device.own("linear_add", &[&residual, x])?;
    let whole = prepared(device, "linear_add", weight)?;
    let shape = shape::linear(x, weight)?;
    if !is_fused(x, whole, precision) || !is_matrix(&residual, shape) {
        return device.binary(Binary::Add, residual, &device.linear(x, weight, precision)?);
    }
    let rows = Rows::of(device, "linear_add", x)?;
    let quantised = whole.quantise(&device.pool, rows.slice(), shape[0]);
    let quantised = quantised.map_err(|error| failed("linear_add", error))?;
    onto(device, "linear_add", residual, (whole, &quantised))
}

/// `residual + linear(gated(gate_up))`.
pub(crate) fn gated_linear_add(
    device: &CpuDevice,
    residual: Tensor,
    (gate_up, activation): (&Tensor, Activation),
    weight: &Linear,
    precision: Precision,
) -> Result<Tensor> {
    device.own("gated_linear_add", &[&residual, gate_up])?;
    let whole = prepared(device, "gated_linear_add", weight)?;
    let (source, [tokens, width]) = gate::halves(device, gate_up)?;
    let fits = width == whole.width() && whole.experts() == 1;
    if !fits || !is_fused(gate_up, whole, precision) || !is_matrix(&residual, [tokens, whole.rows()]) {
        return device.linear_add(residual, &device.gated(gate_up, activation)?, weight, precision);
    }
    let (x, isa) = (source.slice::<f32>().unwrap_or_default(), device.pool.isa());
    let made = whole.quantise_made(&device.pool, tokens, |row, out| {
        let (gate, up) = x[row * 2 * width..][..2 * width].split_at(width);
        dispatch(isa, Row { activation, gate, up, out });
    });
    let made = made.map_err(|error| failed("gated_linear_add", error))?;
    onto(device, "gated_linear_add", residual, (whole, &made))
}

/// Whether a residual is what products can be added to as they come.
fn is_matrix(residual: &Tensor, shape: [usize; 2]) -> bool {
    residual.dtype() == Dtype::F32 && residual.shape() == shape
}

/// Adds the products of quantised rows to the residual.
fn onto(
    device: &CpuDevice,
    operation: &'static str,
    residual: Tensor,
    (weight, rows): (&Prepared, &[Quantised]),
) -> Result<Tensor> {
    let mut draft = device.take_contiguous(operation, residual)?;
    let done = weight.fast_onto(&device.pool, &[], rows, draft.elements());
    done.map_err(|error| failed(operation, error))?;
    Ok(device.finish(draft))
}
