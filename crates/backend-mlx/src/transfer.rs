//! Creation of tensors, and the way in and out of the device.

use crate::{
    device::Mlx,
    error::Outcome,
    raw,
    value::{Bounds, dims, narrow, native},
};
use half::{bf16, f16};
use mlx_rs::{Array, ArrayElement, error::AsSliceError, ops};
use tandem_contracts::tensor::{Dtype, Element, Error, ErrorKind, Result, Scalar, Tensor, shape};

pub(crate) fn upload(mlx: &Mlx, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    shape::upload(bytes.len(), dtype, shape)?;
    let extents = dims("upload", shape)?;
    if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err(Error::new(ErrorKind::Data, "upload", "booleans are bytes 0 and 1"));
    }
    let bounds = match dtype {
        Dtype::I32 => Bounds::of(bytes.chunks_exact(4).map(i32::read)),
        _ => None,
    };
    mlx.bounded("upload", (shape.to_vec(), dtype), bounds, |_| {
        raw::copy_in(bytes, &extents, native(dtype), dtype.size())
    })
}

pub(crate) fn download(mlx: &Mlx, x: &Tensor) -> Result<Vec<u8>> {
    let array = mlx.array("download", x)?;
    if x.elements() == 0 {
        return Ok(Vec::new());
    }
    mlx.evaluate("download", [array])?;
    let read = match x.dtype() {
        Dtype::F32 => bytes::<f32>,
        Dtype::F16 => bytes::<f16>,
        Dtype::Bf16 => bytes::<bf16>,
        Dtype::I32 => bytes::<i32>,
        Dtype::U32 => bytes::<u32>,
        Dtype::I8 => bytes::<i8>,
        Dtype::U8 => bytes::<u8>,
        Dtype::Bool => bytes::<bool>,
    };
    let missing = || Error::new(ErrorKind::Device, "download", "mlx holds no data of the tensor");
    match mlx.run("download", |_| read(array))? {
        Some(bytes) => Ok(bytes),
        // A view: rows of a transposed or broadcast array do not lie one after the other.
        None => mlx.run("download", |_| read(&array.contiguous()?))?.ok_or_else(missing),
    }
}

/// The bytes of an array whose elements lie in row-major order, none of any other.
fn bytes<E: ArrayElement + Element>(array: &Array) -> Outcome<Option<Vec<u8>>> {
    match array.try_as_slice::<E>() {
        Ok(elements) => {
            let mut bytes = Vec::with_capacity(size_of_val(elements));
            elements.iter().for_each(|&element| element.write(&mut bytes));
            Ok(Some(bytes))
        }
        Err(AsSliceError::Exception(exception)) => Err(exception),
        Err(_) => Ok(None),
    }
}

pub(crate) fn full(mlx: &Mlx, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    shape::scalar("full", value, dtype)?;
    shape::elements("full", shape)?;
    let extents = dims("full", shape)?;
    let bounds = match (value, dtype) {
        (Scalar::Int(value), Dtype::I32) => Bounds::of([value]),
        _ => None,
    };
    mlx.bounded("full", (shape.to_vec(), dtype), bounds, |_| {
        ops::broadcast_to(number(value, dtype)?, &extents)
    })
}

/// An array of no axes.
pub(crate) fn number(value: Scalar, dtype: Dtype) -> Outcome<Array> {
    let number = match value {
        Scalar::Float(value) => Array::from_f32(value),
        Scalar::Int(value) => Array::from_int(value),
        Scalar::Bool(value) => Array::from_bool(value),
    };
    number.as_dtype(native(dtype))
}

pub(crate) fn arange(mlx: &Mlx, start: i32, count: usize) -> Result<Tensor> {
    shape::elements("arange", &[count])?;
    dims("arange", &[count])?;
    let last = i64::from(start) + i64::from(narrow(count)) - 1;
    let Ok(last) = i32::try_from(last) else {
        return Err(Error::index("arange", format!("the last one exceeds {}: {last}", i32::MAX)));
    };
    let bounds = Bounds::of([start, last]);
    mlx.bounded("arange", (vec![count], Dtype::I32), bounds, |_| {
        // MLX takes the ends as doubles, which hold every `i32` and the one after.
        ops::arange::<f64, i32>(f64::from(start), f64::from(last) + 1.0, 1.0)
    })
}
