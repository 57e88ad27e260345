//! Elementwise arithmetic and conversion.
//!
//! MLX gives an operand's memory to the result when nothing else refers to it. It converts as C++ does, which leaves
//! floats that an integer cannot hold undefined; the port says that they saturate and that NaN becomes 0, so they are
//! brought into range first.

use crate::{
    device::Mlx,
    error::Outcome,
    raw::{self, Bitwise},
    value::native,
};
use mlx_rs::{Array, ops};
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
        Unary::Log1p => array.log1p(),
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

pub(crate) fn cast(mlx: &Mlx, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    let array = mlx.array("cast", x)?;
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    mlx.build("cast", (x.shape().to_vec(), dtype), |_| match dtype {
        Dtype::Bool => array.ne(Array::from_int(0)),
        _ if x.dtype().is_float() && dtype.is_integer() => saturate(array, dtype),
        _ => array.as_dtype(native(dtype)),
    })
}

/// Floats to integers: towards zero, into range, NaN to 0.
fn saturate(array: &Array, dtype: Dtype) -> Outcome<Array> {
    let x = array.as_dtype(mlx_rs::Dtype::Float32)?;
    let x = ops::select(x.eq(&x)?, &x, Array::from_f32(0.0))?;
    let (least, most) = range(dtype);
    let within = ops::minimum(ops::maximum(&x, Array::from_f32(least))?, Array::from_f32(most))?;
    let whole = within.as_dtype(native(dtype))?;
    match dtype {
        // The largest value of 32 bits lies between two floats; `most` is the one below it.
        Dtype::I32 => ops::select(x.gt(Array::from_f32(most))?, Array::from_int(i32::MAX), whole),
        Dtype::U32 => ops::select(x.gt(Array::from_f32(most))?, Array::from_slice(&[u32::MAX], &[]), whole),
        _ => Ok(whole),
    }
}

/// The smallest and largest float that an integer dtype holds.
const fn range(dtype: Dtype) -> (f32, f32) {
    match dtype {
        Dtype::I32 => (-2_147_483_648.0, 2_147_483_520.0),
        Dtype::U32 => (0.0, 4_294_967_040.0),
        Dtype::I8 => (-128.0, 127.0),
        _ => (0.0, 255.0),
    }
}
