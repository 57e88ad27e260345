//! Bodies of the provided operations, in port operations: what an adapter's override is held to.

mod recurrence;

pub use recurrence::{convolve, scan};
mod hadamard;
mod stream;
mod turbo;

pub use hadamard::{finite, hadamard, hadamard_norm};
pub use turbo::{
    EPSILON, encode_turbo_keys, encode_turbo_values, turbo_key_range, turbo_keys, turbo_values, turn_back,
};

use super::{
    Activation, Attend, Binary, Device, Dtype, Error, KvAppend, KvWrite, Plane, Quantized, Result, RowSpan,
    Scalar, Tensor, TurboKeys, TurboValues, Unary, shape,
};
use std::ops::Range;

/// Writes each row's new tokens at its columns, one box after the other, cast to the dtype of the plane.
///
/// # Errors
/// As [`shape::kv_append`].
pub fn kv_append(device: &Device, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
    shape::kv_append(&plane, tokens, writes)?;
    let [heads, width] = [tokens.shape()[1], tokens.shape()[2]];
    writes.iter().try_fold(plane, |plane, write| {
        let own = device.slice(tokens, &[write.tokens.clone(), 0..heads, 0..width])?;
        let own = device.transpose(&own, &[1, 0, 2])?;
        let own = device.reshape(&own, &[1, heads, write.tokens.len(), width])?;
        let own = if own.dtype() == plane.dtype() { own } else { device.cast(&own, plane.dtype())? };
        device.slice_update(plane, &own, &[write.row, 0, write.column, 0])
    })
}

/// Appends to one plane after the other, when all that is given has been found to fit.
///
/// # Errors
/// As [`shape::kv_append`], a foreign operand, or the device's own.
pub fn kv_append_each(device: &Device, appends: &mut [KvAppend<'_>]) -> Result<()> {
    for KvAppend { plane, tokens, writes } in &*appends {
        if [&**plane, tokens].iter().any(|x| x.storage().device() != device.id()) {
            return Err(Error::foreign("kv_append"));
        }
        shape::kv_append(plane, tokens, writes)?;
    }
    for KvAppend { plane, tokens, writes } in appends {
        // The older handle goes before a device that defers comes to the append.
        **plane = device.kv_append(plane.clone(), tokens, writes)?;
    }
    Ok(())
}

/// `activation(gate) * up`.
///
/// # Errors
/// `gate_up` is not a float `[tokens, 2 n]`.
pub fn gated(device: &Device, gate_up: &Tensor, activation: Activation) -> Result<Tensor> {
    let &[tokens, width] = gate_up.shape() else {
        return Err(Error::shape("gated", format!("needs 2 axes, got: {:?}", gate_up.shape())));
    };
    if width % 2 != 0 {
        return Err(Error::shape("gated", format!("halves of an odd width: {width}")));
    }
    let gate = device.slice(gate_up, &[0..tokens, 0..width / 2])?;
    let up = device.slice(gate_up, &[0..tokens, width / 2..width])?;
    device.binary(Binary::Multiply, activate(device, gate, activation)?, &up)
}

/// The activation alone, elementwise.
///
/// # Errors
/// Another dtype than a float.
pub fn activate(device: &Device, x: Tensor, activation: Activation) -> Result<Tensor> {
    let constant = |value| device.full(Scalar::Float(value), x.dtype(), &[]);
    let gate = match activation {
        Activation::Silu => device.unary(Unary::Sigmoid, x.clone())?,
        Activation::GeluTanh => {
            let cube = device.binary(Binary::Power, x.clone(), &constant(3.0)?)?;
            let cube = device.binary(Binary::Multiply, cube, &constant(0.044_715)?)?;
            let inner = device.binary(Binary::Add, cube, &x)?;
            let inner = device.binary(
                Binary::Multiply,
                inner,
                &constant((2.0 / std::f64::consts::PI).sqrt() as f32)?,
            )?;
            half_plus(device, device.unary(Unary::Tanh, inner)?)?
        }
        Activation::Gelu => {
            let inner = device.binary(Binary::Divide, x.clone(), &constant(std::f32::consts::SQRT_2)?)?;
            half_plus(device, device.unary(Unary::Erf, inner)?)?
        }
    };
    device.binary(Binary::Multiply, x, &gate)
}

/// `(1 + x) / 2`.
fn half_plus(device: &Device, x: Tensor) -> Result<Tensor> {
    let (one, half) =
        (device.full(Scalar::Float(1.0), x.dtype(), &[])?, device.full(Scalar::Float(0.5), x.dtype(), &[])?);
    let x = device.binary(Binary::Add, x, &one)?;
    device.binary(Binary::Multiply, x, &half)
}

/// Attention row by row: gathers the row's live keys and values in order of position, then scores, mask, softmax
/// in f32, and the weighted sum. Codes are read as f32, `fma(scale, code, bias)`, whatever the dtype of the scales;
/// TurboQuant's values are mixed as they lie, rotated, and the result is turned back, in f32.
///
/// # Errors
/// As [`shape::attend`].
pub fn attend(device: &Device, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
    let [tokens, heads, width] = shape::attend(q, rows, how)?;
    let outputs = rows
        .iter()
        .filter(|row| !row.queries.is_empty())
        .map(|row| attend_row(device, q, row, how))
        .collect::<Result<Vec<_>>>()?;
    match outputs.len() {
        0 => device.full(Scalar::Float(0.0), q.dtype(), &[tokens, heads, width]),
        1 => Ok(outputs[0].clone()),
        _ => device.concat(&outputs.iter().collect::<Vec<_>>(), 0),
    }
}

fn attend_row(device: &Device, q: &Tensor, row: &RowSpan<'_>, how: &Attend<'_>) -> Result<Tensor> {
    let [count, heads, width] = [row.queries.len(), q.shape()[1], q.shape()[2]];
    let own = device.slice(q, &[row.queries.clone(), 0..heads, 0..width])?;
    let (keys, values) = (live(device, &row.keys, row)?, live(device, &row.values, row)?);
    let [shared, length, value_width] = [0, 1, 2].map(|i| values.shape()[i]);
    let group = heads / shared;

    // Heads that share keys become rows of one product: [shared, group * count, width].
    let own = device.transpose(&device.cast(&own, Dtype::F32)?, &[1, 0, 2])?;
    let own =
        device.binary(Binary::Multiply, own, &device.full(Scalar::Float(how.scale), Dtype::F32, &[])?)?;
    let own = device.reshape(&own, &[shared, group * count, width])?;
    let scores = device.matmul(&own, &device.transpose(&keys, &[0, 2, 1])?)?;
    let scores = soften(device, scores, how.soft_cap)?;
    let scores = device.reshape(&scores, &[heads, count, length])?;
    let hidden = device.full(Scalar::Float(f32::NEG_INFINITY), Dtype::F32, &[])?;
    let scores = device.select(&mask(device, row, how)?, &scores, &hidden)?;

    let weights = weigh(device, &scores, how.sinks)?;
    let weights = device.reshape(&weights, &[shared, group * count, length])?;
    let mixed = device.reshape(&device.matmul(&weights, &values)?, &[heads, count, value_width])?;
    let mixed = match &row.values {
        Plane::TurboValues(values) => turn_back(device, &mixed, &values.book.signs)?,
        _ => mixed,
    };
    device.cast(&device.transpose(&mixed, &[1, 0, 2])?, q.dtype())
}

fn soften(device: &Device, scores: Tensor, cap: Option<f32>) -> Result<Tensor> {
    let Some(cap) = cap else { return Ok(scores) };
    let cap = device.full(Scalar::Float(cap), Dtype::F32, &[])?;
    let scores = device.binary(Binary::Divide, scores, &cap)?;
    device.binary(Binary::Multiply, device.unary(Unary::Tanh, scores)?, &cap)
}

/// Softmax over the last axis; a sink is one more column that is dropped again.
fn weigh(device: &Device, scores: &Tensor, sinks: Option<&Tensor>) -> Result<Tensor> {
    let [heads, count, length] = [0, 1, 2].map(|i| scores.shape()[i]);
    let Some(sinks) = sinks else { return device.softmax(scores, 2) };
    let sinks = device.broadcast(&device.reshape(sinks, &[heads, 1, 1])?, &[heads, count, 1])?;
    let weights = device.softmax(&device.concat(&[scores, &sinks], 2)?, 2)?;
    device.slice(&weights, &[0..heads, 0..count, 0..length])
}

/// The row's live columns in order of position, in f32: `[heads, length, width]`.
fn live(device: &Device, plane: &Plane<'_>, row: &RowSpan<'_>) -> Result<Tensor> {
    let pieces = row
        .runs
        .iter()
        .map(|run| {
            let own =
                |plane: &Tensor| cut(device, plane, run.row, run.column..run.column + run.positions.len());
            match plane {
                Plane::Plain(plane) => own(plane),
                Plane::Affine(plane) => {
                    let factor = |plane: &Tensor| device.cast(&own(plane)?, Dtype::F32);
                    device.dequantize(&Quantized {
                        scales: factor(&plane.scales)?,
                        biases: factor(&plane.biases)?,
                        codes: own(&plane.codes)?,
                        format: plane.format,
                    })
                }
                Plane::TurboKeys(plane) => {
                    let (codes, scales, zeros) =
                        (own(&plane.codes)?, own(&plane.scales)?, own(&plane.zeros)?);
                    turbo_keys(device, &TurboKeys { bits: plane.bits, codes, scales, zeros })
                }
                Plane::TurboValues(plane) => {
                    let (codes, scales) = (own(&plane.codes)?, own(&plane.scales)?);
                    turbo_values(device, &TurboValues { book: plane.book.clone(), codes, scales })
                }
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let joined = match &pieces[..] {
        [one] => one.clone(),
        _ => device.concat(&pieces.iter().collect::<Vec<_>>(), 2)?,
    };
    let joined = device.reshape(&joined, &joined.shape()[1..])?;
    device.cast(&joined, Dtype::F32)
}

fn cut(device: &Device, plane: &Tensor, row: usize, columns: Range<usize>) -> Result<Tensor> {
    device.slice(plane, &[row..row + 1, 0..plane.shape()[1], columns, 0..plane.shape()[3]])
}

/// Which keys each query sees: boolean `[count, length]`.
fn mask(device: &Device, row: &RowSpan<'_>, how: &Attend<'_>) -> Result<Tensor> {
    let positions: Vec<usize> = row.runs.iter().flat_map(|run| run.positions.clone()).collect();
    let end = positions.last().map_or(0, |last| last + 1);
    let bytes: Vec<u8> = (row.position..row.position + row.queries.len())
        .flat_map(|query| positions.iter().map(move |&key| u8::from(how.sees(query, end, key))))
        .collect();
    device.upload(&bytes, Dtype::Bool, &[row.queries.len(), positions.len()])
}
