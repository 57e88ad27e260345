//! Creation, transfer and evaluation.

use crate::device::CpuDevice;
use crate::number::{Number, Truth, with_number, with_size};
use tandem_contracts::tensor::{Dtype, Result, Scalar, Tensor, shape};

pub(crate) fn upload(device: &CpuDevice, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    shape::upload(bytes.len(), dtype, shape)?;
    upload_with(device, dtype, shape, &mut |own| own.copy_from_slice(bytes))
}

pub(crate) fn upload_with(
    device: &CpuDevice,
    dtype: Dtype,
    shape: &[usize],
    fill: &mut dyn FnMut(&mut [u8]),
) -> Result<Tensor> {
    let mut draft = device.fresh("upload", dtype, shape)?;
    fill(draft.block.of_mut::<u8>());
    if dtype == Dtype::Bool {
        draft.elements::<Truth>().iter_mut().for_each(|x| *x = x.holds().into());
    } else if cfg!(target_endian = "big") {
        // The bytes are little-endian, elements are as the machine has them.
        let size = dtype.size();
        draft.block.of_mut::<u8>().chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Ok(device.finish(draft))
}

pub(crate) fn download(device: &CpuDevice, x: &Tensor) -> Result<Vec<u8>> {
    let value = device.contiguous("download", device.value("download", x)?)?;
    let size = value.dtype.size();
    let start = value.layout.offset() * size;
    let bytes = &value.buffer.of::<u8>()[start..start + value.layout.elements() * size];
    let mut bytes = bytes.to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Ok(bytes)
}

pub(crate) fn full(device: &CpuDevice, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    shape::scalar("full", value, dtype)?;
    let mut draft = device.fresh("full", dtype, shape)?;
    with_number!(dtype, T => draft.elements::<T>().fill(T::from_scalar(value)));
    Ok(device.finish(draft))
}

pub(crate) fn arange(device: &CpuDevice, start: i32, count: usize) -> Result<Tensor> {
    shape::arange(start, count)?;
    let mut draft = device.fresh("arange", Dtype::I32, &[count])?;
    draft.elements::<i32>().iter_mut().zip(start..=i32::MAX).for_each(|(x, i)| *x = i);
    Ok(device.finish(draft))
}

pub(crate) fn concat(device: &CpuDevice, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
    device.own("concat", xs)?;
    let (shape, dtype) = shape::concat(xs, axis)?;
    let mut start = vec![0; shape.len()];
    let mut draft = device.fresh("concat", dtype, &shape)?;
    for x in xs {
        super::copy::scatter(device.value("concat", x)?, &mut draft, &start);
        start[axis] += x.shape()[axis];
    }
    Ok(device.finish(draft))
}

/// Elements added on both sides of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    pub(crate) axis: usize,
    pub(crate) before: usize,
    pub(crate) after: usize,
}

pub(crate) fn pad(device: &CpuDevice, x: &Tensor, margin: Margin, value: Scalar) -> Result<Tensor> {
    let source = device.value("pad", x)?;
    let shape = shape::pad(x, margin.axis, margin.before, margin.after, value)?;
    let mut start = vec![0; shape.len()];
    start[margin.axis] = margin.before;
    let mut draft = device.fresh("pad", x.dtype(), &shape)?;
    with_number!(x.dtype(), T => draft.elements::<T>().fill(T::from_scalar(value)));
    super::copy::scatter(source, &mut draft, &start);
    Ok(device.finish(draft))
}

pub(crate) fn slice_update(
    device: &CpuDevice,
    x: Tensor,
    update: &Tensor,
    start: &[usize],
) -> Result<Tensor> {
    device.own("slice_update", &[&x, update])?;
    shape::slice_update(&x, update, start)?;
    let mut draft = device.take_writable("slice_update", x)?;
    super::copy::scatter(device.value("slice_update", update)?, &mut draft, start);
    Ok(device.finish(draft))
}

pub(crate) fn cast(device: &CpuDevice, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
    let source = device.value("cast", x)?;
    if dtype == source.dtype {
        return Ok(x.clone());
    }
    let mut draft = device.fresh("cast", dtype, source.layout.shape())?;
    super::copy::cast(&device.pool, source, &mut draft);
    Ok(device.finish(draft))
}

pub(crate) fn select(device: &CpuDevice, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    device.own("select", &[condition, a, b])?;
    let shape = shape::select(condition, a, b)?;
    let [condition, a, b] =
        [device.value("select", condition)?, device.value("select", a)?, device.value("select", b)?];
    let strides = [condition, a, b].map(|x| x.layout.strides_for(&shape));
    let walk = crate::layout::Walk::new(&shape, [&strides[0], &strides[1], &strides[2]]);
    let mut draft = device.fresh("select", a.dtype, &shape)?;
    with_size!(a.dtype, T => {
        let (condition, a, b) = (condition.read::<Truth>(), a.read::<T>(), b.read::<T>());
        let mut to = draft.elements::<T>().iter_mut();
        walk.visit(0..walk.runs(), |[c, x, y], inner| {
            let [c_step, x_step, y_step] = inner.strides;
            for (i, to) in to.by_ref().take(inner.count).enumerate() {
                let holds = condition[c + i * c_step].holds();
                *to = if holds { a[x + i * x_step] } else { b[y + i * y_step] };
            }
        });
    });
    Ok(device.finish(draft))
}
