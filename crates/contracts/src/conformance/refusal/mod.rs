//! Refusals: what does not fit is an error of the operation itself, with its kind, on every device.

pub mod foreign;
pub mod plain;
pub mod product;
pub mod recurrence;
pub mod span;

use super::{Broken, host::Host};
use crate::tensor::{Device, Dtype, Linear, Rope, Tensor, Weight};
use std::result;

pub(super) fn tensor(device: &Device, dtype: Dtype, shape: &[usize]) -> result::Result<Tensor, Broken> {
    Host::sample(dtype, shape, 230).upload(device)
}

pub(super) fn dense(device: &Device, shape: &[usize]) -> result::Result<Linear, Broken> {
    Ok(device.prepare_linear(&[Weight::Dense(tensor(device, Dtype::F32, shape)?)])?)
}

pub(super) fn rope(device: &Device, frequencies: usize) -> result::Result<Rope, Broken> {
    Ok(Rope { frequencies: tensor(device, Dtype::F32, &[frequencies])?, interleaved: false, scale: 1.0 })
}
