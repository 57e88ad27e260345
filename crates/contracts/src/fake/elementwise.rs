//! Elementwise kernels and conversions. Floats are computed in f32 and rounded once.

use super::value::{Value, offset, repeated};
use crate::tensor::{Binary, Dtype, Unary};

pub(super) fn cast(x: &Value, dtype: Dtype) -> Value {
    let mut result = Value::zeros(dtype, &x.shape);
    for i in 0..x.elements() {
        if x.dtype.is_float() {
            result.set_float(i, x.float(i));
        } else {
            result.set_integer(i, x.integer(i));
        }
    }
    result
}

pub(super) fn unary(op: Unary, mut x: Value) -> Value {
    for i in 0..x.elements() {
        if x.dtype.is_float() {
            x.set_float(i, float(op, x.float(i)));
        } else {
            x.set_integer(i, integer(op, x.integer(i)));
        }
    }
    x
}

fn float(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Negate => -x,
        Unary::Abs => x.abs(),
        Unary::Square => x * x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Log1p => x.ln_1p(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Erf => erf(x.into()) as f32,
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Round => x.round_ties_even(),
        Unary::Floor => x.floor(),
        Unary::Not => f32::from(u8::from(x == 0.0)),
    }
}

fn integer(op: Unary, x: i64) -> i64 {
    match op {
        Unary::Negate => -x,
        Unary::Abs => x.abs(),
        Unary::Square => x * x,
        Unary::Not => i64::from(x == 0),
        _ => x,
    }
}

/// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; within 1.5e-7 everywhere.
fn erf(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] =
        [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    if x.is_nan() {
        return x;
    }
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series = COEFFICIENTS.iter().fold(0.0, |sum, c| sum * t + c) * t;
    (1.0 - series * (-x * x).exp()).copysign(x)
}

/// Writes over `a` where the result has its shape and dtype.
pub(super) fn binary(op: Binary, mut a: Value, b: &Value, shape: &[usize], dtype: Dtype) -> Value {
    let right = repeated(&b.shape, shape);
    if a.shape == shape && a.dtype == dtype {
        for i in 0..a.elements() {
            let number = combine(op, (&a, i), (b, offset(i, shape, &right)));
            number.write(&mut a, i);
        }
        return a;
    }
    let left = repeated(&a.shape, shape);
    let mut result = Value::zeros(dtype, shape);
    for i in 0..result.elements() {
        let number = combine(op, (&a, offset(i, shape, &left)), (b, offset(i, shape, &right)));
        number.write(&mut result, i);
    }
    result
}

/// A computed element before it is rounded, wrapped or tested for truth by the tensor it goes to.
#[derive(Clone, Copy)]
enum Number {
    Float(f32),
    Integer(i64),
}

impl Number {
    fn write(self, to: &mut Value, i: usize) {
        match self {
            Self::Float(value) => to.set_float(i, value),
            Self::Integer(value) => to.set_integer(i, value),
        }
    }
}

fn combine(op: Binary, (a, i): (&Value, usize), (b, j): (&Value, usize)) -> Number {
    if a.dtype.is_float() {
        let (a, b) = (a.float(i), b.float(j));
        return match op {
            Binary::Equal => Number::Integer((a == b).into()),
            Binary::Less => Number::Integer((a < b).into()),
            Binary::LessEqual => Number::Integer((a <= b).into()),
            _ => Number::Float(floats(op, a, b)),
        };
    }
    Number::Integer(integers(op, a.integer(i), b.integer(j)))
}

fn floats(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Minimum | Binary::Maximum if a.is_nan() || b.is_nan() => f32::NAN,
        Binary::Minimum => a.min(b),
        Binary::Maximum => a.max(b),
        Binary::Power => a.powf(b),
        // Not of floats; the rules of shapes refuse them before.
        _ => f32::NAN,
    }
}

fn integers(op: Binary, a: i64, b: i64) -> i64 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Minimum => a.min(b),
        Binary::Maximum => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::ShiftLeft => a << (b & 31),
        Binary::ShiftRight => a >> (b & 31),
        Binary::Equal => i64::from(a == b),
        Binary::Less => i64::from(a < b),
        Binary::LessEqual => i64::from(a <= b),
        // Not of integers; the rules of shapes refuse them before.
        Binary::Divide | Binary::Power => 0,
    }
}
