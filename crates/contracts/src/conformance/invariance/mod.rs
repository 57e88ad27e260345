//! Batch invariance: the bits of an element depend on its own operands and on nothing else.
//!
//! Devices that do not promise it ([`Traits::batch_invariant`](crate::tensor::Traits::batch_invariant)) pass
//! without being tried.

pub mod attention;
pub mod recurrence;

use super::{
    Broken, Outcome,
    affine::Codes,
    behaviours,
    expect::{same, same_bits},
    host::{Host, with},
};
use crate::tensor::{
    Activation, Affine, Binary, Device, Dtype, Linear, Reduce, Result, Rope, Scalar, Tensor, Unary, Weight,
};

behaviours!("invariance":
    products_of_rows,
    gathered_products_of_rows,
    plain_products_of_rows,
    layers_of_rows,
    elements_at_any_place,
    reductions_in_order,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Rows of the first axis.
fn rows(device: &Device, x: &Tensor, first: usize, end: usize) -> Result<Tensor> {
    let mut ranges: Vec<_> = x.shape().iter().map(|&extent| 0..extent).collect();
    ranges[0] = first..end;
    device.slice(x, &ranges)
}

/// Dense copy of some rows: what a call of its own would have uploaded.
fn alone(device: &Device, x: &Host, first: usize, end: usize) -> std::result::Result<Tensor, Broken> {
    let (mut start, mut size) = (vec![0; x.rank()], x.shape.clone());
    (start[0], size[0]) = (first, end - first);
    x.boxed(&start, &size).upload(device)
}

/// Parts of a call that are compared with the whole: single rows and spans that fill no block.
const PARTS: [(usize, usize); 6] = [(0, 1), (16, 17), (36, 37), (0, 3), (5, 22), (20, 37)];
const TOKENS: usize = 37;

/// Tries parts of `x` alone against the same rows of the whole.
fn compare(
    device: &Device,
    place: &str,
    x: &Host,
    function: impl Fn(&Tensor, usize, usize) -> std::result::Result<Tensor, Broken>,
) -> Outcome {
    let whole = function(&x.upload(device)?, 0, x.shape[0])?;
    for (first, end) in PARTS {
        let part = function(&alone(device, x, first, end)?, first, end)?;
        let of_whole = rows(device, &whole, first, end)?;
        same_bits(format!("{place}, rows {first}..{end}"), device, &part, &of_whole)?;
    }
    for (form, view) in x.forms(device)? {
        same_bits(format!("{place}, {form}"), device, &function(&view, 0, x.shape[0])?, &whole)?;
    }
    Ok(())
}

fn weights(device: &Device) -> std::result::Result<Vec<(&'static str, Linear)>, Broken> {
    let mut prepared = Vec::new();
    for (name, format) in
        [("4 bits", Affine { bits: 4, group: 32 }), ("6 bits", Affine { bits: 6, group: 64 })]
    {
        let weight = Codes::sample(format, Dtype::F32, &[35, 128], 170).weight(device)?;
        prepared.push((name, device.prepare_linear(&[weight])?));
    }
    for (name, dtype) in [("f32", Dtype::F32), ("bf16", Dtype::Bf16)] {
        let weight = Weight::Dense(Host::sample(dtype, &[35, 128], 171).upload(device)?);
        prepared.push((name, device.prepare_linear(&[weight])?));
    }
    Ok(prepared)
}

/// Prepared weights: a row alone, in a few and in many, in each precision and dtype.
pub fn products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for (name, weight) in weights(device)? {
        for &precision in device.traits().precisions {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let x = Host::sample(dtype, &[TOKENS, 128], 172);
                let place = format!("{name} {dtype:?} {precision:?}");
                compare(device, &place, &x, |x, _, _| Ok(device.linear(x, &weight, precision)?))?;
            }
            let x = Host::sample(Dtype::F32, &[TOKENS, 128], 172);
            let scale = Host::sample(Dtype::F32, &[128], 173).upload(device)?;
            compare(device, &format!("norm_linear {name} {precision:?}"), &x, |x, _, _| {
                Ok(device.norm_linear(x, (&scale, 1e-5), &weight, precision)?)
            })?;
            let halves = Host::sample(Dtype::F32, &[TOKENS, 256], 179);
            compare(device, &format!("gated_linear_add {name} {precision:?}"), &halves, |x, _, _| {
                let residual =
                    device.full(Scalar::Float(0.5), Dtype::F32, &[x.shape()[0], weight.outputs()])?;
                Ok(device.gated_linear_add(residual, (x, Activation::Silu), &weight, precision)?)
            })?;
        }
    }
    Ok(())
}

/// Experts chosen by a row do not depend on the choices of others.
pub fn gathered_products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let stack = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[5, 9, 64], 174).weight(device)?;
    let experts = device.prepare_linear(&[stack])?;
    let choice = Host::sample_indices(&[TOKENS, 2], 5, 175);
    let x = Host::sample(Dtype::F32, &[TOKENS, 64], 176);
    for &precision in device.traits().precisions {
        compare(device, &format!("{precision:?}"), &x, |x, first, end| {
            let choice = alone(device, &choice, first, end)?;
            Ok(device.gather_linear(x, &experts, &choice, precision)?)
        })?;
    }
    Ok(())
}

/// Plain matrix products, whatever the number of rows.
pub fn plain_products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let b = Host::sample(dtype, &[65, 19], 177).upload(device)?;
        let x = Host::sample(dtype, &[TOKENS, 65], 178);
        compare(device, &format!("{dtype:?}"), &x, |x, _, _| Ok(device.matmul(x, &b)?))?;
    }
    Ok(())
}

/// Norms, rotary positions, softmax and gated activations.
pub fn layers_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let x = Host::sample(dtype, &[TOKENS, 38], 179);
        let [weight, bias] = [180, 181].map(|seed| Host::sample(dtype, &[38], seed).upload(device));
        let (weight, bias) = (weight?, bias?);
        let place = |name: &str| format!("{name} {dtype:?}");
        compare(device, &place("rms_norm"), &x, |x, _, _| Ok(device.rms_norm(x, Some(&weight), 1e-5)?))?;
        compare(device, &place("layer_norm"), &x, |x, _, _| {
            Ok(device.layer_norm(x, Some(&weight), Some(&bias), 1e-5)?)
        })?;
        compare(device, &place("softmax"), &x, |x, _, _| Ok(device.softmax(x, 1)?))?;
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
            compare(device, &place("gated"), &x, |x, _, _| Ok(device.gated(x, activation)?))?;
        }
        let positions = Host::sample_indices(&[TOKENS], 500, 182);
        let frequencies = device.upload_f32(&[1.0, 0.3, 0.1, 0.03, 0.01], &[5])?;
        let rope = Rope { frequencies, interleaved: false, scale: 1.0 };
        let x = Host::sample(dtype, &[TOKENS, 2, 11], 183);
        compare(device, &place("rope"), &x, |x, first, end| {
            Ok(device.rope(x.clone(), &rope, &alone(device, &positions, first, end)?)?)
        })?;
    }
    Ok(())
}

/// Elementwise functions give one result for one operand, in the body and in the tail of a vector loop.
pub fn elements_at_any_place(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let x = Host::sample(dtype, &[TOKENS], 184).map(|x| x.abs() + 0.1).rounded(dtype);
        for op in Unary::ALL.into_iter().filter(|op| op.takes(dtype)) {
            compare(device, &format!("{op:?} {dtype:?}"), &x, |x, _, _| Ok(device.unary(op, x.clone())?))?;
        }
        let y = Host::sample(dtype, &[TOKENS], 185);
        for op in [Binary::Add, Binary::Multiply, Binary::Divide, Binary::Power] {
            compare(device, &format!("{op:?} {dtype:?}"), &x, |x, first, end| {
                Ok(device.binary(op, x.clone(), &alone(device, &y, first, end)?)?)
            })?;
        }
    }
    Ok(())
}

/// Sums of f32 along each axis are those of a plain loop in ascending order, bit for bit, from any storage.
pub fn reductions_in_order(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let host = Host::sample(Dtype::F32, &[9, 131, 3], 186);
    for axis in 0..3 {
        let extent = host.shape[axis];
        let sum = |index: &[usize]| {
            let values = (0..extent).map(|i| host.at(&with(index, axis, i)) as f32);
            f64::from(values.fold(0.0f32, |sum, x| sum + x))
        };
        let expected = Host::build(Dtype::F32, &with(&host.shape, axis, 1), sum);
        for (form, x) in host.forms(device)? {
            let place = format!("axis {axis}, {form}");
            same(place, device, &device.reduce(Reduce::Sum, &x, axis)?, &expected)?;
        }
    }
    Ok(())
}
