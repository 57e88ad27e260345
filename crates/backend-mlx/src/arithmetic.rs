//! Elementwise arithmetic. MLX donates an operand's memory to the result when nothing else refers to it.

use crate::{
    device::Mlx,
    raw::{self, Bitwise},
    value::native,
};
use mlx_rs::ops;
use tandem_contracts::tensor::{Binary, Dtype, Result, Tensor, Unary, shape};

pub(crate) fn unary(mlx: &Mlx, op: Unary, x: Tensor) -> Result<Tensor> {
    shape::unary(op, &x)?;
    let array = mlx.array("unary", &x)?;
    mlx.build("unary", (x.shape().to_vec(), x.dtype()), |_| match op {
        Unary::Negate => array.negative(),
        Unary::Abs => array.abs(),
        Unary::Square => array.square(),
        Unary::Exp => array.exp(),
        Unary::Log => array.log(),
        Unary::Sqrt => array.sqrt(),
        Unary::Rsqrt => array.rsqrt(),
        Unary::Sigmoid => ops::sigmoid(array),
        Unary::Tanh => ops::tanh(array),
        Unary::Erf => ops::erf(array),
        Unary::Sin => array.sin(),
        Unary::Cos => array.cos(),
        // To no decimals; MLX rounds halves to even.
        Unary::Round => array.round(None),
        Unary::Floor => array.floor(),
        Unary::Not => array.logical_not(),
    })
}

pub(crate) fn binary(mlx: &Mlx, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
    let (shape, dtype) = shape::binary(op, &a, b)?;
    let truth = a.dtype() == Dtype::Bool;
    let (x, y) = (mlx.array("binary", &a)?, mlx.array("binary", b)?);
    mlx.build("binary", (shape, dtype), |stream| match op {
        Binary::Add => x.add(y),
        Binary::Subtract => x.subtract(y),
        Binary::Multiply => x.multiply(y),
        Binary::Divide => x.divide(y),
        Binary::Minimum => ops::minimum(x, y),
        Binary::Maximum => ops::maximum(x, y),
        Binary::Power => x.power(y),
        Binary::And if truth => x.logical_and(y),
        Binary::Or if truth => x.logical_or(y),
        Binary::And => raw::bitwise(Bitwise::And, x, y, stream),
        Binary::Or => raw::bitwise(Bitwise::Or, x, y, stream),
        Binary::ShiftLeft => raw::bitwise(Bitwise::ShiftLeft, x, y, stream),
        Binary::ShiftRight => raw::bitwise(Bitwise::ShiftRight, x, y, stream),
        Binary::Equal => x.eq(y),
        Binary::Less => x.lt(y),
        Binary::LessEqual => x.le(y),
    })
}

/// The dtype in which sums are accumulated: MLX's own kernels keep 16-bit sums in 16 bits on the CPU.
pub(crate) fn accumulator(dtype: Dtype) -> mlx_rs::Dtype {
    native(if dtype.is_float() { Dtype::F32 } else { dtype })
}
