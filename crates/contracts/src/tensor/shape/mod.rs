//! The rules of shapes and dtypes, written once: every device refuses the same operands with the same words.
//!
//! Each function checks the operands of one operation and gives the shape (and dtype) of its result. An adapter
//! calls it first and may then rely on what it states.

mod layout;
mod model;
mod product;
mod recurrence;
mod turbo;

pub use layout::*;
pub use model::*;
pub use product::*;
pub use recurrence::*;
pub use turbo::*;

use super::{Dtype, Error, Result, Tensor};

/// The extent of `axis`.
///
/// # Errors
/// The tensor has no such axis.
pub fn axis(operation: &'static str, shape: &[usize], axis: usize) -> Result<usize> {
    shape
        .get(axis)
        .copied()
        .ok_or_else(|| Error::shape(operation, format!("no axis {axis} in shape: {shape:?}")))
}

/// The extent of the last axis.
///
/// # Errors
/// The tensor has no axis.
pub fn last(operation: &'static str, shape: &[usize]) -> Result<usize> {
    shape.last().copied().ok_or_else(|| Error::shape(operation, "needs at least one axis"))
}

/// Number of elements, refused where it would overflow.
///
/// # Errors
/// The product does not fit.
pub fn elements(operation: &'static str, shape: &[usize]) -> Result<usize> {
    shape
        .iter()
        .try_fold(1usize, |product, &extent| product.checked_mul(extent))
        .filter(|&count| isize::try_from(count).is_ok_and(|count| count.checked_mul(4).is_some()))
        .ok_or_else(|| Error::shape(operation, format!("too many elements: {shape:?}")))
}

pub(super) fn require_dtype(operation: &'static str, x: &Tensor, dtype: Dtype) -> Result<()> {
    if x.dtype() == dtype {
        return Ok(());
    }
    Err(Error::dtype(operation, format!("takes {dtype:?}, got: {:?}", x.dtype())))
}

pub(super) fn require_float(operation: &'static str, dtype: Dtype) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::dtype(operation, format!("takes floats, got: {dtype:?}")))
}

pub(super) fn require_same_dtype(operation: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    Err(Error::dtype(operation, format!("operands differ: {:?} and {:?}", a.dtype(), b.dtype())))
}

pub(super) fn require_rank(operation: &'static str, shape: &[usize], rank: usize) -> Result<()> {
    if shape.len() == rank {
        return Ok(());
    }
    Err(Error::shape(operation, format!("needs {rank} axes, got: {shape:?}")))
}

pub(super) fn require_shape(
    operation: &'static str,
    what: &str,
    got: &[usize],
    needed: &[usize],
) -> Result<()> {
    if got == needed {
        return Ok(());
    }
    Err(Error::shape(operation, format!("{what} must be {needed:?}, got: {got:?}")))
}

/// That a shape is another one but for its last axis.
pub(super) fn require_extent(
    operation: &'static str,
    what: &str,
    got: &[usize],
    (like, extent): (&[usize], usize),
) -> Result<()> {
    if let ([got @ .., last], [like @ .., _]) = (got, like)
        && got == like
        && *last == extent
    {
        return Ok(());
    }
    require_shape(operation, what, got, &with_last(like, extent))
}

/// A shape with another last axis.
pub(super) fn with_last(shape: &[usize], extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = extent;
    }
    shape
}
