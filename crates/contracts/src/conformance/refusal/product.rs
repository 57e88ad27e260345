//! Refusals of products, quantisation, prepared weights, norms, rotary positions and convolution.

use super::{dense, rope, tensor};
use crate::{
    conformance::{Broken, Outcome, affine::Codes, behaviours, expect::refused},
    tensor::{Activation, Affine, Device, Dtype, ErrorKind, Precision, Quantized, Rope, Weight},
};
use std::result;

behaviours!("refusal":
    products_refuse,
    quantisation_refuses,
    weights_refuse,
    norms_refuse,
    rope_and_convolution_refuse,
    precisions_that_are_missing_are_refused,
);

const EXACT: Precision = Precision::Exact;

/// Vectors, inner extents that differ, batches that do not broadcast, integers, two dtypes.
pub fn products_refuse(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    for shape in [&[3][..], &[2, 3], &[4, 2], &[]] {
        let other = tensor(device, Dtype::F32, shape)?;
        refused(format!("matmul by {shape:?}"), device.matmul(&x, &other), ErrorKind::Shape)?;
    }
    let (left, right) = (tensor(device, Dtype::F32, &[2, 2, 3])?, tensor(device, Dtype::F32, &[3, 3, 2])?);
    refused("matmul of other batches", device.matmul(&left, &right), ErrorKind::Shape)?;
    for dtype in Dtype::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let integers = tensor(device, dtype, &[3, 3])?;
        refused(format!("matmul of {dtype:?}"), device.matmul(&integers, &integers), ErrorKind::Dtype)?;
    }
    let narrow = tensor(device, Dtype::F16, &[3, 2])?;
    refused("matmul of two dtypes", device.matmul(&x, &narrow), ErrorKind::Dtype)
}

/// Formats that devices do not take, widths that are no whole groups, planes that do not belong together.
pub fn quantisation_refuses(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 256])?;
    for (bits, group) in [(7, 32), (1, 32), (0, 32), (16, 32), (4, 16), (4, 256), (4, 0), (4, 48)] {
        let format = Affine { bits, group };
        refused(format!("{format:?}"), device.quantize(&x, format), ErrorKind::Unsupported)?;
        let planes = Quantized { format, ..device.quantize(&x, Affine { bits: 4, group: 32 })? };
        refused(format!("values of {format:?}"), device.dequantize(&planes), ErrorKind::Unsupported)?;
    }
    let format = Affine { bits: 4, group: 64 };
    for shape in [&[2, 96][..], &[2, 63], &[]] {
        let x = tensor(device, Dtype::F32, shape)?;
        refused(format!("quantize {shape:?}"), device.quantize(&x, format), ErrorKind::Shape)?;
    }
    let integers = tensor(device, Dtype::I32, &[2, 64])?;
    refused("quantize integers", device.quantize(&integers, format), ErrorKind::Dtype)?;
    for (name, planes, kind) in bad_planes(device)? {
        refused(format!("dequantize {name}"), device.dequantize(&planes), kind)?;
        let parts = [Weight::Affine(planes)];
        refused(format!("prepare_linear {name}"), device.prepare_linear(&parts), kind)?;
    }
    Ok(())
}

type BadPlanes = (&'static str, Quantized, ErrorKind);

fn bad_planes(device: &Device) -> result::Result<Vec<BadPlanes>, Broken> {
    let good = Codes::sample(Affine { bits: 4, group: 64 }, Dtype::F32, &[3, 128], 231).upload(device)?;
    let with = |dtype, shape: &[usize]| tensor(device, dtype, shape);
    Ok(vec![
        ("signed codes", Quantized { codes: with(Dtype::I32, &[3, 16])?, ..good.clone() }, ErrorKind::Dtype),
        ("short codes", Quantized { codes: with(Dtype::U32, &[3, 15])?, ..good.clone() }, ErrorKind::Shape),
        (
            "codes of other rows",
            Quantized { codes: with(Dtype::U32, &[2, 16])?, ..good.clone() },
            ErrorKind::Shape,
        ),
        (
            "integer scales",
            Quantized { scales: with(Dtype::I32, &[3, 2])?, ..good.clone() },
            ErrorKind::Dtype,
        ),
        (
            "biases of another dtype",
            Quantized { biases: with(Dtype::F16, &[3, 2])?, ..good.clone() },
            ErrorKind::Dtype,
        ),
        (
            "biases of another shape",
            Quantized { biases: with(Dtype::F32, &[3, 1])?, ..good.clone() },
            ErrorKind::Shape,
        ),
        (
            "another width",
            Quantized { format: Affine { bits: 8, group: 64 }, ..good.clone() },
            ErrorKind::Shape,
        ),
        ("another group", Quantized { format: Affine { bits: 4, group: 32 }, ..good }, ErrorKind::Shape),
    ])
}

/// No parts, parts that do not join, stacks where one matrix is taken, operands that do not fit.
pub fn weights_refuse(device: &Device) -> Outcome {
    let part = |dtype, shape: &[usize]| tensor(device, dtype, shape).map(Weight::Dense);
    refused("no parts", device.prepare_linear(&[]), ErrorKind::Shape)?;
    let parts = [part(Dtype::F32, &[2, 32])?, part(Dtype::F32, &[2, 64])?];
    refused("other inputs", device.prepare_linear(&parts), ErrorKind::Shape)?;
    let parts = [part(Dtype::F32, &[1, 2, 32])?, part(Dtype::F32, &[2, 2, 32])?];
    refused("other experts", device.prepare_linear(&parts), ErrorKind::Shape)?;
    for shape in [&[32][..], &[1, 1, 2, 32]] {
        refused(format!("{shape:?}"), device.prepare_linear(&[part(Dtype::F32, shape)?]), ErrorKind::Shape)?;
    }
    refused("integers", device.prepare_linear(&[part(Dtype::I32, &[2, 32])?]), ErrorKind::Dtype)?;

    let (matrix, stack) = (dense(device, &[3, 32])?, dense(device, &[2, 3, 32])?);
    let choice = device.upload_i32(&[0, 1], &[2, 1])?;
    for shape in [&[2, 31][..], &[32], &[2, 2, 32], &[]] {
        let x = tensor(device, Dtype::F32, shape)?;
        refused(format!("linear of {shape:?}"), device.linear(&x, &matrix, EXACT), ErrorKind::Shape)?;
        let result = device.gather_linear(&x, &stack, &choice, EXACT);
        refused(format!("gather_linear of {shape:?}"), result, ErrorKind::Shape)?;
    }
    let (x, integers) = (tensor(device, Dtype::F32, &[2, 32])?, tensor(device, Dtype::I32, &[2, 32])?);
    refused("linear of a stack", device.linear(&x, &stack, EXACT), ErrorKind::Shape)?;
    refused("linear of integers", device.linear(&integers, &matrix, EXACT), ErrorKind::Dtype)?;
    refused("gather of integers", device.gather_linear(&integers, &stack, &choice, EXACT), ErrorKind::Dtype)?;
    let flat = device.upload_i32(&[0, 1], &[2])?;
    refused("flat choices", device.gather_linear(&x, &stack, &flat, EXACT), ErrorKind::Shape)?;
    let few = device.upload_i32(&[0], &[1, 1])?;
    refused("few choices", device.gather_linear(&x, &stack, &few, EXACT), ErrorKind::Shape)?;
    let unsigned = tensor(device, Dtype::U32, &[2, 1])?;
    refused("unsigned choices", device.gather_linear(&x, &stack, &unsigned, EXACT), ErrorKind::Dtype)?;
    refused("embed of a stack", device.embed(&stack, &flat), ErrorKind::Shape)?;
    refused("embed of a matrix of ids", device.embed(&matrix, &choice), ErrorKind::Shape)?;
    let unsigned = tensor(device, Dtype::U32, &[2])?;
    refused("embed of unsigned ids", device.embed(&matrix, &unsigned), ErrorKind::Dtype)?;
    let residual = tensor(device, Dtype::F32, &[4, 3])?;
    refused("linear_add", device.linear_add(residual.clone(), &x, &matrix, EXACT), ErrorKind::Shape)?;
    let gate_up = (&x, Activation::Silu);
    refused(
        "gated_linear_add",
        device.gated_linear_add(residual, gate_up, &matrix, EXACT),
        ErrorKind::Shape,
    )?;
    let weight = tensor(device, Dtype::F32, &[31])?;
    refused("norm_linear", device.norm_linear(&x, (&weight, 1e-5), &matrix, EXACT), ErrorKind::Shape)
}

/// Weights of another width or dtype, scalars, integers, and epsilons that are no small number.
pub fn norms_refuse(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 8])?;
    let scalar = tensor(device, Dtype::F32, &[])?;
    let integers = tensor(device, Dtype::I32, &[2, 8])?;
    refused("rms_norm of a scalar", device.rms_norm(&scalar, None, 1e-5), ErrorKind::Shape)?;
    refused("layer_norm of a scalar", device.layer_norm(&scalar, None, None, 1e-5), ErrorKind::Shape)?;
    refused("rms_norm of integers", device.rms_norm(&integers, None, 1e-5), ErrorKind::Dtype)?;
    refused("layer_norm of integers", device.layer_norm(&integers, None, None, 1e-5), ErrorKind::Dtype)?;
    for (dtype, shape, kind) in [
        (Dtype::F32, &[7][..], ErrorKind::Shape),
        (Dtype::F32, &[1, 8], ErrorKind::Shape),
        (Dtype::F16, &[8], ErrorKind::Dtype),
    ] {
        let weight = tensor(device, dtype, shape)?;
        let place = format!("{dtype:?} {shape:?}");
        refused(format!("rms_norm by {place}"), device.rms_norm(&x, Some(&weight), 1e-5), kind)?;
        refused(format!("layer_norm by {place}"), device.layer_norm(&x, Some(&weight), None, 1e-5), kind)?;
        refused(format!("layer_norm plus {place}"), device.layer_norm(&x, None, Some(&weight), 1e-5), kind)?;
    }
    for epsilon in [-1e-5, f32::NAN, f32::INFINITY] {
        refused(format!("rms_norm {epsilon}"), device.rms_norm(&x, None, epsilon), ErrorKind::Index)?;
        refused(
            format!("layer_norm {epsilon}"),
            device.layer_norm(&x, None, None, epsilon),
            ErrorKind::Index,
        )?;
    }
    Ok(())
}

/// Heads that are too narrow, positions and frequencies of another form; more taps than positions; odd halves.
pub fn rope_and_convolution_refuse(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3, 8])?;
    let positions = device.upload_i32(&[0, 1], &[2])?;
    let fit = rope(device, 4)?;
    refused("rope of narrow heads", device.rope(x.clone(), &rope(device, 5)?, &positions), ErrorKind::Shape)?;
    let few = device.upload_i32(&[0], &[1])?;
    refused("rope at few positions", device.rope(x.clone(), &fit, &few), ErrorKind::Shape)?;
    let flat = tensor(device, Dtype::F32, &[2, 8])?;
    refused("rope of two axes", device.rope(flat.clone(), &fit, &positions), ErrorKind::Shape)?;
    let square = Rope { frequencies: tensor(device, Dtype::F32, &[2, 2])?, ..fit.clone() };
    refused("rope by a square", device.rope(x.clone(), &square, &positions), ErrorKind::Shape)?;
    let places = tensor(device, Dtype::F32, &[2])?;
    refused("rope at floats", device.rope(x.clone(), &fit, &places), ErrorKind::Dtype)?;
    let narrow = Rope { frequencies: tensor(device, Dtype::F16, &[4])?, ..fit.clone() };
    refused("rope by halves", device.rope(x.clone(), &narrow, &positions), ErrorKind::Dtype)?;
    let integers = tensor(device, Dtype::I32, &[2, 3, 8])?;
    refused("rope of integers", device.rope(integers.clone(), &fit, &positions), ErrorKind::Dtype)?;

    for shape in [&[8, 4][..], &[8, 0], &[7, 2], &[8], &[2, 8]] {
        let weight = tensor(device, Dtype::F32, shape)?;
        refused(format!("conv1d by {shape:?}"), device.conv1d(&x, &weight), ErrorKind::Shape)?;
    }
    let weight = tensor(device, Dtype::F32, &[8, 2])?;
    refused("conv1d of two axes", device.conv1d(&flat, &weight), ErrorKind::Shape)?;
    let narrow = tensor(device, Dtype::F16, &[8, 2])?;
    refused("conv1d of two dtypes", device.conv1d(&x, &narrow), ErrorKind::Dtype)?;
    refused("conv1d of integers", device.conv1d(&integers, &integers), ErrorKind::Dtype)?;

    let odd = tensor(device, Dtype::F32, &[2, 7])?;
    refused("gated odd halves", device.gated(&odd, Activation::Silu), ErrorKind::Shape)?;
    refused("gated of three axes", device.gated(&x, Activation::Gelu), ErrorKind::Shape)?;
    let integers = tensor(device, Dtype::I32, &[2, 8])?;
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
        refused(
            format!("{activation:?} of integers"),
            device.gated(&integers, activation),
            ErrorKind::Dtype,
        )?;
    }
    Ok(())
}

/// A precision that the device does not name is not quietly replaced by another.
pub fn precisions_that_are_missing_are_refused(device: &Device) -> Outcome {
    let matrix = dense(device, &[3, 32])?;
    let x = tensor(device, Dtype::F32, &[2, 32])?;
    let choice = device.upload_i32(&[0, 0], &[2, 1])?;
    let (scale, halves) = (tensor(device, Dtype::F32, &[32])?, tensor(device, Dtype::F32, &[2, 64])?);
    let residual = tensor(device, Dtype::F32, &[2, 3])?;
    for precision in [Precision::Exact, Precision::Fast] {
        if device.traits().precisions.contains(&precision) {
            continue;
        }
        let kind = ErrorKind::Unsupported;
        refused("linear", device.linear(&x, &matrix, precision), kind)?;
        refused("gather_linear", device.gather_linear(&x, &matrix, &choice, precision), kind)?;
        refused("norm_linear", device.norm_linear(&x, (&scale, 1e-5), &matrix, precision), kind)?;
        refused("linear_add", device.linear_add(residual.clone(), &x, &matrix, precision), kind)?;
        let gate_up = (&halves, Activation::Silu);
        let added = device.gated_linear_add(residual.clone(), gate_up, &matrix, precision);
        refused("gated_linear_add", added, kind)?;
    }
    Ok(())
}
