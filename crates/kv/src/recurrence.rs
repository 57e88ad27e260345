//! What a recurrent layer carries from token to token, and the port through which it is carried.
//!
//! A row does not know what its layer computes. It hands its [`State`] to a [`Recurrence`] together with the inputs of
//! a step, and gets the state after them. States are values, so that a step is given up by keeping the old one, and
//! kept in part by doing it again with the first inputs alone: that is why the row holds on to a recurrence and its
//! inputs until the step is closed.

use crate::RecurrentShape;
use std::{fmt, ops::Range};
use tandem_contracts::tensor::{Device, Dtype, Error, Result, Scalar, Tensor};

/// What one row's tokens have left in a recurrent layer.
#[derive(Clone, Debug)]
pub struct State {
    /// Inputs of the convolution, `[taps - 1, channels]` in the dtype of what is not encoded. A layer converts its
    /// inputs to it before it convolves, or its numbers would depend on where steps end.
    pub tail: Tensor,
    /// `f32 [heads, value width, key width]`.
    pub matrix: Tensor,
}

/// One row's part of a step.
#[derive(Clone, Debug)]
pub struct Carried<'a> {
    /// Its tokens among the packed ones.
    pub tokens: Range<usize>,
    /// What its earlier tokens left.
    pub state: &'a State,
}

/// What comes of a step.
#[derive(Clone, Debug)]
pub struct Carry {
    /// `[tokens, ..]`, floats: one for each packed token, made of the state that it leaves, so that numbers in it which are
    /// not finite show.
    pub outputs: Tensor,
    /// One for each row, after its last token.
    pub states: Vec<State>,
}

/// What a recurrent layer computes.
pub trait Recurrence: fmt::Debug {
    /// Takes packed inputs, each with tokens as its first axis, of which each row has its own. On an invariant device
    /// a row's numbers must depend on its own inputs and state alone, not on how they are cut into steps.
    ///
    /// # Errors
    /// Inputs that do not fit, or the device's own.
    fn carry(&self, inputs: &[Tensor], rows: &[Carried<'_>]) -> Result<Carry>;
}

impl State {
    /// What no token has touched: zeros.
    pub(crate) fn cold(device: &Device, shape: RecurrentShape, dtype: Dtype) -> Result<Self> {
        let zeros = |dtype, shape: &[usize]| device.full(Scalar::Float(0.0), dtype, shape);
        Ok(Self { tail: zeros(dtype, &shape.tail())?, matrix: zeros(Dtype::F32, &shape.matrix())? })
    }

    /// The tail, then the matrix.
    pub(crate) fn planes(&self) -> [&Tensor; 2] {
        [&self.tail, &self.matrix]
    }

    /// Checks what a recurrence gave.
    pub(crate) fn check(&self, shape: RecurrentShape, dtype: Dtype) -> Result<()> {
        let (tail, matrix) = (shape.tail(), shape.matrix());
        let needed: [(Dtype, &[usize]); 2] = [(dtype, &tail), (Dtype::F32, &matrix)];
        for (plane, (dtype, shape)) in self.planes().into_iter().zip(needed) {
            if (plane.dtype(), plane.shape()) != (dtype, shape) {
                return Err(Error::shape(
                    "recur",
                    format!("a state must be {dtype:?} {shape:?}, got: {plane:?}"),
                ));
            }
        }
        Ok(())
    }
}
