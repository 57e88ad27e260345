//! Tensors come in, are described, and go out unchanged.

use super::{
    Outcome, behaviours,
    expect::{holds, refused, same},
    host::Host,
};
use crate::tensor::{Device, Dtype, ErrorKind, Precision, Scalar};
use half::{bf16, f16};

behaviours!("creation":
    uploads_come_back_byte_for_byte,
    filled_uploads_are_uploads,
    handles_describe_their_value,
    typed_uploads_and_downloads,
    full_repeats_one_value,
    full_rounds_to_the_dtype,
    arange_counts_in_i32,
);

const SHAPES: [&[usize]; 6] = [&[], &[0], &[1], &[5], &[2, 0, 3], &[2, 3, 5]];

/// Bytes go through a device unchanged: every dtype, zero sizes, infinities, subnormals, NaN and negative zero.
pub fn uploads_come_back_byte_for_byte(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        for shape in SHAPES {
            let bytes = Host::sample(dtype, shape, 1).bytes();
            let x = device.upload(&bytes, dtype, shape)?;
            holds(format!("{dtype:?} {shape:?}"), device.download(&x)? == bytes)?;
        }
    }
    let floats = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE / 8.0, f32::MAX];
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let bytes = Host::new(dtype, &[7], floats.map(f64::from).to_vec()).bytes();
        holds(format!("{dtype:?}"), device.download(&device.upload(&bytes, dtype, &[7])?)? == bytes)?;
    }
    let extremes =
        [(Dtype::I32, f64::from(i32::MIN)), (Dtype::U32, f64::from(u32::MAX)), (Dtype::I8, -128.0)];
    for (dtype, extreme) in extremes {
        let host = Host::new(dtype, &[1], vec![extreme]);
        same(format!("{dtype:?}"), device, &host.upload(device)?, &host)?;
    }
    Ok(())
}

/// Shape, dtype, element count and device can be read off a handle without evaluation.
pub fn handles_describe_their_value(device: &Device) -> Outcome {
    let x = Host::sample(Dtype::F16, &[2, 0, 3], 1).upload(device)?;
    holds("shape and dtype", (x.shape(), x.dtype()) == (&[2, 0, 3][..], Dtype::F16))?;
    holds("elements", x.elements() == 0)?;
    let scalar = device.full(Scalar::Int(3), Dtype::I8, &[])?;
    holds("a scalar has one element", scalar.elements() == 1 && scalar.shape().is_empty())?;
    holds("the handle's device", x.device().id() == device.id())?;
    holds("the storage's device", x.storage().device() == device.id())?;
    holds("the device's own handle", device.device().id() == device.id())?;
    let traits = device.traits();
    holds("every device is exact", traits.precisions.contains(&Precision::Exact))?;
    holds("models compute in floats", traits.compute_dtype.is_float())
}

/// `upload_with` gives what `upload` gives of the bytes that were written, and refuses what `upload` refuses.
pub fn filled_uploads_are_uploads(device: &Device) -> Outcome {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::U32, Dtype::U8, Dtype::Bool] {
        let bytes: Vec<u8> = (0..6 * dtype.size()).map(|i| (i % 2) as u8).collect();
        let x = device.upload_with(dtype, &[2, 3], &mut |out| out.copy_from_slice(&bytes))?;
        holds(
            format!("{dtype:?}"),
            device.download(&x)? == bytes && x.shape() == [2, 3] && x.dtype() == dtype,
        )?;
    }
    let empty = device.upload_with(Dtype::F32, &[2, 0], &mut |out| out.fill(1))?;
    holds("nothing", device.download(&empty)?.is_empty())?;
    let huge = device.upload_with(Dtype::F32, &[usize::MAX, 2], &mut |_| ());
    holds("too many elements", huge.is_err())
}

/// `upload_f32`, `upload_i32` and `to_vec` agree with bytes, and `to_vec` refuses another type.
pub fn typed_uploads_and_downloads(device: &Device) -> Outcome {
    let floats = device.upload_f32(&[1.5, -2.0, 0.25], &[3, 1])?;
    same("upload_f32", device, &floats, &Host::new(Dtype::F32, &[3, 1], vec![1.5, -2.0, 0.25]))?;
    holds("floats", floats.to_vec::<f32>()? == [1.5, -2.0, 0.25])?;
    let integers = device.upload_i32(&[7, -9], &[2])?;
    same("upload_i32", device, &integers, &Host::new(Dtype::I32, &[2], vec![7.0, -9.0]))?;
    holds("integers", integers.to_vec::<i32>()? == [7, -9])?;
    let half = Host::new(Dtype::F16, &[2], vec![0.5, -3.0]).upload(device)?;
    holds("f16", half.to_vec::<f16>()? == [0.5, -3.0].map(f16::from_f32))?;
    let brain = Host::new(Dtype::Bf16, &[2], vec![0.5, -3.0]).upload(device)?;
    holds("bf16", brain.to_vec::<bf16>()? == [0.5, -3.0].map(bf16::from_f32))?;
    let truth = Host::new(Dtype::Bool, &[2], vec![1.0, 0.0]).upload(device)?;
    holds("bool", truth.to_vec::<bool>()? == [true, false])?;
    refused("to_vec of another type", truth.to_vec::<u8>(), ErrorKind::Dtype)
}

/// `full` of each dtype and kind of scalar, at every shape.
pub fn full_repeats_one_value(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let (scalar, value) = match dtype {
            Dtype::Bool => (Scalar::Bool(true), 1.0),
            _ if dtype.is_float() => (Scalar::Float(-2.5), -2.5),
            Dtype::I32 | Dtype::I8 => (Scalar::Int(-7), -7.0),
            _ => (Scalar::Int(200), 200.0),
        };
        for shape in SHAPES {
            let expected = Host::build(dtype, shape, |_| value);
            same(format!("{dtype:?} {shape:?}"), device, &device.full(scalar, dtype, shape)?, &expected)?;
        }
    }
    let expected = Host::build(Dtype::F32, &[2], |_| 3.0);
    same("an integer into floats", device, &device.full(Scalar::Int(3), Dtype::F32, &[2])?, &expected)?;
    let infinite = device.full(Scalar::Float(f32::NEG_INFINITY), Dtype::F32, &[1])?;
    same("infinity", device, &infinite, &Host::build(Dtype::F32, &[1], |_| f64::NEG_INFINITY))
}

/// A float fill becomes the nearest number of a narrower dtype, halves to even.
pub fn full_rounds_to_the_dtype(device: &Device) -> Outcome {
    // 1 + 2^-11 lies half way between two f16 numbers, 1 + 2^-8 between two bf16 numbers: both go to the even 1.
    for (dtype, value, rounded) in [
        (Dtype::F16, 1.0 + 2f32.powi(-11), 1.0),
        (Dtype::F16, 1.0 + 3.0 * 2f32.powi(-11), 1.0 + 2f64.powi(-9)),
        (Dtype::Bf16, 1.0 + 2f32.powi(-8), 1.0),
        (Dtype::Bf16, 1.0 + 3.0 * 2f32.powi(-8), 1.0 + 2f64.powi(-6)),
        (Dtype::F16, 1e6, f64::INFINITY),
    ] {
        let x = device.full(Scalar::Float(value), dtype, &[2])?;
        same(format!("{value} as {dtype:?}"), device, &x, &Host::build(dtype, &[2], |_| rounded))?;
    }
    Ok(())
}

/// `arange` counts up by one, also from below zero and not at all.
pub fn arange_counts_in_i32(device: &Device) -> Outcome {
    for (start, count) in [(0, 7), (-3, 5), (1000, 1), (5, 0), (i32::MAX - 1, 2)] {
        let expected = Host::build(Dtype::I32, &[count], |index| f64::from(start) + index[0] as f64);
        same(format!("{start}, {count}"), device, &device.arange(start, count)?, &expected)?;
    }
    Ok(())
}
