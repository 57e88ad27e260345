//! Norms, rotary positions and convolution: MLX's fused kernels.

use crate::{
    device::Mlx,
    error::Outcome,
    value::{dims, narrow, native},
};
use mlx_rs::{Array, fast, ops};
use tandem_contracts::tensor::{Dtype, Result, Rope, Tensor, shape};

pub(crate) fn rms_norm(mlx: &Mlx, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
    shape::norm("rms_norm", x, &[weight], epsilon)?;
    let array = mlx.array("rms_norm", x)?;
    let weight = weight.map(|weight| mlx.array("rms_norm", weight)).transpose()?;
    mlx.build("rms_norm", (x.shape().to_vec(), x.dtype()), |_| fast::rms_norm(array, weight, epsilon))
}

pub(crate) fn layer_norm(
    mlx: &Mlx,
    x: &Tensor,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    epsilon: f32,
) -> Result<Tensor> {
    shape::norm("layer_norm", x, &[weight, bias], epsilon)?;
    let array = mlx.array("layer_norm", x)?;
    let weight = weight.map(|weight| mlx.array("layer_norm", weight)).transpose()?;
    let bias = bias.map(|bias| mlx.array("layer_norm", bias)).transpose()?;
    mlx.build("layer_norm", (x.shape().to_vec(), x.dtype()), |_| {
        fast::layer_norm(array, weight, bias, epsilon)
    })
}

/// Each token is a sequence of one for MLX, at an offset of its own.
pub(crate) fn rope(mlx: &Mlx, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
    let rotated = shape::rope(&x, rope, positions)?;
    let array = mlx.array("rope", &x)?;
    let frequencies = mlx.array("rope", &rope.frequencies)?;
    let positions = mlx.array("rope", positions)?;
    if rotated == 0 {
        return Ok(x);
    }
    let extents = dims("rope", x.shape())?;
    mlx.build("rope", (x.shape().to_vec(), x.dtype()), |_| {
        // MLX divides positions by what it calls frequencies.
        let periods = frequencies.reciprocal()?;
        let array = scaled(array, rope.scale, narrow(rotated), extents[2])?;
        let tokens = array.expand_dims(2)?;
        let turned =
            fast::rope_dynamic(&tokens, narrow(rotated), rope.interleaved, None, 1.0, positions, &periods)?;
        turned.reshape(&extents)?.as_dtype(native(x.dtype()))
    })
}

/// The first `rotated` elements of each head times `scale`, in f32; rotation keeps the factor.
fn scaled(array: &Array, scale: f32, rotated: i32, width: i32) -> Outcome<Array> {
    if scale == 1.0 {
        return Ok(array.clone());
    }
    let within = ops::arange::<i32, i32>(0, width, 1)?.lt(Array::from_int(rotated))?;
    let factors = ops::select(within, Array::from_f32(scale), Array::from_f32(1.0))?;
    array.as_dtype(native(Dtype::F32))?.multiply(factors)
}

pub(crate) fn conv1d(mlx: &Mlx, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let shape = shape::conv1d(x, weight)?.to_vec();
    let array = mlx.array("conv1d", x)?;
    let taps = mlx.array("conv1d", weight)?;
    mlx.build("conv1d", (shape, x.dtype()), |_| {
        // Depthwise: a group for each channel, whose filter sees one channel.
        ops::conv1d(array, taps.expand_dims(2)?, 1, 0, 1, narrow(weight.shape()[0]))
    })
}
