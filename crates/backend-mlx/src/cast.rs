//! Conversion of elements.
//!
//! MLX converts as C++ does, which leaves floats that an integer cannot hold undefined. The port says that they
//! saturate and that NaN becomes 0, so they are brought into range first.

use crate::{device::Mlx, error::Outcome, value::native};
use mlx_rs::{Array, ops};
use tandem_contracts::tensor::{Dtype, Result, Tensor};

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
