//! Refusals of creation, layout, indexing, elementwise operations and reductions.

use super::tensor;
use crate::{
    conformance::{
        Outcome, behaviours,
        expect::{refused, same},
        host::Host,
    },
    tensor::{Binary, Device, Dtype, ErrorKind, Reduce, Scalar, Unary},
};

behaviours!("refusal":
    creation_refuses,
    layout_refuses_shapes,
    layout_refuses_dtypes,
    boxes_outside_are_refused,
    indexing_refuses,
    elementwise_refuses,
    reductions_refuse,
    a_device_works_on_after_a_refusal,
);

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
