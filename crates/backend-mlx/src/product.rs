//! Products of plain and of affine quantised tensors.

use crate::{
    device::Mlx,
    error::Outcome,
    transfer::number,
    value::{dims, narrow},
};
use mlx_rs::{Array, ops};
use tandem_contracts::tensor::{Affine, Dtype, Quantized, Result, Scalar, Tensor, shape};

pub(crate) fn matmul(mlx: &Mlx, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = shape::matmul(a, b)?;
    let (x, y) = (mlx.array("matmul", a)?, mlx.array("matmul", b)?);
    let extents = dims("matmul", &shape)?;
    mlx.build("matmul", (shape, a.dtype()), |_| {
        if a.elements() == 0 || b.elements() == 0 {
            return zeros(a.dtype(), &extents);
        }
        x.matmul(y)
    })
}

/// Sums of no products.
pub(crate) fn zeros(dtype: Dtype, extents: &[i32]) -> Outcome<Array> {
    ops::broadcast_to(number(Scalar::Int(0), dtype)?, extents)
}

/// Bits and group as MLX takes them.
pub(crate) fn parameters(format: Affine) -> (i32, i32) {
    (i32::from(format.group), i32::from(format.bits))
}

/// MLX quantises matrices only; one row is a matrix of one.
fn as_matrix(array: &Array) -> Outcome<Array> {
    if array.ndim() < 2 { array.expand_dims(0) } else { Ok(array.clone()) }
}

pub(crate) fn quantize(mlx: &Mlx, x: &Tensor, format: Affine) -> Result<Quantized> {
    let (codes, scales) = shape::quantize(x, format)?;
    let array = mlx.array("quantize", x)?;
    let (group, bits) = parameters(format);
    let planes = if x.elements() == 0 {
        None
    } else {
        Some(mlx.run("quantize", |_| ops::quantize(as_matrix(array)?, group, bits))?)
    };
    let plane = |shape: Vec<usize>, dtype, array: Option<&Array>| {
        let extents: Vec<i32> = shape.iter().map(|&extent| narrow(extent)).collect();
        mlx.build("quantize", (shape, dtype), |_| match array {
            Some(array) => array.reshape(&extents),
            None => zeros(dtype, &extents),
        })
    };
    let planes = planes.as_ref();
    Ok(Quantized {
        codes: plane(codes, Dtype::U32, planes.map(|planes| &planes.0))?,
        scales: plane(scales.clone(), x.dtype(), planes.map(|planes| &planes.1))?,
        biases: plane(scales, x.dtype(), planes.map(|planes| &planes.2))?,
        format,
    })
}

pub(crate) fn dequantize(mlx: &Mlx, q: &Quantized) -> Result<Tensor> {
    let shape = shape::dequantize(q)?;
    let [codes, scales, biases] = planes(mlx, "dequantize", q)?;
    let extents = dims("dequantize", &shape)?;
    let (group, bits) = parameters(q.format);
    mlx.build("dequantize", (shape, q.scales.dtype()), |_| {
        let biases = as_matrix(biases)?;
        ops::dequantize(as_matrix(codes)?, as_matrix(scales)?, &biases, group, bits)?.reshape(&extents)
    })
}

/// Codes, scales and biases.
pub(crate) fn planes<'a>(mlx: &Mlx, operation: &'static str, q: &'a Quantized) -> Result<[&'a Array; 3]> {
    Ok([mlx.array(operation, &q.codes)?, mlx.array(operation, &q.scales)?, mlx.array(operation, &q.biases)?])
}
