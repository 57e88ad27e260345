//! Operations that look at the same elements in another way; they copy only where no strides can say it.

use crate::device::CpuDevice;
use crate::layout::Layout;
use std::ops::Range;
use tandem_contracts::tensor::{Dtype, Result, Tensor, shape};

pub(crate) fn view(device: &CpuDevice, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    let source = device.value("view", x)?;
    let shape = shape::view(x, dtype)?;
    if dtype == source.dtype {
        return Ok(x.clone());
    }
    let mut source = device.contiguous("view", source)?;
    if !(source.layout.offset() * source.dtype.size()).is_multiple_of(dtype.size()) {
        source = device.settle(device.copy("view", &source)?);
    }
    let offset = source.layout.offset() * source.dtype.size() / dtype.size();
    Ok(device.share(&source, Layout::contiguous(shape, offset), dtype))
}

pub(crate) fn reshape(device: &CpuDevice, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let source = device.value("reshape", x)?;
    shape::reshape(source.layout.shape(), shape)?;
    if let Some(layout) = source.layout.reshape(shape) {
        return Ok(device.share(source, layout, source.dtype));
    }
    let mut draft = device.copy("reshape", source)?;
    draft.layout = Layout::contiguous(shape, 0);
    Ok(device.finish(draft))
}

pub(crate) fn transpose(device: &CpuDevice, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let source = device.value("transpose", x)?;
    shape::transpose(source.layout.shape(), axes)?;
    Ok(device.share(source, source.layout.transpose(axes), source.dtype))
}

pub(crate) fn broadcast(device: &CpuDevice, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let source = device.value("broadcast", x)?;
    shape::broadcast_to(source.layout.shape(), shape)?;
    Ok(device.share(source, source.layout.broadcast(shape), source.dtype))
}

pub(crate) fn slice(device: &CpuDevice, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
    let source = device.value("slice", x)?;
    shape::slice(source.layout.shape(), ranges)?;
    Ok(device.share(source, source.layout.slice(ranges), source.dtype))
}
