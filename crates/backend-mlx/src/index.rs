//! Indexing.
//!
//! MLX does not look at indices: one out of range reads or writes memory of something else. So each is looked at
//! before: values that came from the host are refused where they do not fit, values that only a graph knows are
//! clamped by the graph.

use crate::{
    device::Mlx,
    error::Outcome,
    value::{Bounds, Value, narrow},
};
use mlx_rs::{Array, ops};
use tandem_contracts::tensor::{Error, Result, Tensor, shape};

/// Indices along an axis, safe to hand to MLX.
pub(crate) struct Indices<'a> {
    array: &'a Array,
    clamp: Option<i32>,
}

impl<'a> Indices<'a> {
    /// Looks at indices of an axis of `extent`.
    ///
    /// # Errors
    /// A value known to the host is out of range, or the handle is foreign.
    pub(crate) fn new(
        mlx: &Mlx,
        operation: &'static str,
        indices: &'a Tensor,
        extent: usize,
    ) -> Result<Self> {
        let value: &Value = mlx.value(operation, indices)?;
        let clamp = match value.bounds() {
            Some(bounds) if bounds.within(extent) => None,
            Some(Bounds { least, most, attained: true }) if indices.elements() > 0 => {
                let wrong = if least < 0 { least } else { most };
                return Err(Error::index(operation, format!("not below {extent}: {wrong}")));
            }
            _ => Some(narrow(extent).saturating_sub(1)),
        };
        Ok(Self { array: value.array(), clamp })
    }

    /// The indices, all in range.
    pub(crate) fn array(&self) -> Outcome<Array> {
        match self.clamp {
            None => Ok(self.array.clone()),
            Some(last) => {
                let raised = ops::maximum(self.array, Array::from_int(0))?;
                ops::minimum(raised, Array::from_int(last))
            }
        }
    }
}

pub(crate) fn take(mlx: &Mlx, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
    let shape = shape::take(x, indices, axis)?;
    let value = mlx.value("take", x)?;
    let indices = Indices::new(mlx, "take", indices, x.shape()[axis])?;
    mlx.bounded("take", (shape, x.dtype()), value.bounds().map(Bounds::of_part), |_| {
        value.array().take_axis(indices.array()?, narrow(axis))
    })
}

pub(crate) fn take_along_axis(mlx: &Mlx, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
    shape::along_axis("take_along_axis", x, indices, axis)?;
    let value = mlx.value("take_along_axis", x)?;
    let shape = indices.shape().to_vec();
    let indices = Indices::new(mlx, "take_along_axis", indices, x.shape()[axis])?;
    mlx.bounded("take_along_axis", (shape, x.dtype()), value.bounds().map(Bounds::of_part), |_| {
        value.array().take_along_axis(indices.array()?, narrow(axis))
    })
}

pub(crate) fn put_along_axis(
    mlx: &Mlx,
    x: Tensor,
    indices: &Tensor,
    values: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    shape::along_axis("put_along_axis", &x, indices, axis)?;
    put_values(&x, indices, values)?;
    let array = mlx.array("put_along_axis", &x)?;
    let values = mlx.array("put_along_axis", values)?;
    let at = Indices::new(mlx, "put_along_axis", indices, x.shape()[axis])?;
    if indices.elements() == 0 {
        return Ok(x);
    }
    mlx.build("put_along_axis", (x.shape().to_vec(), x.dtype()), |_| {
        array.put_along_axis(at.array()?, values, narrow(axis))
    })
}

/// Values to be put have the dtype of the operand, and broadcast to the indices.
fn put_values(x: &Tensor, indices: &Tensor, values: &Tensor) -> Result<()> {
    if values.dtype() != x.dtype() {
        let message = format!("operands differ: {:?} and {:?}", x.dtype(), values.dtype());
        return Err(Error::dtype("put_along_axis", message));
    }
    if shape::broadcast("put_along_axis", values.shape(), indices.shape())? == indices.shape() {
        return Ok(());
    }
    let message = format!("values {:?} do not broadcast to: {:?}", values.shape(), indices.shape());
    Err(Error::shape("put_along_axis", message))
}

pub(crate) fn select(mlx: &Mlx, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = shape::select(condition, a, b)?;
    let condition = mlx.array("select", condition)?;
    let (x, y) = (mlx.array("select", a)?, mlx.array("select", b)?);
    mlx.build("select", (shape, a.dtype()), |_| ops::select(condition, x, y))
}
