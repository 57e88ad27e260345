//! Operations along one axis: sums, extremes, softmax, running sums, orders.

use super::{
    Broken, Outcome, behaviours,
    expect::{holds, near, same},
    host::{Host, indices, resized, with},
    tolerance::{accumulated, roundings, unit},
    unary::wrap,
};
use crate::tensor::{Device, Dtype, Reduce};

behaviours!("reduction":
    sums_and_means,
    extremes,
    integer_reductions,
    softmax_of_each_axis,
    softmax_is_stable,
    cumsum_includes_the_element,
    argmax_finds_the_first_largest,
    argsort_is_stable,
    argpartition_separates,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const NUMBERS: [Dtype; 7] =
    [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I32, Dtype::U32, Dtype::I8, Dtype::U8];
const SHAPES: [&[usize]; 5] = [&[7], &[3, 130], &[2, 5, 3], &[2, 0, 3], &[1, 1]];

/// The values of one line along an axis.
fn line(host: &Host, index: &[usize], axis: usize) -> Vec<f64> {
    (0..host.shape[axis]).map(|i| host.at(&with(index, axis, i))).collect()
}

/// Every line along an axis gives one element.
fn lines(host: &Host, dtype: Dtype, axis: usize, function: impl Fn(&[f64]) -> f64) -> Host {
    Host::build(dtype, &resized(&host.shape, axis, 1), |index| function(&line(host, index, axis)))
}

/// Every line along an axis gives a line.
fn along(host: &Host, dtype: Dtype, axis: usize, function: impl Fn(&[f64]) -> Vec<f64>) -> Host {
    Host::build(dtype, &host.shape, |index| function(&line(host, index, axis))[index[axis]])
}

/// Sums accumulate in f32 whatever the dtype; an empty axis sums to 0.
pub fn sums_and_means(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 50);
            for axis in 0..shape.len() {
                let magnitude = lines(&host, dtype, axis, |xs| xs.iter().map(|x| x.abs()).sum());
                let count = shape[axis] as f64;
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    let expected = lines(&host, dtype, axis, |xs| xs.iter().sum());
                    let sum = device.reduce(Reduce::Sum, &x, axis)?;
                    let bound =
                        |i: usize| accumulated(dtype, shape[axis], magnitude.values[i], expected.values[i]);
                    near(format!("Sum {place}"), device, &sum, &expected, bound)?;
                    if shape[axis] > 0 {
                        let means = expected.map(|sum| sum / count);
                        let mean = device.reduce(Reduce::Mean, &x, axis)?;
                        let bound = |i: usize| bound(i) / count + roundings(dtype, 2.0, means.values[i]);
                        near(format!("Mean {place}"), device, &mean, &means, bound)?;
                    }
                }
            }
        }
    }
    // 4096 halves: an f16 accumulator would stand still at 1024.
    let halves = Host::build(Dtype::F16, &[4096], |_| 0.5).upload(device)?;
    same(
        "f16 in f32",
        device,
        &device.reduce(Reduce::Sum, &halves, 0)?,
        &Host::build(Dtype::F16, &[1], |_| 2048.0),
    )
}

/// Smallest and largest elements; a NaN anywhere in a line is its result.
pub fn extremes(device: &Device) -> Outcome {
    for dtype in NUMBERS {
        for shape in SHAPES {
            let mut host = Host::sample(dtype, shape, 51);
            for with_nan in [false, true] {
                if with_nan && dtype.is_float() && !host.values.is_empty() {
                    let middle = host.values.len() / 2;
                    host.values[middle] = f64::NAN;
                }
                for axis in (0..shape.len()).filter(|&axis| shape[axis] > 0) {
                    let fold = |xs: &[f64], least: fn(f64, f64) -> f64| {
                        let nan = xs.iter().any(|x| x.is_nan());
                        if nan { f64::NAN } else { xs.iter().copied().fold(xs[0], least) }
                    };
                    for (form, x) in host.forms(device)? {
                        let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                        let least = lines(&host, dtype, axis, |xs| fold(xs, f64::min));
                        let x_least = device.reduce(Reduce::Minimum, &x, axis)?;
                        same(format!("Minimum {place}"), device, &x_least, &least)?;
                        let largest = lines(&host, dtype, axis, |xs| fold(xs, f64::max));
                        let x_largest = device.reduce(Reduce::Maximum, &x, axis)?;
                        same(format!("Maximum {place}"), device, &x_largest, &largest)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Sums of integers keep their dtype and wrap.
pub fn integer_reductions(device: &Device) -> Outcome {
    for dtype in [Dtype::I32, Dtype::U32, Dtype::I8, Dtype::U8] {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 52);
            for axis in 0..shape.len() {
                let sum = |xs: &[f64]| wrap(dtype, xs.iter().sum::<f64>() as i64);
                let expected = lines(&host, dtype, axis, sum);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    same(place, device, &device.reduce(Reduce::Sum, &x, axis)?, &expected)?;
                }
            }
        }
    }
    Ok(())
}

fn softmax(xs: &[f64]) -> Vec<f64> {
    let largest = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = xs.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Each axis of each shape and dtype. The subtraction errs by `u |x - max|`, which the exponential makes relative;
/// `exp` errs by up to 16 u and the sum by its length.
pub fn softmax_of_each_axis(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 53);
            for axis in 0..shape.len() {
                let expected = along(&host, dtype, axis, softmax);
                let bound = |i: usize| roundings(dtype, 24.0 + shape[axis] as f64, expected.values[i]);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    near(place, device, &device.softmax(&x, axis)?, &expected, bound)?;
                }
            }
        }
    }
    Ok(())
}

/// Large values do not overflow, `-inf` has no weight, a line of nothing else is NaN.
pub fn softmax_is_stable(device: &Device) -> Outcome {
    let inf = f64::INFINITY;
    let rows = vec![1e4, 1e4, 1e4 - 8.0, -inf, 0.0, -inf, -1e4, -1e4, -1e4, -inf, -inf, -inf];
    let host = Host::new(Dtype::F32, &[4, 3], rows);
    let expected = along(&host, Dtype::F32, 1, |xs| {
        if xs.iter().all(|&x| x == -inf) { vec![f64::NAN; 3] } else { softmax(xs) }
    });
    let result = device.softmax(&host.upload(device)?, 1)?;
    near("rows", device, &result, &expected, |i| roundings(Dtype::F32, 32.0, expected.values[i]))
}

/// Running sums along each axis. A device may keep the running sum in the dtype, so each step may round.
pub fn cumsum_includes_the_element(device: &Device) -> Outcome {
    for dtype in NUMBERS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 54);
            for axis in 0..shape.len() {
                let running = |xs: &[f64]| {
                    let sums = xs.iter().scan(0.0, |sum, x| {
                        *sum += x;
                        Some(if dtype.is_float() { *sum } else { wrap(dtype, *sum as i64) })
                    });
                    sums.collect::<Vec<f64>>()
                };
                let expected = along(&host, dtype, axis, running);
                let magnitude: f64 = host.values.iter().map(|x| x.abs()).fold(0.0, f64::max);
                let steps = shape[axis] as f64;
                let bound = steps * steps * magnitude * unit(dtype);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    near(place, device, &device.cumsum(&x, axis)?, &expected, |_| bound)?;
                }
            }
        }
    }
    Ok(())
}

/// The smallest index among equals, along each axis, in every numeric dtype.
pub fn argmax_finds_the_first_largest(device: &Device) -> Outcome {
    for dtype in NUMBERS {
        for shape in SHAPES {
            // Few different values, so that most lines have equals.
            let host = Host::sample(dtype, shape, 55).map(|x| (x.abs() / 2.0).floor().min(3.0));
            for axis in (0..shape.len()).filter(|&axis| shape[axis] > 0) {
                let first = |xs: &[f64]| {
                    let largest = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    xs.iter().position(|&x| x == largest).map_or(-1.0, |i| i as f64)
                };
                let expected = lines(&host, Dtype::I32, axis, first);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    same(place, device, &device.argmax(&x, axis)?, &expected)?;
                }
            }
        }
    }
    let low = Host::new(Dtype::F32, &[3], vec![f64::NEG_INFINITY, -3.0, -2.0]).upload(device)?;
    same("below zero", device, &device.argmax(&low, 0)?, &Host::build(Dtype::I32, &[1], |_| 2.0))
}

fn stable_order(xs: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..xs.len()).collect();
    // Insertion by comparison: the definition, and stable.
    for end in 1..order.len() {
        let after = |a: f64, b: f64| a > b || (a.is_nan() && !b.is_nan());
        let mut at = end;
        while at > 0 && after(xs[order[at - 1]], xs[order[at]]) {
            order.swap(at - 1, at);
            at -= 1;
        }
    }
    order.into_iter().map(|i| i as f64).collect()
}

/// Ascending along each axis, equal elements in their order, NaN at the end.
pub fn argsort_is_stable(device: &Device) -> Outcome {
    for dtype in NUMBERS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 56).map(|x| (x / 2.0).floor());
            for axis in 0..shape.len() {
                let expected = along(&host, Dtype::I32, axis, stable_order);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} axis {axis}, {form}");
                    same(place, device, &device.argsort(&x, axis)?, &expected)?;
                }
            }
        }
    }
    let special = vec![3.0, f64::NAN, f64::NEG_INFINITY, 0.0, -0.0, f64::INFINITY, f64::NAN];
    for dtype in FLOATS {
        let host = Host::raw(dtype, &[7], special.clone());
        let expected = Host::raw(Dtype::I32, &[7], stable_order(&special));
        same(format!("{dtype:?}"), device, &device.argsort(&host.upload(device)?, 0)?, &expected)?;
    }
    Ok(())
}

/// A permutation in which no element before the `kth` is larger than it and none after it is smaller.
pub fn argpartition_separates(device: &Device) -> Outcome {
    for dtype in NUMBERS {
        for shape in [&[9][..], &[3, 65], &[2, 5, 3]] {
            let host = Host::sample(dtype, shape, 57);
            for axis in 0..shape.len() {
                for kth in [0, shape[axis] / 2, shape[axis] - 1] {
                    for (form, x) in host.forms(device)? {
                        let place = format!("{dtype:?} {shape:?} axis {axis} at {kth}, {form}");
                        let result = device.argpartition(&x, kth, axis)?;
                        holds(&place, (result.dtype(), result.shape()) == (Dtype::I32, shape))?;
                        let order = Host::download(device, &result)?;
                        separates(&host, &order, axis, kth).map_err(|broken| broken.at(&place))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn separates(host: &Host, order: &Host, axis: usize, kth: usize) -> Outcome {
    for index in indices(&resized(&host.shape, axis, 1)) {
        let (values, order) = (line(host, &index, axis), line(order, &index, axis));
        let mut seen = order.clone();
        seen.sort_by(f64::total_cmp);
        let all: Vec<f64> = (0..values.len()).map(|i| i as f64).collect();
        if seen != all {
            return Err(Broken::new(format!("{order:?} is no permutation")));
        }
        let sorted: Vec<f64> = order.iter().map(|&i| values[i as usize]).collect();
        let middle = sorted[kth];
        if sorted[..kth].iter().any(|&x| x > middle) || sorted[kth..].iter().any(|&x| x < middle) {
            return Err(Broken::new(format!("{sorted:?} is not parted at {kth}")));
        }
    }
    Ok(())
}
