//! Wrong devices: a sound one of whose operations gives zeros, its first operand, or a shifted copy of its result.
//!
//! A suite is only as good as what it notices. [`Mutant::device`] wraps any device; [`Mutant::all`] lists every
//! operation with every way to be wrong; the suite must break for each that [applies](Mutant::inapplicable).
//!
//! The wrapper keeps the inner device's identity and storages, so the inner device takes its handles as its own, and
//! provided operations run on the inner device: only the named operation's own result is altered, once.

mod backend;
mod operation;

use super::{Behaviour, all};
use crate::tensor::{Device, Dtype, Result, Scalar, Tensor};
use backend::Altered;
pub use operation::Operation;
use std::fmt;

/// How a result is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// All elements are 0.
    Zeros,
    /// The first operand, converted, and cropped or repeated to the result's shape.
    FirstOperand,
    /// The result with its elements moved by one place along the row-major order, the first going to the end.
    Shifted,
}

impl Mutation {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Zeros, Self::FirstOperand, Self::Shifted];
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zeros => "zeros",
            Self::FirstOperand => "first operand",
            Self::Shifted => "shifted",
        })
    }
}

/// One operation, wrong in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// What is wrong.
    pub operation: Operation,
    /// In which way.
    pub mutation: Mutation,
}

impl Mutant {
    /// Every operation that gives a value, in every way.
    pub fn all() -> Vec<Self> {
        let ways = |operation| Mutation::ALL.map(|mutation| Self { operation, mutation });
        Operation::all().into_iter().flat_map(ways).collect()
    }

    /// Why this mutant is no mutant: what it gives is right.
    pub fn inapplicable(self) -> Option<&'static str> {
        match (self.operation, self.mutation) {
            (Operation::Upload | Operation::UploadF32 | Operation::UploadI32, Mutation::FirstOperand) => {
                Some("the operand's bytes are the result")
            }
            (Operation::Download, Mutation::FirstOperand) => Some("the operand's bytes are the result"),
            (Operation::Full, Mutation::FirstOperand) => Some("the operand, repeated, is the result"),
            (Operation::Full, Mutation::Shifted) => Some("all elements are equal"),
            (Operation::Reshape, Mutation::FirstOperand) => {
                Some("the operand in the result's shape is the result")
            }
            (Operation::Cast, Mutation::FirstOperand) => {
                Some("the operand in the result's dtype is the result")
            }
            (Operation::Memory, Mutation::FirstOperand) => Some("there is no operand"),
            _ => None,
        }
    }

    /// A device that behaves as `inner` but for this.
    pub fn device(self, inner: Device) -> Device {
        Altered::wrap(inner, Some(self))
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.operation, self.mutation)
    }
}

/// The behaviours that notice the mutant.
pub fn killers(mutant: Mutant, inner: &Device, other: &Device) -> Vec<&'static Behaviour> {
    broken(&mutant.device(inner.clone()), other)
}

/// The behaviours that a device breaks when it is only wrapped: none, if it conforms. The control of the experiment.
pub fn control(inner: &Device, other: &Device) -> Vec<&'static Behaviour> {
    broken(&Altered::wrap(inner.clone(), None), other)
}

fn broken(device: &Device, other: &Device) -> Vec<&'static Behaviour> {
    all().filter(|behaviour| behaviour.check(device, other).is_err()).collect()
}

/// Zeros like `x`.
fn zeros(device: &Device, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    let zero = match dtype {
        Dtype::Bool => Scalar::Bool(false),
        _ => Scalar::Int(0),
    };
    device.full(zero, dtype, shape)
}

/// The elements moved by one place, the first going to the end.
fn shifted(device: &Device, x: &Tensor) -> Result<Tensor> {
    let count = x.elements();
    if count < 2 {
        return Ok(x.clone());
    }
    let flat = device.reshape(x, &[1, count])?;
    let (first, rest) = (device.slice(&flat, &[0..1, 0..1])?, device.slice(&flat, &[0..1, 1..count])?);
    device.reshape(&device.concat(&[&rest, &first], 1)?, x.shape())
}

/// `x` converted, and cropped or repeated to a shape.
fn fitted(device: &Device, x: &Tensor, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    let (have, need) = (x.elements(), shape.iter().product::<usize>());
    if have == 0 || need == 0 {
        return zeros(device, dtype, shape);
    }
    let rounds = need.div_ceil(have);
    let rows = device.broadcast(&device.reshape(x, &[1, have])?, &[rounds, have])?;
    let flat = device.reshape(&rows, &[1, rounds * have])?;
    let cropped = device.slice(&flat, &[0..1, 0..need])?;
    device.reshape(&device.cast(&cropped, dtype)?, shape)
}
