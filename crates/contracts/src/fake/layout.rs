//! Kernels that move elements: layout and indexing.

use super::{
    node::{Failure, Outcome},
    value::{Around, Value, offset, repeated, strides},
};
use std::ops::Range;

pub(super) fn transpose(x: &Value, axes: &[usize], shape: &[usize]) -> Value {
    let own = strides(&x.shape);
    let strides: Vec<usize> = axes.iter().map(|&axis| own[axis]).collect();
    x.gather(shape, |i| offset(i, shape, &strides))
}

pub(super) fn broadcast(x: &Value, shape: &[usize]) -> Value {
    let strides = repeated(&x.shape, shape);
    x.gather(shape, |i| offset(i, shape, &strides))
}

pub(super) fn concat(xs: &[&Value], axis: usize, shape: &[usize]) -> Value {
    let mut result = Value::zeros(xs[0].dtype, shape);
    let to = Around::new(shape, axis);
    let mut begin = 0;
    for x in xs {
        let from = Around::new(&x.shape, axis);
        for line in 0..from.lines() {
            for i in 0..from.extent {
                result.set_element(to.at(line, begin + i), x.element(from.at(line, i)));
            }
        }
        begin += from.extent;
    }
    result
}

pub(super) fn slice(x: &Value, ranges: &[Range<usize>]) -> Value {
    let shape: Vec<usize> = ranges.iter().map(ExactSizeIterator::len).collect();
    let strides = strides(&x.shape);
    let first: usize = ranges.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
    x.gather(&shape, |i| first + offset(i, &shape, &strides))
}

pub(super) fn slice_update(mut x: Value, update: &Value, start: &[usize]) -> Value {
    let strides = strides(&x.shape);
    let first: usize = start.iter().zip(&strides).map(|(start, stride)| start * stride).sum();
    for i in 0..update.elements() {
        x.set_element(first + offset(i, &update.shape, &strides), update.element(i));
    }
    x
}

/// An index that must be below `extent`.
fn checked(operation: &'static str, index: i64, extent: usize) -> Outcome<usize> {
    usize::try_from(index)
        .ok()
        .filter(|&index| index < extent)
        .ok_or_else(|| Failure { operation, message: format!("not below {extent}: {index}") })
}

/// All indices of an index tensor, checked.
pub(super) fn indices(operation: &'static str, indices: &Value, extent: usize) -> Outcome<Vec<usize>> {
    (0..indices.elements()).map(|i| checked(operation, indices.integer(i), extent)).collect()
}

pub(super) fn take(x: &Value, chosen: &Value, axis: usize, shape: &[usize]) -> Outcome {
    let from = Around::new(&x.shape, axis);
    let chosen = indices("take", chosen, from.extent)?;
    let to = Around { extent: chosen.len(), ..from };
    Ok(x.gather(shape, |flat| {
        let (block, inner) = (flat / to.inner, flat % to.inner);
        (block / to.extent * from.extent + chosen[block % to.extent]) * from.inner + inner
    }))
}

pub(super) fn take_along_axis(x: &Value, chosen: &Value, axis: usize) -> Outcome {
    let (from, to) = (Around::new(&x.shape, axis), Around::new(&chosen.shape, axis));
    let rows = indices("take_along_axis", chosen, from.extent)?;
    let mut result = Value::zeros(x.dtype, &chosen.shape);
    for line in 0..to.lines() {
        for i in 0..to.extent {
            let target = to.at(line, i);
            result.set_element(target, x.element(from.at(line, rows[target])));
        }
    }
    Ok(result)
}

pub(super) fn put_along_axis(mut x: Value, chosen: &Value, values: &Value, axis: usize) -> Outcome {
    let (to, from) = (Around::new(&x.shape, axis), Around::new(&chosen.shape, axis));
    let rows = indices("put_along_axis", chosen, to.extent)?;
    let strides = repeated(&values.shape, &chosen.shape);
    for line in 0..from.lines() {
        for i in 0..from.extent {
            let source = from.at(line, i);
            let value = values.element(offset(source, &chosen.shape, &strides));
            x.set_element(to.at(line, rows[source]), value);
        }
    }
    Ok(x)
}

pub(super) fn select(condition: &Value, a: &Value, b: &Value, shape: &[usize]) -> Value {
    let [c, left, right] = [condition, a, b].map(|x| repeated(&x.shape, shape));
    let mut result = Value::zeros(a.dtype, shape);
    for i in 0..result.elements() {
        let element = if condition.integer(offset(i, shape, &c)) != 0 {
            a.element(offset(i, shape, &left))
        } else {
            b.element(offset(i, shape, &right))
        };
        result.set_element(i, element);
    }
    result
}
