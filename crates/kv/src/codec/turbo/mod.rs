//! TurboQuant: keys as affine codes with a whole zero point, values rotated and rounded to a Lloyd-Max codebook.
//!
//! Source: Zandieh, Daliri, Hadian, Mirrokni, "TurboQuant: online vector quantization with near-optimal distortion
//! rate", arXiv:2504.19874, for rotation and codebooks; keys follow the plain asymmetric scheme.
//!
//! Arithmetic is in f32, step by step as the formulas are written, rounding to nearest with halves to even; sums and
//! means of a group run in ascending order. Scales and zero points are stored as f16, but codes are computed with the
//! unrounded ones. Decoded values are bf16.

mod code;
mod codebook;
mod key;
mod rotation;
mod table;
mod value;

pub use codebook::levels;
pub(super) use key::Keys;
pub(super) use value::Values;

use super::format::TURBO_GROUP;
use tandem_contracts::tensor::{Binary, Device, Dtype, Reduce, Result, Scalar, Tensor, Unary};

/// Keeps a divisor from being 0.
const EPSILON: f32 = 1e-8;

/// Short names for the port's operations on f32.
#[derive(Debug)]
struct Arithmetic<'a>(&'a Device);

impl Arithmetic<'_> {
    fn constant(&self, value: f32) -> Result<Tensor> {
        self.0.full(Scalar::Float(value), Dtype::F32, &[])
    }

    fn binary(&self, op: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.0.binary(op, a.clone(), b)
    }

    /// With a number on the right.
    fn by(&self, op: Binary, a: &Tensor, b: f32) -> Result<Tensor> {
        self.0.binary(op, a.clone(), &self.constant(b)?)
    }

    fn unary(&self, op: Unary, x: &Tensor) -> Result<Tensor> {
        self.0.unary(op, x.clone())
    }

    /// Over the last axis, which becomes 1.
    fn reduce(&self, op: Reduce, x: &Tensor) -> Result<Tensor> {
        self.0.reduce(op, x, x.shape().len() - 1)
    }

    /// `[.., width]` in f32 as `[.., groups, 32]`.
    fn grouped(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F32)?;
        let width = x.shape().last().copied().unwrap_or(0);
        self.0.reshape(&x, &with_last(x.shape(), &[width / TURBO_GROUP, TURBO_GROUP]))
    }

    /// `[.., groups, 32]` as `[.., width]`.
    fn joined(&self, x: &Tensor) -> Result<Tensor> {
        let (&[groups, size], leading) = last_two(x.shape());
        self.0.reshape(x, &[leading, &[groups * size]].concat())
    }

    /// One number for each group, `[.., groups, 1]`, as f16 `[.., groups]`.
    fn stored(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F16)?;
        self.0.reshape(&x, &x.shape()[..x.shape().len() - 1])
    }

    /// The stored numbers, f16 `[.., groups]`, as f32 `[.., groups, 1]`.
    fn restored(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F32)?;
        self.0.reshape(&x, &[x.shape(), &[1]].concat())
    }
}

/// `shape` with its last axis replaced.
fn with_last(shape: &[usize], last: &[usize]) -> Vec<usize> {
    [&shape[..shape.len() - 1], last].concat()
}

/// The last two axes, and those before; grouped tensors have them by construction.
fn last_two(shape: &[usize]) -> (&[usize; 2], &[usize]) {
    let (leading, last) = shape.split_last_chunk::<2>().unwrap_or((&[], &[1, 1]));
    (last, leading)
}
