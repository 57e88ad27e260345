//! Rules of layout, indexing and elementwise operations.

use super::{axis as extent, elements, require_dtype, require_float, require_same_dtype, require_shape};
use crate::tensor::{Binary, Dtype, Error, Reduce, Result, Scalar, Tensor, Unary};
use std::ops::Range;

/// Checks an upload: the bytes are exactly the elements. Gives the number of elements.
///
/// # Errors
/// Too many elements, or bytes of another length.
pub fn upload(bytes: usize, dtype: Dtype, shape: &[usize]) -> Result<usize> {
    let count = elements("upload", shape)?;
    if bytes == count * dtype.size() {
        return Ok(count);
    }
    Err(Error::shape(
        "upload",
        format!("{dtype:?} {shape:?} is {} bytes, got: {bytes}", count * dtype.size()),
    ))
}

/// Checks that `value` can fill a tensor of `dtype`.
///
/// # Errors
/// A float into an integer tensor, or a truth value into numbers, or the reverse.
pub fn scalar(operation: &'static str, value: Scalar, dtype: Dtype) -> Result<()> {
    let fits = match value {
        Scalar::Float(_) => dtype.is_float(),
        Scalar::Int(_) => dtype != Dtype::Bool,
        Scalar::Bool(_) => dtype == Dtype::Bool,
    };
    if fits {
        Ok(())
    } else {
        Err(Error::dtype(operation, format!("{value:?} does not fit dtype: {dtype:?}")))
    }
}

/// Checks a count from `start` in `i32`.
///
/// # Errors
/// The last number does not fit.
pub fn arange(start: i32, count: usize) -> Result<()> {
    let fits = count == 0 || i32::try_from(count - 1).is_ok_and(|steps| start.checked_add(steps).is_some());
    if fits {
        Ok(())
    } else {
        Err(Error::index("arange", format!("{count} numbers do not fit from: {start}")))
    }
}

/// Result of reading the bytes of `x` as `dtype`: the last axis grows or shrinks.
///
/// # Errors
/// No axis, booleans, or a last axis whose bytes are no multiple of the new size.
pub fn view(x: &Tensor, dtype: Dtype) -> Result<Vec<usize>> {
    let mut shape = x.shape().to_vec();
    let Some(width) = shape.last_mut() else {
        return Err(Error::shape("view", "needs at least one axis"));
    };
    if dtype == Dtype::Bool || x.dtype() == Dtype::Bool {
        return Err(Error::dtype("view", "booleans have no other view"));
    }
    let bytes = *width * x.dtype().size();
    if !bytes.is_multiple_of(dtype.size()) {
        return Err(Error::shape(
            "view",
            format!("{bytes} bytes are no whole number of elements: {dtype:?}"),
        ));
    }
    *width = bytes / dtype.size();
    Ok(shape)
}

/// The shape that two operands broadcast to.
///
/// # Errors
/// Extents that differ and are not 1.
pub fn broadcast(operation: &'static str, a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at =
        |shape: &[usize], i: usize| if i + shape.len() < rank { 1 } else { shape[i + shape.len() - rank] };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::shape(operation, format!("shapes do not broadcast: {a:?} and {b:?}"))),
        })
        .collect()
}

/// Checks that `from` broadcasts to exactly `to`.
///
/// # Errors
/// It does not.
pub fn broadcast_to(from: &[usize], to: &[usize]) -> Result<()> {
    elements("broadcast", to)?;
    if broadcast("broadcast", from, to)? == to {
        return Ok(());
    }
    Err(Error::shape("broadcast", format!("{from:?} does not broadcast to: {to:?}")))
}

/// Checks a reshape.
///
/// # Errors
/// The number of elements differs.
pub fn reshape(from: &[usize], to: &[usize]) -> Result<()> {
    if elements("reshape", from)? == elements("reshape", to)? {
        return Ok(());
    }
    Err(Error::shape("reshape", format!("{from:?} has not as many elements as: {to:?}")))
}

/// Result of a permutation of axes.
///
/// # Errors
/// `axes` is no permutation.
pub fn transpose(shape: &[usize], axes: &[usize]) -> Result<Vec<usize>> {
    let mut seen = vec![false; shape.len()];
    let permutes = axes.len() == shape.len()
        && axes.iter().all(|&axis| axis < shape.len() && !std::mem::replace(&mut seen[axis], true));
    if !permutes {
        return Err(Error::shape("transpose", format!("no permutation of {} axes: {axes:?}", shape.len())));
    }
    Ok(axes.iter().map(|&axis| shape[axis]).collect())
}

/// Result of joining tensors along an axis.
///
/// # Errors
/// None given, dtypes differ, or other axes differ.
pub fn concat(xs: &[&Tensor], axis: usize) -> Result<(Vec<usize>, Dtype)> {
    let Some((first, rest)) = xs.split_first() else {
        return Err(Error::shape("concat", "needs at least one operand"));
    };
    let mut shape = first.shape().to_vec();
    extent("concat", &shape, axis)?;
    for x in rest {
        require_same_dtype("concat", first, x)?;
        let mut other = x.shape().to_vec();
        let grown = extent("concat", &other, axis)?;
        other[axis] = first.shape()[axis];
        require_shape("concat", "operands but for the joined axis", &other, first.shape())?;
        shape[axis] += grown;
    }
    elements("concat", &shape)?;
    Ok((shape, first.dtype()))
}

/// Result of padding one axis.
///
/// # Errors
/// No such axis, a value that does not fit, or too many elements.
pub fn pad(x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Vec<usize>> {
    let mut shape = x.shape().to_vec();
    let old = extent("pad", &shape, axis)?;
    scalar("pad", value, x.dtype())?;
    shape[axis] = before
        .checked_add(after)
        .and_then(|grown| grown.checked_add(old))
        .ok_or_else(|| Error::shape("pad", format!("too many elements: {before} + {old} + {after}")))?;
    elements("pad", &shape)?;
    Ok(shape)
}

/// Result of cutting a box out; one range for each axis.
///
/// # Errors
/// Ranges that are missing, reversed, or past an axis.
pub fn slice(shape: &[usize], ranges: &[Range<usize>]) -> Result<Vec<usize>> {
    let fits = ranges.len() == shape.len()
        && ranges.iter().zip(shape).all(|(range, &extent)| range.start <= range.end && range.end <= extent);
    if !fits {
        return Err(Error::index("slice", format!("{ranges:?} is not inside shape: {shape:?}")));
    }
    Ok(ranges.iter().map(ExactSizeIterator::len).collect())
}

/// Checks an update of the box that begins at `start`.
///
/// # Errors
/// Dtypes or ranks differ, or the box is not inside.
pub fn slice_update(x: &Tensor, update: &Tensor, start: &[usize]) -> Result<()> {
    require_same_dtype("slice_update", x, update)?;
    let fits = start.len() == x.shape().len()
        && update.shape().len() == start.len()
        && start
            .iter()
            .zip(update.shape())
            .zip(x.shape())
            .all(|((start, size), extent)| start.checked_add(*size).is_some_and(|end| end <= *extent));
    if fits {
        return Ok(());
    }
    Err(Error::index(
        "slice_update",
        format!("{:?} at {start:?} is not inside shape: {:?}", update.shape(), x.shape()),
    ))
}

/// Result of `take`: the axis is replaced by the axes of the indices.
///
/// # Errors
/// Indices that are not `i32`, no such axis, or an empty axis with indices.
pub fn take(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Vec<usize>> {
    require_dtype("take", indices, Dtype::I32)?;
    let old = extent("take", x.shape(), axis)?;
    if old == 0 && indices.elements() > 0 {
        return Err(Error::index("take", "the axis has no element"));
    }
    let mut shape = x.shape().to_vec();
    shape.splice(axis..=axis, indices.shape().iter().copied());
    elements("take", &shape)?;
    Ok(shape)
}

/// Checks `take_along_axis` and `put_along_axis`: the indices have the shape of `x` but along `axis`.
///
/// # Errors
/// Indices that are not `i32`, another shape, or an empty axis with indices.
pub fn along_axis(operation: &'static str, x: &Tensor, indices: &Tensor, axis: usize) -> Result<()> {
    require_dtype(operation, indices, Dtype::I32)?;
    let old = extent(operation, x.shape(), axis)?;
    let mut needed = x.shape().to_vec();
    needed[axis] = indices.shape().get(axis).copied().unwrap_or(0);
    require_shape(operation, "indices", indices.shape(), &needed)?;
    if old == 0 && indices.elements() > 0 {
        return Err(Error::index(operation, "the axis has no element"));
    }
    Ok(())
}

/// Checks `put_along_axis`: as [`along_axis`], and the values broadcast to the indices.
///
/// # Errors
/// As [`along_axis`], values of another dtype, or values that do not broadcast.
pub fn put_along_axis(x: &Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<()> {
    along_axis("put_along_axis", x, indices, axis)?;
    require_same_dtype("put_along_axis", x, values)?;
    if broadcast("put_along_axis", values.shape(), indices.shape())? == indices.shape() {
        return Ok(());
    }
    let shapes = format!("{:?} and {:?}", values.shape(), indices.shape());
    Err(Error::shape("put_along_axis", format!("values do not broadcast to the indices: {shapes}")))
}

/// Result of a choice between two tensors by a boolean one; all three broadcast.
///
/// # Errors
/// A condition that is not boolean, or operands whose dtypes or shapes do not fit.
pub fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Vec<usize>> {
    require_dtype("select", condition, Dtype::Bool)?;
    require_same_dtype("select", a, b)?;
    broadcast("select", condition.shape(), &broadcast("select", a.shape(), b.shape())?)
}

/// Checks a unary operation.
///
/// # Errors
/// The dtype is not taken.
pub fn unary(op: Unary, x: &Tensor) -> Result<()> {
    if op.takes(x.dtype()) {
        return Ok(());
    }
    Err(Error::dtype("unary", format!("{op:?} does not take: {:?}", x.dtype())))
}

/// Result of a binary operation.
///
/// # Errors
/// Dtypes differ or are not taken, or shapes do not broadcast.
pub fn binary(op: Binary, a: &Tensor, b: &Tensor) -> Result<(Vec<usize>, Dtype)> {
    require_same_dtype("binary", a, b)?;
    if !op.takes(a.dtype()) {
        return Err(Error::dtype("binary", format!("{op:?} does not take: {:?}", a.dtype())));
    }
    Ok((broadcast("binary", a.shape(), b.shape())?, op.gives(a.dtype())))
}

/// Result of a reduction; the axis becomes 1.
///
/// # Errors
/// No such axis, a dtype that is not taken, or an empty axis where the reduction has no neutral element.
pub fn reduce(op: Reduce, x: &Tensor, axis: usize) -> Result<Vec<usize>> {
    let mut shape = x.shape().to_vec();
    let old = extent("reduce", &shape, axis)?;
    match op {
        Reduce::Mean => require_float("reduce", x.dtype())?,
        _ if matches!(x.dtype(), Dtype::Bool) => {
            return Err(Error::dtype("reduce", "takes numbers, got: Bool"));
        }
        _ => {}
    }
    if old == 0 && op != Reduce::Sum {
        return Err(Error::shape("reduce", format!("{op:?} over nothing: {shape:?}")));
    }
    shape[axis] = 1;
    Ok(shape)
}

/// Result of `argmax`; the axis becomes 1.
///
/// # Errors
/// No such axis, an empty one, or a dtype that is not taken.
pub fn argmax(x: &Tensor, axis: usize) -> Result<Vec<usize>> {
    if along("argmax", x, axis, false)? == 0 {
        return Err(Error::shape("argmax", format!("over nothing: {:?}", x.shape())));
    }
    let mut shape = x.shape().to_vec();
    shape[axis] = 1;
    Ok(shape)
}

/// Checks `argpartition`.
///
/// # Errors
/// No such axis, a dtype that is not taken, or a `kth` that is not on the axis.
pub fn argpartition(x: &Tensor, kth: usize, axis: usize) -> Result<()> {
    let extent = along("argpartition", x, axis, false)?;
    if kth < extent {
        return Ok(());
    }
    Err(Error::index("argpartition", format!("the axis has {extent} elements, asked for: {kth}")))
}

/// Checks an operation along one axis of floats (`softmax`) or of numbers (`cumsum`, the `arg` operations).
///
/// # Errors
/// No such axis, or a dtype that is not taken.
pub fn along(operation: &'static str, x: &Tensor, axis: usize, floats: bool) -> Result<usize> {
    if floats {
        require_float(operation, x.dtype())?;
    } else if x.dtype() == Dtype::Bool {
        return Err(Error::dtype(operation, "takes numbers, got: Bool"));
    }
    extent(operation, x.shape(), axis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::ErrorKind;

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(broadcast("t", &[3, 1], &[4]).ok(), Some(vec![3, 4]));
        assert_eq!(broadcast("t", &[], &[2, 0]).ok(), Some(vec![2, 0]));
        assert_eq!(broadcast("t", &[2], &[3]).map_err(|e| e.kind()), Err(ErrorKind::Shape));
        assert!(broadcast_to(&[3, 1], &[3, 4]).is_ok());
        assert!(broadcast_to(&[3, 4], &[3, 1]).is_err());
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        assert!(elements("t", &[usize::MAX, 2]).is_err());
        assert!(reshape(&[1 << 40, 1 << 40], &[1]).is_err());
    }

    #[test]
    fn permutations_only() {
        assert_eq!(transpose(&[2, 3, 4], &[2, 0, 1]).ok(), Some(vec![4, 2, 3]));
        assert!(transpose(&[2, 3], &[0, 0]).is_err());
        assert!(transpose(&[2, 3], &[0]).is_err());
    }
}
