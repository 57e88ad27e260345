//! Elementwise arithmetic of two operands.
//!
//! Exact where IEEE 754 or integer arithmetic says so.

use super::{
    Outcome, behaviours,
    expect::{near, same},
    host::{Host, round},
    tolerance::{roundings, unit},
    unary::wrap,
};
use crate::tensor::{Binary, Device, Dtype, Scalar};

behaviours!("binary":
    arithmetic_of_floats,
    power_of_floats,
    arithmetic_of_integers_wraps,
    bits_and_shifts,
    minimum_and_maximum,
    comparisons,
    binary_broadcasts,
    binary_special_values,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const INTEGERS: [Dtype; 4] = [Dtype::I32, Dtype::U32, Dtype::I8, Dtype::U8];

type OnFloats = fn(f64, f64) -> f64;
type OnIntegers = fn(i64, i64) -> i64;
type Comparison = fn(f64, f64) -> bool;

fn float_cases(dtype: Dtype) -> (Host, Host) {
    let a = Host::sample(dtype, &[5, 13], 26);
    let b = Host::sample(dtype, &[5, 13], 27).map(|x| if x.abs() < 0.1 { 0.5 } else { x }).rounded(dtype);
    (a, b)
}

/// Add, subtract, multiply and divide: the nearest number, in every dtype, over strided operands on both sides.
///
/// The nearest f32 of a sum, product or quotient of 16-bit floats, rounded again, is the nearest 16-bit float (f32
/// has more than twice their precision), so no tolerance is needed; division in f32 may be by reciprocal, within
/// 2 units.
pub fn arithmetic_of_floats(device: &Device) -> Outcome {
    let cases: [(Binary, OnFloats, f64); 4] = [
        (Binary::Add, |a, b| a + b, 0.0),
        (Binary::Subtract, |a, b| a - b, 0.0),
        (Binary::Multiply, |a, b| a * b, 0.0),
        (Binary::Divide, |a, b| a / b, 4.0),
    ];
    for dtype in FLOATS {
        let (a, b) = float_cases(dtype);
        for (op, function, units) in cases {
            let expected =
                Host::build(dtype, &a.shape, |index| round(dtype, function(a.at(index), b.at(index))));
            for (form, x) in a.forms(device)? {
                for (other_form, y) in b.forms(device)? {
                    let place = format!("{op:?} {dtype:?}, {form} and {other_form}");
                    let bound = |i: usize| units * unit(dtype) * expected.values[i].abs();
                    near(place, device, &device.binary(op, x.clone(), &y)?, &expected, bound)?;
                }
            }
        }
    }
    Ok(())
}

/// `a^b = exp(b ln a)`: an error of the exponent, relative to its size, becomes one of the result.
pub fn power_of_floats(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let a = Host::sample(dtype, &[40], 28).map(|x| x.abs() + 0.1).rounded(dtype);
        let b = Host::sample(dtype, &[40], 29);
        let expected = Host::build(dtype, &a.shape, |index| a.at(index).powf(b.at(index)));
        let result = device.binary(Binary::Power, a.upload(device)?, &b.upload(device)?)?;
        near(format!("{dtype:?}"), device, &result, &expected, |i| {
            let exponent = (b.values[i] * a.values[i].ln()).abs();
            roundings(dtype, 8.0 * (1.0 + exponent), expected.values[i])
        })?;
        let base = Host::raw(dtype, &[5], vec![0.0, 2.0, -2.0, -2.0, 0.0]);
        let exponent = Host::raw(dtype, &[5], vec![0.0, -1.0, 3.0, 2.0, 2.0]);
        let expected = Host::raw(dtype, &[5], vec![1.0, 0.5, -8.0, 4.0, 0.0]);
        let result = device.binary(Binary::Power, base.upload(device)?, &exponent.upload(device)?)?;
        near("whole exponents", device, &result, &expected, |i| roundings(dtype, 8.0, expected.values[i]))?;
    }
    Ok(())
}

/// Sums, differences and products keep the low bits of the width.
pub fn arithmetic_of_integers_wraps(device: &Device) -> Outcome {
    let cases: [(Binary, OnIntegers); 3] =
        [(Binary::Add, |a, b| a + b), (Binary::Subtract, |a, b| a - b), (Binary::Multiply, |a, b| a * b)];
    for dtype in INTEGERS {
        let mut a = Host::sample(dtype, &[4, 11], 30);
        let b = Host::sample(dtype, &[4, 11], 31);
        let (most, least) = match dtype {
            Dtype::I32 => (f64::from(i32::MAX), f64::from(i32::MIN)),
            Dtype::U32 => (f64::from(u32::MAX), 0.0),
            Dtype::I8 => (127.0, -128.0),
            _ => (255.0, 0.0),
        };
        a.values[0] = most;
        a.values[1] = least;
        for (op, function) in cases {
            let expected = Host::build(dtype, &a.shape, |index| {
                wrap(dtype, function(a.at(index) as i64, b.at(index) as i64))
            });
            for ((form, x), (_, y)) in a.forms(device)?.into_iter().zip(b.forms(device)?) {
                same(format!("{op:?} {dtype:?}, {form}"), device, &device.binary(op, x, &y)?, &expected)?;
            }
        }
    }
    Ok(())
}

/// And, or and shifts of integers; and, or of booleans. Right shifts keep the sign where there is one.
pub fn bits_and_shifts(device: &Device) -> Outcome {
    for dtype in INTEGERS {
        let a = Host::sample(dtype, &[4, 11], 32);
        let b = Host::sample(dtype, &[4, 11], 33);
        let by =
            Host::build(dtype, &[4, 11], |index| ((index[0] * 11 + index[1]) % (8 * dtype.size())) as f64);
        let cases: [(Binary, &Host, OnIntegers); 4] = [
            (Binary::And, &b, |a, b| a & b),
            (Binary::Or, &b, |a, b| a | b),
            (Binary::ShiftLeft, &by, |a, b| a << b),
            (Binary::ShiftRight, &by, |a, b| a >> b),
        ];
        for (op, b, function) in cases {
            let expected = Host::build(dtype, &a.shape, |index| {
                wrap(dtype, function(a.at(index) as i64, b.at(index) as i64))
            });
            for ((form, x), (_, y)) in a.forms(device)?.into_iter().zip(b.forms(device)?) {
                same(format!("{op:?} {dtype:?}, {form}"), device, &device.binary(op, x, &y)?, &expected)?;
            }
        }
    }
    let words = Host::raw(Dtype::U32, &[2], vec![4_294_967_295.0, 2_147_483_648.0]);
    let by = Host::raw(Dtype::U32, &[2], vec![31.0, 4.0]).upload(device)?;
    let expected = Host::raw(Dtype::U32, &[2], vec![1.0, 134_217_728.0]);
    let shifted = device.binary(Binary::ShiftRight, words.upload(device)?, &by)?;
    same("unsigned words have no sign", device, &shifted, &expected)?;
    let (a, b) = (Host::sample(Dtype::Bool, &[20], 34), Host::sample(Dtype::Bool, &[20], 35));
    let cases: [(Binary, OnFloats); 2] = [(Binary::And, f64::min), (Binary::Or, f64::max)];
    for (op, function) in cases {
        let expected = Host::build(Dtype::Bool, &[20], |index| function(a.at(index), b.at(index)));
        same(
            format!("{op:?} Bool"),
            device,
            &device.binary(op, a.upload(device)?, &b.upload(device)?)?,
            &expected,
        )?;
    }
    Ok(())
}

/// The smaller and the larger of two, in every numeric dtype.
pub fn minimum_and_maximum(device: &Device) -> Outcome {
    let cases: [(Binary, OnFloats); 2] = [(Binary::Minimum, f64::min), (Binary::Maximum, f64::max)];
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        let (a, b) = (Host::sample(dtype, &[3, 17], 36), Host::sample(dtype, &[3, 17], 37));
        for (op, function) in cases {
            let expected = Host::build(dtype, &a.shape, |index| function(a.at(index), b.at(index)));
            for ((form, x), (_, y)) in a.forms(device)?.into_iter().zip(b.forms(device)?) {
                same(format!("{op:?} {dtype:?}, {form}"), device, &device.binary(op, x, &y)?, &expected)?;
            }
        }
    }
    Ok(())
}

/// Equal, less and not greater give booleans in every dtype; NaN compares false, zeros of both signs are equal.
pub fn comparisons(device: &Device) -> Outcome {
    let cases: [(Binary, Comparison); 3] =
        [(Binary::Equal, |a, b| a == b), (Binary::Less, |a, b| a < b), (Binary::LessEqual, |a, b| a <= b)];
    for dtype in Dtype::ALL {
        let a = Host::sample(dtype, &[3, 17], 38);
        // Every third element equal.
        let mut b = Host::sample(dtype, &[3, 17], 39);
        b.values.iter_mut().zip(&a.values).step_by(3).for_each(|(b, a)| *b = *a);
        if dtype.is_float() {
            (b.values[1], b.values[2]) = (f64::NAN, f64::INFINITY);
        }
        for (op, function) in cases.into_iter().filter(|(op, _)| op.takes(dtype)) {
            let expected =
                Host::build(Dtype::Bool, &a.shape, |index| f64::from(function(a.at(index), b.at(index))));
            for ((form, x), (_, y)) in a.forms(device)?.into_iter().zip(b.forms(device)?) {
                same(format!("{op:?} {dtype:?}, {form}"), device, &device.binary(op, x, &y)?, &expected)?;
            }
        }
    }
    let zeros = device.upload_f32(&[0.0, -0.0], &[2])?;
    let turned = device.upload_f32(&[-0.0, 0.0], &[2])?;
    let equal = device.binary(Binary::Equal, zeros, &turned)?;
    same("zeros", device, &equal, &Host::build(Dtype::Bool, &[2], |_| 1.0))
}

/// Either operand repeats, both repeat, scalars, zero extents; the result has the common shape.
pub fn binary_broadcasts(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize], &[usize]); 8] = [
        (&[3, 4], &[4], &[3, 4]),
        (&[4], &[3, 4], &[3, 4]),
        (&[3, 1], &[1, 4], &[3, 4]),
        (&[2, 3, 4], &[3, 1], &[2, 3, 4]),
        (&[2, 1, 4], &[3, 1], &[2, 3, 4]),
        (&[], &[2, 3], &[2, 3]),
        (&[2, 3], &[], &[2, 3]),
        (&[0, 3], &[1], &[0, 3]),
    ];
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::I32, Dtype::U8] {
        for (left, right, to) in cases {
            let (a, b) = (Host::sample(dtype, left, 40), Host::sample(dtype, right, 41));
            let sum = |index: &[usize]| a.spread_at(index) - b.spread_at(index);
            let expected = if dtype.is_float() {
                Host::build(dtype, to, |index| round(dtype, sum(index)))
            } else {
                Host::build(dtype, to, |index| wrap(dtype, sum(index) as i64))
            };
            for (form, x) in a.forms(device)? {
                for (_, y) in b.forms(device)? {
                    let place = format!("{dtype:?} {left:?} and {right:?}, {form}");
                    same(place, device, &device.binary(Binary::Subtract, x.clone(), &y)?, &expected)?;
                }
            }
        }
    }
    let row = Host::sample(Dtype::F32, &[1, 6], 42);
    let repeated = device.broadcast(&row.upload(device)?, &[4, 6])?;
    let doubled = Host::build(Dtype::F32, &[4, 6], |index| 2.0 * row.spread_at(index));
    same("repeated views", device, &device.binary(Binary::Add, repeated.clone(), &repeated)?, &doubled)
}

/// NaN passes through minimum and maximum from either side; division by zero and infinities follow IEEE 754.
pub fn binary_special_values(device: &Device) -> Outcome {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let a = vec![nan, 1.0, inf, -inf, 0.0, -1.0, inf];
    let b = vec![1.0, nan, 2.0, 2.0, 0.0, 0.0, inf];
    let cases = [
        (Binary::Minimum, vec![nan, nan, 2.0, -inf, 0.0, -1.0, inf]),
        (Binary::Maximum, vec![nan, nan, inf, 2.0, 0.0, 0.0, inf]),
        (Binary::Divide, vec![nan, nan, inf, -inf, nan, -inf, nan]),
        (Binary::Subtract, vec![nan, nan, inf, -inf, 0.0, -1.0, nan]),
        (Binary::Multiply, vec![nan, nan, inf, -inf, 0.0, 0.0, inf]),
    ];
    for dtype in FLOATS {
        let [a, b] = [&a, &b].map(|x| Host::raw(dtype, &[7], x.clone()));
        for (op, results) in &cases {
            let result = device.binary(*op, a.upload(device)?, &b.upload(device)?)?;
            same(format!("{op:?} {dtype:?}"), device, &result, &Host::raw(dtype, &[7], results.clone()))?;
        }
        let large = device.full(Scalar::Float(60000.0), Dtype::F16, &[1])?;
        let sum = device.binary(Binary::Add, large.clone(), &large)?;
        same("f16 overflows", device, &sum, &Host::build(Dtype::F16, &[1], |_| inf))?;
    }
    Ok(())
}
