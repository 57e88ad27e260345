//! Layout: the same elements in other places.

use crate::{
    device::Mlx,
    raw,
    transfer::number,
    value::{Bounds, dims, narrow, native},
};
use mlx_rs::{Array, ops};
use std::ops::Range;
use tandem_contracts::tensor::{Dtype, Result, Scalar, Tensor, shape};

pub(crate) fn view(mlx: &Mlx, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    let shape = shape::view(x, dtype)?;
    let array = mlx.array("view", x)?;
    mlx.build("view", (shape, dtype), |_| array.view_dtype(native(dtype)))
}

pub(crate) fn reshape(mlx: &Mlx, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    shape::reshape(x.shape(), shape)?;
    let value = mlx.value("reshape", x)?;
    let extents = dims("reshape", shape)?;
    mlx.bounded("reshape", (shape.to_vec(), x.dtype()), value.bounds(), |_| value.array().reshape(&extents))
}

pub(crate) fn transpose(mlx: &Mlx, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let shape = shape::transpose(x.shape(), axes)?;
    let value = mlx.value("transpose", x)?;
    let axes: Vec<i32> = axes.iter().map(|&axis| narrow(axis)).collect();
    mlx.bounded("transpose", (shape, x.dtype()), value.bounds(), |_| value.array().transpose_axes(&axes))
}

pub(crate) fn broadcast(mlx: &Mlx, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    shape::broadcast_to(x.shape(), shape)?;
    let value = mlx.value("broadcast", x)?;
    let extents = dims("broadcast", shape)?;
    mlx.bounded("broadcast", (shape.to_vec(), x.dtype()), value.bounds(), |_| {
        ops::broadcast_to(value.array(), &extents)
    })
}

pub(crate) fn concat(mlx: &Mlx, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
    let result = shape::concat(xs, axis)?;
    let arrays = xs.iter().map(|x| mlx.array("concat", x)).collect::<Result<Vec<_>>>()?;
    let arrays: Vec<&Array> =
        xs.iter().zip(arrays).filter(|(x, _)| x.elements() > 0).map(|(_, array)| array).collect();
    mlx.build("concat", result, |_| ops::concatenate(&arrays, narrow(axis)))
}

pub(crate) fn pad(
    mlx: &Mlx,
    x: &Tensor,
    axis: usize,
    (before, after): (usize, usize),
    value: Scalar,
) -> Result<Tensor> {
    let shape = shape::pad(x, axis, before, after, value)?;
    let array = mlx.array("pad", x)?;
    let extents = dims("pad", &shape)?;
    let mut widths = vec![(0, 0); shape.len()];
    widths[axis] = (narrow(before), narrow(after));
    mlx.build("pad", (shape, x.dtype()), |_| {
        let value = number(value, x.dtype())?;
        if x.elements() == 0 {
            return ops::broadcast_to(value, &extents);
        }
        ops::pad(array, &widths[..], value, None)
    })
}

pub(crate) fn slice(mlx: &Mlx, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
    let shape = shape::slice(x.shape(), ranges)?;
    let value = mlx.value("slice", x)?;
    let start: Vec<i32> = ranges.iter().map(|range| narrow(range.start)).collect();
    let stop: Vec<i32> = ranges.iter().map(|range| narrow(range.end)).collect();
    mlx.bounded("slice", (shape, x.dtype()), value.bounds().map(Bounds::of_part), |stream| {
        raw::slice(value.array(), &start, &stop, stream)
    })
}

/// MLX writes into the operand's own memory when the graph holds the only reference to it at evaluation: this
/// handle goes with the call, so that is the case unless the caller kept another one, or a view.
pub(crate) fn slice_update(mlx: &Mlx, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor> {
    shape::slice_update(&x, update, start)?;
    let array = mlx.array("slice_update", &x)?;
    let with = mlx.array("slice_update", update)?;
    if update.elements() == 0 {
        return Ok(x);
    }
    let stop: Vec<i32> = start.iter().zip(update.shape()).map(|(at, extent)| narrow(at + extent)).collect();
    let start: Vec<i32> = start.iter().map(|&at| narrow(at)).collect();
    mlx.build("slice_update", (x.shape().to_vec(), x.dtype()), |stream| {
        raw::slice_update(array, with, &start, &stop, stream)
    })
}
