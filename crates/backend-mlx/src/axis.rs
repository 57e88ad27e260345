//! Operations along one axis: reductions, running sums, softmax, order.

use crate::{
    device::Mlx,
    error::Outcome,
    transfer::number,
    value::{Bounds, dims, narrow, native},
};
use mlx_rs::{
    Array,
    ops::{self, indexing},
};
use tandem_contracts::tensor::{Dtype, Error, Reduce, Result, Scalar, Tensor, shape};

pub(crate) fn reduce(mlx: &Mlx, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
    let shape = shape::reduce(op, x, axis)?;
    let array = mlx.array("reduce", x)?;
    let (extents, axis) = (dims("reduce", &shape)?, narrow(axis));
    mlx.build("reduce", (shape, x.dtype()), |_| match op {
        // The sum over nothing; MLX's kernels need not know it.
        Reduce::Sum if x.elements() == 0 => ops::broadcast_to(number(Scalar::Int(0), x.dtype())?, &extents),
        // Sums of narrow integers come widened from MLX; narrowed again they have wrapped.
        Reduce::Sum => accumulated(array, x.dtype(), |array| ops::sum_axis(array, axis, true)),
        Reduce::Mean => accumulated(array, x.dtype(), |array| ops::mean_axis(array, axis, true)),
        Reduce::Minimum => ops::min_axis(array, axis, true),
        Reduce::Maximum => ops::max_axis(array, axis, true),
    })
}

pub(crate) fn cumsum(mlx: &Mlx, x: &Tensor, axis: usize) -> Result<Tensor> {
    shape::along("cumsum", x, axis, false)?;
    let array = mlx.array("cumsum", x)?;
    mlx.build("cumsum", (x.shape().to_vec(), x.dtype()), |_| {
        accumulated(array, x.dtype(), |array| array.cumsum(narrow(axis), None, None))
    })
}

/// Sums floats in f32: MLX's own kernels keep sums of 16 bits in 16 bits on the CPU.
fn accumulated(array: &Array, dtype: Dtype, sum: impl FnOnce(&Array) -> Outcome<Array>) -> Outcome<Array> {
    let accumulator = if dtype.is_float() { Dtype::F32 } else { dtype };
    sum(&array.as_dtype(native(accumulator))?)?.as_dtype(native(dtype))
}

pub(crate) fn softmax(mlx: &Mlx, x: &Tensor, axis: usize) -> Result<Tensor> {
    shape::along("softmax", x, axis, true)?;
    let array = mlx.array("softmax", x)?;
    mlx.build("softmax", (x.shape().to_vec(), x.dtype()), |_| ops::softmax_axis(array, narrow(axis), true))
}

pub(crate) fn argmax(mlx: &Mlx, x: &Tensor, axis: usize) -> Result<Tensor> {
    let extent = shape::along("argmax", x, axis, false)?;
    let array = mlx.array("argmax", x)?;
    let mut shape = x.shape().to_vec();
    shape[axis] = 1;
    if extent == 0 {
        return Err(Error::shape("argmax", format!("the axis has no element: {:?}", x.shape())));
    }
    order(mlx, "argmax", shape, extent, || indexing::argmax_axis(array, narrow(axis), true))
}

pub(crate) fn argsort(mlx: &Mlx, x: &Tensor, axis: usize) -> Result<Tensor> {
    let extent = shape::along("argsort", x, axis, false)?;
    let array = mlx.array("argsort", x)?;
    // MLX's sort is stable and puts NaN last.
    order(mlx, "argsort", x.shape().to_vec(), extent, || ops::argsort_axis(array, narrow(axis)))
}

pub(crate) fn argpartition(mlx: &Mlx, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
    let extent = shape::along("argpartition", x, axis, false)?;
    if kth >= extent {
        return Err(Error::index("argpartition", format!("not below {extent}: {kth}")));
    }
    let array = mlx.array("argpartition", x)?;
    let call = || ops::argpartition_axis(array, narrow(kth), narrow(axis));
    order(mlx, "argpartition", x.shape().to_vec(), extent, call)
}

/// Positions along an axis, which MLX gives as `u32`: the same bits as `i32`.
fn order(
    mlx: &Mlx,
    operation: &'static str,
    shape: Vec<usize>,
    extent: usize,
    call: impl FnOnce() -> Outcome<Array>,
) -> Result<Tensor> {
    mlx.bounded(operation, (shape, Dtype::I32), Some(Bounds::below(extent)), |_| {
        call()?.view_dtype(native(Dtype::I32))
    })
}
