//! Kernels along one axis. Sums run in ascending order, floats in f32.

use super::value::{Around, Value};
use crate::tensor::{Dtype, Reduce};
use std::cmp::Ordering;

pub(super) fn reduce(op: Reduce, x: &Value, axis: usize, shape: &[usize]) -> Value {
    let around = Around::new(&x.shape, axis);
    let mut result = Value::zeros(x.dtype, shape);
    for line in 0..around.lines() {
        if x.dtype.is_float() {
            let values = (0..around.extent).map(|i| x.float(around.at(line, i)));
            result.set_float(line, floats(op, values, around.extent));
        } else {
            let values = (0..around.extent).map(|i| x.integer(around.at(line, i)));
            let reduced = match op {
                Reduce::Minimum => values.min(),
                Reduce::Maximum => values.max(),
                Reduce::Sum | Reduce::Mean => Some(values.fold(0i64, i64::wrapping_add)),
            };
            result.set_integer(line, reduced.unwrap_or(0));
        }
    }
    result
}

fn floats(op: Reduce, values: impl Iterator<Item = f32>, count: usize) -> f32 {
    let propagate = |a: f32, b: f32, least: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { least };
    match op {
        Reduce::Sum => values.fold(0.0, |sum, x| sum + x),
        Reduce::Mean => values.fold(0.0, |sum, x| sum + x) / count as f32,
        Reduce::Minimum => values.fold(f32::INFINITY, |a, b| propagate(a, b, a.min(b))),
        Reduce::Maximum => values.fold(f32::NEG_INFINITY, |a, b| propagate(a, b, a.max(b))),
    }
}

pub(super) fn softmax(x: &Value, axis: usize) -> Value {
    let around = Around::new(&x.shape, axis);
    let mut result = Value::zeros(x.dtype, &x.shape);
    for line in 0..around.lines() {
        let values: Vec<f32> = (0..around.extent).map(|i| x.float(around.at(line, i))).collect();
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = values.iter().map(|value| (value - largest).exp()).collect();
        let sum = powers.iter().fold(0.0, |sum, power| sum + power);
        for (i, power) in powers.iter().enumerate() {
            result.set_float(around.at(line, i), power / sum);
        }
    }
    result
}

pub(super) fn cumsum(x: &Value, axis: usize) -> Value {
    let around = Around::new(&x.shape, axis);
    let mut result = Value::zeros(x.dtype, &x.shape);
    for line in 0..around.lines() {
        let (mut float, mut integer) = (0.0, 0i64);
        for i in (0..around.extent).map(|i| around.at(line, i)) {
            if x.dtype.is_float() {
                float += x.float(i);
                result.set_float(i, float);
            } else {
                integer = integer.wrapping_add(x.integer(i));
                result.set_integer(i, integer);
            }
        }
    }
    result
}

/// Ascending, NaN last.
fn order(x: &Value, i: usize, j: usize) -> Ordering {
    if !x.dtype.is_float() {
        return x.integer(i).cmp(&x.integer(j));
    }
    let (a, b) = (x.float(i), x.float(j));
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

pub(super) fn argmax(x: &Value, axis: usize, shape: &[usize]) -> Value {
    let around = Around::new(&x.shape, axis);
    let mut result = Value::zeros(Dtype::I32, shape);
    for line in 0..around.lines() {
        let best = (1..around.extent).fold(0, |best, i| {
            if order(x, around.at(line, i), around.at(line, best)) == Ordering::Greater { i } else { best }
        });
        result.set_integer(line, best as i64);
    }
    result
}

/// Serves `argpartition` too: sorted order partitions at every index.
pub(super) fn argsort(x: &Value, axis: usize) -> Value {
    let around = Around::new(&x.shape, axis);
    let mut result = Value::zeros(Dtype::I32, &x.shape);
    for line in 0..around.lines() {
        let mut sorted: Vec<usize> = (0..around.extent).collect();
        sorted.sort_by(|&i, &j| order(x, around.at(line, i), around.at(line, j)));
        for (i, index) in sorted.into_iter().enumerate() {
            result.set_integer(around.at(line, i), index as i64);
        }
    }
    result
}
