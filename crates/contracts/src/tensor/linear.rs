//! Weights: how they come in, and the prepared form that a device keeps.
//!
//! A device lays a weight out once, in its own way, and that prepared form is the only copy: it serves one row,
//! many rows, and the lookup of single rows (tied embeddings).

use super::{DeviceId, Tensor};
use std::{any::Any, fmt, rc::Rc};

/// Affine quantisation in MLX's layout: `w = scale * code + bias`, codes unsigned, one scale and bias for each
/// group of consecutive elements of the last axis, codes packed little-endian into `u32` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Elements that share a scale: 32, 64 or 128.
    pub group: u16,
}

impl Affine {
    /// `u32` words that hold `width` codes; `width` is a multiple of the group, hence of 32.
    pub const fn words(self, width: usize) -> usize {
        width * self.bits as usize / 32
    }

    /// Groups along `width` elements.
    pub const fn groups(self, width: usize) -> usize {
        width / self.group as usize
    }

    /// Whether bits and group are of those that devices must take.
    pub const fn is_supported(self) -> bool {
        matches!(self.bits, 2 | 3 | 4 | 5 | 6 | 8) && matches!(self.group, 32 | 64 | 128)
    }
}

/// An affine quantised tensor: three planes that share all axes but the last.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// `u32 [.., width * bits / 32]`.
    pub codes: Tensor,
    /// Float `[.., width / group]`.
    pub scales: Tensor,
    /// Like `scales`.
    pub biases: Tensor,
    /// Bits and group.
    pub format: Affine,
}

/// A weight matrix as it comes from a file: `[outputs, inputs]`, or `[experts, outputs, inputs]`.
#[derive(Clone, Debug)]
pub enum Weight {
    /// Floats.
    Dense(Tensor),
    /// Affine codes along the inputs.
    Affine(Quantized),
}

impl Weight {
    /// Logical shape, codes counted as elements.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Dense(weight) => weight.shape().to_vec(),
            Self::Affine(Quantized { scales, format, .. }) => {
                let mut shape = scales.shape().to_vec();
                if let Some(width) = shape.last_mut() {
                    *width *= format.group as usize;
                }
                shape
            }
        }
    }
}

/// A prepared weight in the adapter's own type.
pub trait Prepared: Any + fmt::Debug {
    /// Outputs of all joined parts.
    fn outputs(&self) -> usize;

    /// Inputs.
    fn inputs(&self) -> usize;

    /// Matrices in the stack: 1 unless it was prepared from 3-axis weights.
    fn experts(&self) -> usize;

    /// Device bytes that it holds.
    fn bytes(&self) -> usize;

    /// The device that made it.
    fn device(&self) -> DeviceId;
}

/// A shared prepared weight.
#[derive(Clone, Debug)]
pub struct Linear(pub Rc<dyn Prepared>);

impl std::ops::Deref for Linear {
    type Target = dyn Prepared;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

/// Activation of a gated unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks and Gimpel, arXiv:1606.08415).
    GeluTanh,
    /// `x / 2 * (1 + erf(x / sqrt 2))`.
    Gelu,
}
