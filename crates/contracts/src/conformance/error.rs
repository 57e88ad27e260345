//! Refusals: what does not fit is an error of the operation itself, with its kind, on every device.

use super::{
    Broken, Outcome,
    affine::Codes,
    behaviours,
    expect::{refused, same},
    host::Host,
};
use crate::tensor::{
    Activation, Affine, Binary, Device, Dtype, ErrorKind, Linear, Precision, Quantized, Reduce, Rope, Scalar,
    Tensor, Unary, Weight,
};
use std::result;

behaviours!("error":
    creation_refuses,
    layout_refuses_shapes,
    layout_refuses_dtypes,
    boxes_outside_are_refused,
    indexing_refuses,
    elementwise_refuses,
    reductions_refuse,
    products_refuse,
    quantisation_refuses,
    weights_refuse,
    norms_refuse,
    rope_and_convolution_refuse,
    precisions_that_are_missing_are_refused,
    a_device_works_on_after_a_refusal,
);

const EXACT: Precision = Precision::Exact;

pub(super) fn tensor(device: &Device, dtype: Dtype, shape: &[usize]) -> result::Result<Tensor, Broken> {
    Host::sample(dtype, shape, 230).upload(device)
}

pub(super) fn dense(device: &Device, shape: &[usize]) -> result::Result<Linear, Broken> {
    Ok(device.prepare_linear(&[Weight::Dense(tensor(device, Dtype::F32, shape)?)])?)
}

pub(super) fn rope(device: &Device, frequencies: usize) -> result::Result<Rope, Broken> {
    Ok(Rope { frequencies: tensor(device, Dtype::F32, &[frequencies])?, interleaved: false, scale: 1.0 })
}

/// Bytes that are not the elements, sizes that overflow, fills that do not fit, counts past `i32`.
pub fn creation_refuses(device: &Device) -> Outcome {
    for (bytes, shape) in [(11, &[3][..]), (0, &[1]), (4, &[0]), (4, &[usize::MAX, 2]), (0, &[usize::MAX, 2])]
    {
        let result = device.upload(&vec![0; bytes], Dtype::F32, shape);
        refused(format!("upload {bytes} bytes to {shape:?}"), result, ErrorKind::Shape)?;
    }
    let huge = [usize::MAX / 2, 3];
    refused("full of too many", device.full(Scalar::Int(0), Dtype::F32, &huge), ErrorKind::Shape)?;
    for dtype in Dtype::ALL {
        for (scalar, fits) in [
            (Scalar::Float(1.0), dtype.is_float()),
            (Scalar::Int(1), dtype != Dtype::Bool),
            (Scalar::Bool(true), dtype == Dtype::Bool),
        ] {
            if !fits {
                let result = device.full(scalar, dtype, &[2]);
                refused(format!("full {scalar:?} into {dtype:?}"), result, ErrorKind::Dtype)?;
                let x = tensor(device, dtype, &[2])?;
                let result = device.pad(&x, 0, 1, 1, scalar);
                refused(format!("pad {scalar:?} into {dtype:?}"), result, ErrorKind::Dtype)?;
            }
        }
    }
    refused("arange past i32", device.arange(i32::MAX, 2), ErrorKind::Index)?;
    refused("upload_f32", device.upload_f32(&[1.0], &[2]), ErrorKind::Shape)?;
    refused("upload_i32", device.upload_i32(&[1, 2], &[1]), ErrorKind::Shape)
}

/// Other counts, axes that are not there, permutations that are none, extents that do not match.
pub fn layout_refuses_shapes(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    let odd = tensor(device, Dtype::U8, &[2, 3])?;
    let scalar = tensor(device, Dtype::F32, &[])?;
    let kind = ErrorKind::Shape;
    refused("view of 3 bytes as words", device.view(&odd, Dtype::U32), kind)?;
    refused("view of a scalar", device.view(&scalar, Dtype::U8), kind)?;
    for shape in [&[7][..], &[2, 4], &[], &[0], &[usize::MAX, 2]] {
        refused(format!("reshape to {shape:?}"), device.reshape(&x, shape), kind)?;
    }
    for axes in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2], &[]] {
        refused(format!("transpose by {axes:?}"), device.transpose(&x, axes), kind)?;
    }
    for shape in [&[2, 4][..], &[3], &[3, 3], &[2, 1], &[usize::MAX, 2, 3]] {
        refused(format!("broadcast to {shape:?}"), device.broadcast(&x, shape), kind)?;
    }
    let other = tensor(device, Dtype::F32, &[3, 3])?;
    let flat = tensor(device, Dtype::F32, &[6])?;
    refused("concat of nothing", device.concat(&[], 0), kind)?;
    refused("concat of other extents", device.concat(&[&x, &other], 1), kind)?;
    refused("concat of other ranks", device.concat(&[&x, &flat], 0), kind)?;
    refused("concat along no axis", device.concat(&[&x, &x], 2), kind)?;
    refused("pad along no axis", device.pad(&x, 2, 1, 1, Scalar::Float(0.0)), kind)?;
    refused("pad by too much", device.pad(&x, 0, usize::MAX, 1, Scalar::Float(0.0)), kind)
}

/// Dtypes that differ where they must not, and views of booleans.
pub fn layout_refuses_dtypes(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 4])?;
    let narrow = tensor(device, Dtype::F16, &[2, 4])?;
    let truth = tensor(device, Dtype::Bool, &[2, 4])?;
    let kind = ErrorKind::Dtype;
    refused("view of booleans", device.view(&truth, Dtype::U8), kind)?;
    refused("view as booleans", device.view(&x, Dtype::Bool), kind)?;
    refused("concat", device.concat(&[&x, &narrow], 0), kind)?;
    refused("slice_update", device.slice_update(x, &narrow, &[0, 0]), kind)
}

/// Ranges that are reversed, too many, too few or past the end; updates that do not fit at their start.
pub fn boxes_outside_are_refused(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    let reversed = std::ops::Range { start: 2, end: 1 };
    for ranges in [vec![0..2, 0..4], vec![0..3, 0..3], vec![0..2, reversed], vec![0..2, 0..3, 0..1], vec![]] {
        refused(format!("slice {ranges:?}"), device.slice(&x, &ranges), ErrorKind::Index)?;
    }
    let update = tensor(device, Dtype::F32, &[1, 2])?;
    for start in [&[2, 0][..], &[0, 2], &[0], &[0, 0, 0], &[usize::MAX, 0]] {
        let result = device.slice_update(x.clone(), &update, start);
        refused(format!("slice_update at {start:?}"), result, ErrorKind::Index)?;
    }
    let flat = tensor(device, Dtype::F32, &[2])?;
    refused("slice_update of another rank", device.slice_update(x, &flat, &[0, 0]), ErrorKind::Index)
}

/// Indices that are not `i32` or not of the shape, axes that are not there, choices by numbers.
pub fn indexing_refuses(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    let empty = tensor(device, Dtype::F32, &[0, 3])?;
    let place = device.upload_i32(&[0, 1, 0], &[1, 3])?;
    let value = tensor(device, Dtype::F32, &[1])?;
    for dtype in Dtype::ALL.into_iter().filter(|&dtype| dtype != Dtype::I32) {
        let index = tensor(device, dtype, &[1, 3])?;
        refused(format!("take by {dtype:?}"), device.take(&x, &index, 0), ErrorKind::Dtype)?;
        refused(
            format!("take_along_axis by {dtype:?}"),
            device.take_along_axis(&x, &index, 0),
            ErrorKind::Dtype,
        )?;
        let result = device.put_along_axis(x.clone(), &index, &value, 0);
        refused(format!("put_along_axis by {dtype:?}"), result, ErrorKind::Dtype)?;
    }
    let narrow = tensor(device, Dtype::F16, &[1])?;
    refused("put of another dtype", device.put_along_axis(x.clone(), &place, &narrow, 0), ErrorKind::Dtype)?;
    refused("take along no axis", device.take(&x, &place, 2), ErrorKind::Shape)?;
    refused("take_along_axis, other extents", device.take_along_axis(&x, &place, 1), ErrorKind::Shape)?;
    refused("take_along_axis along no axis", device.take_along_axis(&x, &place, 2), ErrorKind::Shape)?;
    let flat = device.upload_i32(&[0, 1, 1], &[3])?;
    refused("take_along_axis, other ranks", device.take_along_axis(&x, &flat, 0), ErrorKind::Shape)?;
    refused(
        "put_along_axis, other extents",
        device.put_along_axis(x.clone(), &place, &value, 1),
        ErrorKind::Shape,
    )?;
    let many = tensor(device, Dtype::F32, &[2, 3])?;
    refused("put of too many values", device.put_along_axis(x.clone(), &place, &many, 0), ErrorKind::Shape)?;
    refused("take from nothing", device.take(&empty, &place, 0), ErrorKind::Index)?;
    refused("take_along_axis from nothing", device.take_along_axis(&empty, &place, 0), ErrorKind::Index)?;
    refused("put into nothing", device.put_along_axis(empty.clone(), &place, &value, 0), ErrorKind::Index)?;

    let truth = tensor(device, Dtype::Bool, &[2, 3])?;
    let other = tensor(device, Dtype::F32, &[2])?;
    refused("select by numbers", device.select(&x, &x, &x), ErrorKind::Dtype)?;
    refused("select of two dtypes", device.select(&truth, &x, &narrow), ErrorKind::Dtype)?;
    refused("select of other shapes", device.select(&truth, &x, &other), ErrorKind::Shape)
}

/// Every dtype that an operation does not take, operands of two dtypes, shapes that do not broadcast.
pub fn elementwise_refuses(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let x = tensor(device, dtype, &[2, 3])?;
        for op in Unary::ALL.into_iter().filter(|op| !op.takes(dtype)) {
            refused(format!("{op:?} of {dtype:?}"), device.unary(op, x.clone()), ErrorKind::Dtype)?;
        }
        for op in Binary::ALL.into_iter().filter(|op| !op.takes(dtype)) {
            refused(format!("{op:?} of {dtype:?}"), device.binary(op, x.clone(), &x), ErrorKind::Dtype)?;
        }
    }
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    for op in Binary::ALL {
        let narrow = tensor(device, Dtype::Bf16, &[2, 3])?;
        refused(format!("{op:?} of two dtypes"), device.binary(op, x.clone(), &narrow), ErrorKind::Dtype)?;
    }
    for shape in [&[2][..], &[3, 3], &[0, 3], &[2, 2, 2]] {
        let other = tensor(device, Dtype::F32, shape)?;
        refused(
            format!("Add of {shape:?}"),
            device.binary(Binary::Add, x.clone(), &other),
            ErrorKind::Shape,
        )?;
    }
    Ok(())
}

/// Axes that are not there, extremes of nothing, dtypes that have no order or no mean.
pub fn reductions_refuse(device: &Device) -> Outcome {
    let x = tensor(device, Dtype::F32, &[2, 3])?;
    let empty = tensor(device, Dtype::F32, &[0, 3])?;
    for op in [Reduce::Sum, Reduce::Mean, Reduce::Minimum, Reduce::Maximum] {
        refused(format!("{op:?} along no axis"), device.reduce(op, &x, 2), ErrorKind::Shape)?;
        let truth = tensor(device, Dtype::Bool, &[2])?;
        refused(format!("{op:?} of booleans"), device.reduce(op, &truth, 0), ErrorKind::Dtype)?;
        if op != Reduce::Sum {
            refused(format!("{op:?} of nothing"), device.reduce(op, &empty, 0), ErrorKind::Shape)?;
        }
    }
    for dtype in Dtype::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let integers = tensor(device, dtype, &[2])?;
        refused(format!("Mean of {dtype:?}"), device.reduce(Reduce::Mean, &integers, 0), ErrorKind::Dtype)?;
        refused(format!("softmax of {dtype:?}"), device.softmax(&integers, 0), ErrorKind::Dtype)?;
    }
    let truth = tensor(device, Dtype::Bool, &[2])?;
    refused("cumsum of booleans", device.cumsum(&truth, 0), ErrorKind::Dtype)?;
    refused("argmax of booleans", device.argmax(&truth, 0), ErrorKind::Dtype)?;
    refused("argsort of booleans", device.argsort(&truth, 0), ErrorKind::Dtype)?;
    refused("argpartition of booleans", device.argpartition(&truth, 0, 0), ErrorKind::Dtype)?;
    refused("softmax along no axis", device.softmax(&x, 2), ErrorKind::Shape)?;
    refused("cumsum along no axis", device.cumsum(&x, 2), ErrorKind::Shape)?;
    refused("argmax along no axis", device.argmax(&x, 2), ErrorKind::Shape)?;
    refused("argsort along no axis", device.argsort(&x, 2), ErrorKind::Shape)?;
    refused("argpartition along no axis", device.argpartition(&x, 0, 2), ErrorKind::Shape)?;
    refused("argmax of nothing", device.argmax(&empty, 0), ErrorKind::Shape)?;
    refused("argpartition past the end", device.argpartition(&x, 3, 1), ErrorKind::Index)?;
    refused("argpartition of nothing", device.argpartition(&empty, 0, 0), ErrorKind::Index)
}

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
    refused("linear_add", device.linear_add(residual, &x, &matrix, EXACT), ErrorKind::Shape)?;
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
    let scale = tensor(device, Dtype::F32, &[32])?;
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
    }
    Ok(())
}

/// Operands of a refused call keep their values, and the next call is served.
pub fn a_device_works_on_after_a_refusal(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[2, 3], 232);
    let x = host.upload(device)?;
    let other = tensor(device, Dtype::F32, &[5])?;
    refused("Add", device.binary(Binary::Add, x.clone(), &other), ErrorKind::Shape)?;
    refused("slice_update", device.slice_update(x.clone(), &other, &[0, 0]), ErrorKind::Index)?;
    same("x", device, &x, &host)?;
    same("doubled", device, &device.binary(Binary::Add, x.clone(), &x)?, &host.map(|x| 2.0 * x))
}
