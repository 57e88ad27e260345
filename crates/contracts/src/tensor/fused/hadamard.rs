//! The orthonormal Walsh-Hadamard transform, and whether tokens are finite.

use crate::tensor::{Binary, Device, Dtype, Error, Reduce, Result, Scalar, Tensor, shape};

/// `x` times the orthonormal Walsh-Hadamard matrix (Sylvester's order) along the last axis, which is its own inverse.
///
/// In f32: the butterfly with strides 1, 2, 4 and so on, each step a sum and a difference, then one product with
/// `1 / sqrt(width)`, so that every element has one arithmetic. Rounded to the dtype of `x`.
///
/// # Errors
/// As [`shape::hadamard`].
pub fn hadamard(device: &Device, x: &Tensor) -> Result<Tensor> {
    let width = shape::hadamard(x)?;
    let (shape, dtype, heads) = (x.shape().to_vec(), x.dtype(), x.elements() / width);
    let mut x = device.cast(x, Dtype::F32)?;
    let mut stride = 1;
    while stride < width {
        let pairs = heads * width / (2 * stride);
        x = device.reshape(&x, &[pairs, 2, stride])?;
        let a = device.slice(&x, &[0..pairs, 0..1, 0..stride])?;
        let b = device.slice(&x, &[0..pairs, 1..2, 0..stride])?;
        let sum = device.binary(Binary::Add, a.clone(), &b)?;
        let difference = device.binary(Binary::Subtract, a, &b)?;
        x = device.concat(&[&sum, &difference], 1)?;
        stride *= 2;
    }
    let norm = device.full(Scalar::Float(hadamard_norm(width)), Dtype::F32, &[])?;
    let x = device.binary(Binary::Multiply, device.reshape(&x, &shape)?, &norm)?;
    device.cast(&x, dtype)
}

/// `1 / sqrt(width)`, rounded once.
pub fn hadamard_norm(width: usize) -> f32 {
    (1.0 / (width as f64).sqrt()) as f32
}

/// Whether every element of each token is finite in all of `xs`, floats `[tokens, ..]`, and the token was so before:
/// booleans `[tokens]`.
///
/// # Errors
/// As [`shape::finite`].
pub fn finite(device: &Device, before: Option<Tensor>, xs: &[&Tensor]) -> Result<Tensor> {
    let tokens = shape::finite(before.as_ref(), xs)?;
    let one = |all: Option<Tensor>, x: &&Tensor| {
        let flat = device.reshape(x, &[tokens, x.elements().checked_div(tokens).unwrap_or(0)])?;
        let zero = device.full(Scalar::Float(0.0), x.dtype(), &[])?;
        // Zero times a finite number is zero, times any other it is NaN, and a sum keeps NaN.
        let sum = device.reduce(Reduce::Sum, &device.binary(Binary::Multiply, flat, &zero)?, 1)?;
        let own = device.binary(Binary::Equal, device.reshape(&sum, &[tokens])?, &zero)?;
        match all {
            Some(all) => device.binary(Binary::And, all, &own).map(Some),
            None => Ok(Some(own)),
        }
    };
    let all = xs.iter().try_fold(before, one)?;
    all.ok_or_else(|| Error::shape("finite", "needs something to look at"))
}
