//! Gathering and scattering by index tensors. Indices are checked as they are used.

use crate::device::CpuDevice;
use crate::layout::{Layout, Walk};
use crate::number::with_size;
use crate::value::Value;
use tandem_contracts::tensor::{Error, Result, Tensor, shape};

pub(crate) fn take(device: &CpuDevice, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
    device.own("take", &[x, indices])?;
    let shape = shape::take(x, indices, axis)?;
    let source = device.value("take", x)?;
    let indices = checked(device, "take", indices, x.shape()[axis])?;
    let count = indices.layout.elements();
    let mut draft = device.fresh("take", source.dtype, &shape)?;
    let (rest, _, step) = source.layout.without(axis);
    // The result with the axes of the indices joined.
    let mut joined = x.shape().to_vec();
    joined[axis] = count;
    let (to_rest, _, to_step) = Layout::contiguous(joined, 0).without(axis);
    let walk = Walk::new(rest.shape(), [rest.strides(), to_rest.strides()]);
    with_size!(source.dtype, T => {
        let from = source.read::<T>();
        let to = draft.elements::<T>();
        for (place, &index) in indices.slice::<i32>().unwrap_or_default().iter().enumerate() {
            let (first, to_first) = (index as usize * step, place * to_step);
            walk.visit(0..walk.runs(), |[a, b], inner| {
                let (a, b) = (first + a, to_first + b);
                if inner.strides == [1, 1] {
                    to[b..b + inner.count].copy_from_slice(&from[a..a + inner.count]);
                } else {
                    let [step, to_step] = inner.strides;
                    (0..inner.count).for_each(|i| to[b + i * to_step] = from[a + i * step]);
                }
            });
        }
    });
    Ok(device.finish(draft))
}

/// The indices, contiguous, all within `0..extent`.
pub(crate) fn checked(
    device: &CpuDevice,
    operation: &'static str,
    indices: &Tensor,
    extent: usize,
) -> Result<Value> {
    let indices = device.contiguous(operation, device.value(operation, indices)?)?;
    let wrong = |&&index: &&i32| usize::try_from(index).is_ok_and(|index| index < extent);
    match indices.slice::<i32>().unwrap_or_default().iter().find(|index| !wrong(index)) {
        None => Ok(indices),
        Some(index) => Err(Error::index(operation, format!("no such index among {extent}: {index}"))),
    }
}

/// Loops over the rows along an axis of an operand, the indices, and a third value of the shape of the
/// indices.
struct Along {
    walk: Walk<3>,
    /// Indices of each row.
    extent: usize,
    steps: [usize; 3],
}

impl Along {
    fn new(x: &Layout, indices: &Layout, third: &Layout, axis: usize) -> Self {
        let (x, _, x_step) = x.without(axis);
        let (indices, extent, index_step) = indices.without(axis);
        let (third, _, third_step) = third.without(axis);
        let walk = Walk::new(indices.shape(), [x.strides(), indices.strides(), third.strides()]);
        Self { walk, extent, steps: [x_step, index_step, third_step] }
    }

    /// Calls `each` with the places of the operand's row, of the index and of the third value's element.
    fn visit(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [_, index_step, third_step] = self.steps;
        self.walk.visit(0..self.walk.runs(), |starts, inner| {
            for i in 0..inner.count {
                let [x, index, third] = std::array::from_fn(|n| starts[n] + i * inner.strides[n]);
                (0..self.extent).for_each(|k| each(x, index + k * index_step, third + k * third_step));
            }
        });
    }
}

pub(crate) fn take_along_axis(
    device: &CpuDevice,
    x: &Tensor,
    indices: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    device.own("take_along_axis", &[x, indices])?;
    shape::along_axis("take_along_axis", x, indices, axis)?;
    let source = device.value("take_along_axis", x)?;
    let indices = checked(device, "take_along_axis", indices, x.shape()[axis])?;
    let mut draft = device.fresh("take_along_axis", source.dtype, indices.layout.shape())?;
    let along = Along::new(&source.layout, &indices.layout, &draft.layout, axis);
    let places = indices.read::<i32>();
    with_size!(source.dtype, T => {
        let (from, to) = (source.read::<T>(), draft.elements::<T>());
        along.visit(|x, index, result| to[result] = from[x + places[index] as usize * along.steps[0]]);
    });
    Ok(device.finish(draft))
}

pub(crate) fn put_along_axis(
    device: &CpuDevice,
    x: Tensor,
    (indices, values): (&Tensor, &Tensor),
    axis: usize,
) -> Result<Tensor> {
    device.own("put_along_axis", &[&x, indices, values])?;
    shape::put_along_axis(&x, indices, values, axis)?;
    let values = device.value("put_along_axis", values)?;
    let indices = checked(device, "put_along_axis", indices, x.shape()[axis])?;
    let spread = values.layout.broadcast(indices.layout.shape());
    let mut draft = device.take_contiguous("put_along_axis", x)?;
    let along = Along::new(&draft.layout, &indices.layout, &spread, axis);
    let places = indices.read::<i32>();
    with_size!(draft.dtype, T => {
        let (from, to) = (values.read::<T>(), draft.elements::<T>());
        along.visit(|x, index, value| to[x + places[index] as usize * along.steps[0]] = from[value]);
    });
    Ok(device.finish(draft))
}
