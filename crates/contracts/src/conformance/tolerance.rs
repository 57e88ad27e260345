//! How far a result may lie from the exact value, and why.
//!
//! `u` is the unit roundoff of a dtype: one operation rounded to nearest errs by at most `u` times its result.

use crate::tensor::Dtype;

/// Unit roundoff: half the distance between 1 and the next number.
pub fn unit(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 2f64.powi(-24),
        Dtype::F16 => 2f64.powi(-11),
        Dtype::Bf16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

/// Half the smallest step near zero, which bounds the rounding of subnormal numbers. For `F32` the smallest normal
/// number: devices may flush what is below it.
fn floor(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 | Dtype::Bf16 => 2f64.powi(-126),
        Dtype::F16 => 2f64.powi(-25),
        _ => 0.0,
    }
}

/// How far `fast` attention to codes may move a query's element or a weight, relative to the largest of them: half a
/// step of whole numbers up to 16256, in an arithmetic that the port states.
pub const WHOLE: f64 = 0.5 / 16256.0;

/// `count` roundings of a result of about this value.
///
/// Operations on 16-bit floats are computed in f32 and rounded once, so `count` is that of f32 operations and the
/// final rounding is added. There may be two, because a device may also round one intermediate result that it keeps
/// in the dtype: `(1 + u)^2 - 1`.
pub fn roundings(dtype: Dtype, count: f64, value: f64) -> f64 {
    let arithmetic = count * unit(Dtype::F32) * value.abs();
    let storage = if dtype == Dtype::F32 { 0.0 } else { (2.0 + unit(dtype)) * unit(dtype) * value.abs() };
    arithmetic + storage + floor(dtype)
}

/// A sum of `terms` products accumulated in f32 in any order: each term takes part in at most `terms` roundings
/// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). `magnitude` is the sum of the terms'
/// absolute values; the result is then rounded to its dtype.
pub fn accumulated(dtype: Dtype, terms: usize, magnitude: f64, value: f64) -> f64 {
    (terms as f64 + 2.0) * unit(Dtype::F32) * magnitude + roundings(dtype, 1.0, value)
}
