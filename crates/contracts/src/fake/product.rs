//! Products, affine codes and prepared weights. Sums run in ascending order in f32.

use super::{
    layout::indices,
    node::{Node, Outcome},
    value::{Value, offset, repeated},
};
use crate::tensor::{Affine, DeviceId, Dtype, Prepared, Storage};
use std::rc::Rc;

pub(super) fn matmul(a: &Value, b: &Value, shape: &[usize]) -> Value {
    let (batch, [m, n]) = (&shape[..shape.len() - 2], [shape[shape.len() - 2], shape[shape.len() - 1]]);
    let k = a.shape[a.shape.len() - 1];
    let batches: usize = batch.iter().product();
    let left = repeated(&a.shape[..a.shape.len() - 2], batch);
    let right = repeated(&b.shape[..b.shape.len() - 2], batch);
    let (x, y) = (a.floats(), b.floats());
    let mut result = Value::zeros(a.dtype, shape);
    for i in 0..batches {
        let (x, y) = (&x[offset(i, batch, &left) * m * k..], &y[offset(i, batch, &right) * k * n..]);
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let sum = (0..k).fold(0.0, |sum, j| sum + x[row * k + j] * y[j * n + column]);
            result.set_float((i * m + row) * n + column, sum);
        }
    }
    result
}

/// Codes, scales and biases as MLX computes them: the end of the group's range that is larger in magnitude is
/// hit exactly, and 0 where the range allows it. Codes follow from the unrounded scale and bias.
pub(super) fn quantize(x: &Value, format: Affine) -> [Value; 3] {
    let Affine { bits, group } = format;
    let (bits, group) = (usize::from(bits), usize::from(group));
    let with = |width: usize| {
        let mut shape = x.shape.clone();
        shape.pop();
        shape.push(width);
        shape
    };
    let width = x.shape.last().copied().unwrap_or(0);
    let mut codes = Value::zeros(Dtype::U32, &with(format.words(width)));
    let mut scales = Value::zeros(x.dtype, &with(format.groups(width)));
    let mut biases = scales.clone();
    for i in 0..scales.elements() {
        let values: Vec<f32> = (i * group..(i + 1) * group).map(|j| x.float(j)).collect();
        let (scale, bias) = range(&values, bits);
        scales.set_float(i, scale);
        biases.set_float(i, bias);
        let most = (1u32 << bits) - 1;
        for (j, value) in values.iter().enumerate() {
            let code = ((value - bias) / scale).round_ties_even().clamp(0.0, most as f32) as u32;
            pack(&mut codes.bytes, (i * group + j) * bits, code, bits);
        }
    }
    [codes, scales, biases]
}

fn range(values: &[f32], bits: usize) -> (f32, f32) {
    let most = ((1u32 << bits) - 1) as f32;
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let low_end = least.abs() > largest.abs();
    let scale = ((largest - least) / most).max(1e-7);
    let (scale, edge) = if low_end { (scale, least) } else { (-scale, largest) };
    let steps = (edge / scale).round_ties_even();
    if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) }
}

/// Codes are consecutive bits of the little-endian bytes.
fn pack(bytes: &mut [u8], first: usize, code: u32, bits: usize) {
    for bit in 0..bits {
        let at = first + bit;
        bytes[at / 8] |= u8::from(code >> bit & 1 == 1) << (at % 8);
    }
}

fn unpack(bytes: &[u8], first: usize, bits: usize) -> u32 {
    (0..bits).fold(0, |code, bit| {
        let at = first + bit;
        code | u32::from(bytes[at / 8] >> (at % 8) & 1) << bit
    })
}

/// `scale * code + bias` in f32, rounded to `dtype`.
pub(super) fn dequantize(planes: &[&Value], format: Affine, dtype: Dtype, shape: &[usize]) -> Value {
    let (codes, scales, biases) = (planes[0], planes[1], planes[2]);
    let (bits, group) = (usize::from(format.bits), usize::from(format.group));
    let count: usize = shape.iter().product();
    Value::from_floats(
        dtype,
        shape,
        (0..count).map(|i| {
            let code = unpack(&codes.bytes, i * bits, bits) as f32;
            scales.float(i / group).mul_add(code, biases.float(i / group))
        }),
    )
}

/// A prepared weight: the dequantised matrices in f32, `[experts, outputs, inputs]`, computed when first needed.
#[derive(Debug)]
pub(super) struct Matrices(pub(super) Rc<Node>);

impl Prepared for Matrices {
    fn outputs(&self) -> usize {
        self.0.shape()[1]
    }

    fn inputs(&self) -> usize {
        self.0.shape()[2]
    }

    fn experts(&self) -> usize {
        self.0.shape()[0]
    }

    fn bytes(&self) -> usize {
        self.0.shape().iter().product::<usize>() * Dtype::F32.size()
    }

    fn device(&self) -> DeviceId {
        self.0.device()
    }
}

/// `[rows, inputs]` times the chosen matrix of each of `choices` per row; the result's dtype is that of `x`.
fn chosen(x: &Value, weight: &Value, choice: impl Fn(usize) -> usize, shape: &[usize]) -> Value {
    let [outputs, inputs] = [weight.shape[1], weight.shape[2]];
    let rows = x.shape[0];
    let count: usize = shape.iter().product();
    let choices = (count / (rows * outputs).max(1)).max(1);
    let (x_values, w) = (x.floats(), weight.floats());
    let product = |flat: usize| {
        let (pick, output) = (flat / outputs, flat % outputs);
        let x = &x_values[pick / choices * inputs..];
        let w = &w[(choice(pick) * outputs + output) * inputs..];
        (0..inputs).fold(0.0, |sum, i| sum + x[i] * w[i])
    };
    Value::from_floats(x.dtype, shape, (0..count).map(product))
}

pub(super) fn linear(x: &Value, weight: &Value, shape: &[usize]) -> Value {
    chosen(x, weight, |_| 0, shape)
}

pub(super) fn gather_linear(x: &Value, weight: &Value, choice: &Value, shape: &[usize]) -> Outcome {
    let experts = indices("gather_linear", choice, weight.shape[0])?;
    Ok(chosen(x, weight, |pick| experts[pick], shape))
}

pub(super) fn embed(weight: &Value, ids: &Value, shape: &[usize]) -> Outcome {
    let rows = indices("embed", ids, weight.shape[1])?;
    let inputs = shape[1];
    Ok(weight.gather(shape, |i| rows[i / inputs] * inputs + i % inputs))
}
