//! Elementwise arithmetic of one operand.
//!
//! Exact where IEEE 754 or integer arithmetic says so. Elementary functions may err by a few units in the last
//! place; what a device may use for each is said beside its case.

use super::{
    Outcome, behaviours,
    expect::{near, same},
    host::{Host, round},
    tolerance::{roundings, unit},
};
use crate::tensor::{Device, Dtype, Unary};

behaviours!("unary":
    exact_functions_of_floats,
    elementary_functions,
    error_function,
    unary_of_integers_and_booleans,
    unary_special_values,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

type Function = fn(f64) -> f64;

/// Negation, magnitude, square, rounding: one rounding at most, over dense and strided operands and zero sizes.
pub fn exact_functions_of_floats(device: &Device) -> Outcome {
    let cases: [(Unary, Function); 5] = [
        (Unary::Negate, |x| -x),
        (Unary::Abs, f64::abs),
        (Unary::Square, |x| x * x),
        (Unary::Round, f64::round_ties_even),
        (Unary::Floor, f64::floor),
    ];
    for dtype in FLOATS {
        for shape in [&[][..], &[5, 7], &[0, 3], &[2, 3, 67]] {
            let host = Host::sample(dtype, shape, 22);
            for (op, function) in cases {
                let expected = host.map(|x| round(dtype, function(x)));
                for (form, x) in host.forms(device)? {
                    same(
                        format!("{op:?} {dtype:?} {shape:?}, {form}"),
                        device,
                        &device.unary(op, x)?,
                        &expected,
                    )?;
                }
            }
        }
        let halves = Host::build(dtype, &[9], |index| index[0] as f64 - 4.5);
        let expected = halves.map(f64::round_ties_even);
        same("halves to even", device, &device.unary(Unary::Round, halves.upload(device)?)?, &expected)?;
    }
    Ok(())
}

/// Exponentials, logarithm, roots, sigmoid, sine and cosine within 8 units in the last place.
///
/// Vector libraries promise 1 to 4 (MLX's `exp` and `sigmoid` reach 4.4 between -9 and 9). Sine and cosine cancel
/// near their zeros, so there the bound is absolute. 16-bit results add their rounding.
pub fn elementary_functions(device: &Device) -> Outcome {
    let any: Function = |x| 2.0 * x;
    let positive: Function = |x| x.abs() + 0.01;
    let tiny: Function = |x| 1e-6 * x.abs();
    let cases: [(Unary, Function, Function); 10] = [
        (Unary::Exp, f64::exp, any),
        (Unary::Log, f64::ln, positive),
        (Unary::Log1p, f64::ln_1p, positive),
        (Unary::Log1p, f64::ln_1p, tiny),
        (Unary::Sqrt, f64::sqrt, positive),
        (Unary::Rsqrt, |x| 1.0 / x.sqrt(), positive),
        (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), any),
        (Unary::Tanh, f64::tanh, any),
        (Unary::Sin, f64::sin, any),
        (Unary::Cos, f64::cos, any),
    ];
    for dtype in FLOATS {
        for shape in [&[][..], &[3, 43], &[0]] {
            for (op, function, domain) in cases {
                let host = Host::sample(dtype, shape, 23).map(domain).rounded(dtype);
                let expected = host.map(function);
                let scale = |y: f64| {
                    if matches!(op, Unary::Sin | Unary::Cos | Unary::Log) { y.abs().max(1.0) } else { y }
                };
                for (form, x) in host.forms(device)? {
                    let place = format!("{op:?} {dtype:?} {shape:?}, {form}");
                    let bound = |i: usize| roundings(dtype, 16.0, scale(expected.values[i]));
                    near(place, device, &device.unary(op, x)?, &expected, bound)?;
                }
            }
        }
    }
    Ok(())
}

/// Within 1e-6: rational approximations of 1.5e-7 evaluated in f32 are common (Abramowitz and Stegun 7.1.26; MLX's
/// errs by 5.3e-7). Odd, and 1 for large arguments.
pub fn error_function(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let host = Host::build(dtype, &[81], |index| (index[0] as f64 - 40.0) / 8.0);
        let expected = host.map(erf);
        let result = device.unary(Unary::Erf, host.upload(device)?)?;
        near(format!("{dtype:?}"), device, &result, &expected, |i| {
            1e-6 + roundings(dtype, 1.0, expected.values[i])
        })?;
    }
    Ok(())
}

/// The series `2 / sqrt(pi) * sum (-1)^n x^(2n+1) / (n! (2n+1))`, which converges well below 6.
pub(super) fn erf(x: f64) -> f64 {
    let x = x.clamp(-6.0, 6.0);
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    (sum * std::f64::consts::FRAC_2_SQRT_PI).clamp(-1.0, 1.0)
}

/// Signed integers negate, lose their sign and square, wrapping; booleans flip.
pub fn unary_of_integers_and_booleans(device: &Device) -> Outcome {
    for dtype in [Dtype::I32, Dtype::I8] {
        let host = Host::sample(dtype, &[4, 9], 24);
        for (form, x) in host.forms(device)? {
            let cases: [(Unary, Function); 3] =
                [(Unary::Negate, |x| -x), (Unary::Abs, f64::abs), (Unary::Square, |x| x * x)];
            for (op, function) in cases {
                let expected = host.map(|x| wrap(dtype, function(x) as i64));
                same(format!("{op:?} {dtype:?}, {form}"), device, &device.unary(op, x.clone())?, &expected)?;
            }
        }
    }
    let host = Host::sample(Dtype::Bool, &[3, 5], 25);
    for (form, x) in host.forms(device)? {
        same(format!("Not, {form}"), device, &device.unary(Unary::Not, x)?, &host.map(|x| 1.0 - x))?;
    }
    Ok(())
}

/// An integer in the width of a dtype, two's complement.
pub(super) fn wrap(dtype: Dtype, value: i64) -> f64 {
    match dtype {
        Dtype::I32 => f64::from(value as i32),
        Dtype::U32 => f64::from(value as u32),
        Dtype::I8 => f64::from(value as i8),
        _ => f64::from(value as u8),
    }
}

/// Infinities, NaN and domains: what IEEE 754 says.
pub fn unary_special_values(device: &Device) -> Outcome {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let cases = [
        (Unary::Exp, vec![-inf, inf, nan, 0.0, 1000.0, -1000.0], vec![0.0, inf, nan, 1.0, inf, 0.0]),
        (Unary::Log, vec![0.0, inf, -1.0, nan, 1.0], vec![-inf, inf, nan, nan, 0.0]),
        (Unary::Log1p, vec![-1.0, inf, -2.0, nan, 0.0], vec![-inf, inf, nan, nan, 0.0]),
        (Unary::Sqrt, vec![0.0, inf, -1.0, nan, 4.0], vec![0.0, inf, nan, nan, 2.0]),
        (Unary::Rsqrt, vec![inf, -1.0, nan, 4.0], vec![0.0, nan, nan, 0.5]),
        (Unary::Sigmoid, vec![-inf, inf, nan, 0.0, 200.0, -200.0], vec![0.0, 1.0, nan, 0.5, 1.0, 0.0]),
        (Unary::Tanh, vec![-inf, inf, nan, 0.0, 200.0, -200.0], vec![-1.0, 1.0, nan, 0.0, 1.0, -1.0]),
        (Unary::Erf, vec![-inf, inf, nan, 30.0], vec![-1.0, 1.0, nan, 1.0]),
        (Unary::Abs, vec![-inf, nan], vec![inf, nan]),
        (Unary::Negate, vec![-inf, nan], vec![inf, nan]),
        (Unary::Floor, vec![-inf, inf, nan], vec![-inf, inf, nan]),
        (Unary::Round, vec![-inf, inf, nan], vec![-inf, inf, nan]),
        (Unary::Sin, vec![inf, nan], vec![nan, nan]),
        (Unary::Cos, vec![inf, nan, 0.0], vec![nan, nan, 1.0]),
    ];
    for dtype in FLOATS {
        for (op, operands, results) in &cases {
            let x = Host::raw(dtype, &[operands.len()], operands.clone()).upload(device)?;
            let expected = Host::raw(dtype, &[results.len()], results.clone());
            // Where a value is finite, one rounding: a device may approach 1 from below. Below the smallest normal
            // number it may give 0.
            let bound = |i: usize| 4.0 * unit(dtype) * results[i].abs() + 1e-37;
            near(format!("{op:?} {dtype:?}"), device, &device.unary(*op, x)?, &expected, bound)?;
        }
    }
    Ok(())
}
