//! Projections into and out of a branch, in the fused forms that devices may have faster.
//!
//! Residuals of mounted adapters belong here: each is a pair of small products on its rows' tokens, added to a
//! projection's output.

use super::{Norm, Pass};
use tandem_contracts::tensor::{Binary, Device, Linear, Result, Tensor};

/// A matrix, perhaps of several joined modules, and its bias.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) linear: Linear,
    /// `[outputs]`.
    pub(crate) bias: Option<Tensor>,
}

/// How matrices that read the same input lie in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Each under its own name.
    Apart,
    /// As one, joined by their outputs.
    Joined,
}

impl Projection {
    /// `linear(x) + bias`: `[tokens, inputs]` gives `[tokens, outputs]`.
    pub(super) fn apply(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.add_bias(pass.device, pass.device.linear(x, &self.linear, pass.precision)?)
    }

    fn add_bias(&self, device: &Device, y: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => device.binary(Binary::Add, y, bias),
            None => Ok(y),
        }
    }
}

/// Where a branch begins: perhaps a norm, and a projection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) norm: Option<Norm>,
    pub(super) projection: Projection,
}

impl Entry {
    /// `linear(norm(x)) + bias`: `[tokens, inputs]` gives `[tokens, outputs]`.
    pub(super) fn apply(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let Some(norm) = &self.norm else { return self.projection.apply(x, pass) };
        let y = norm.then_linear(pass.device, x, &self.projection.linear, pass.precision)?;
        self.projection.add_bias(pass.device, y)
    }
}

/// Where a branch ends: a projection, perhaps a norm and a factor, and the sum with the activations between blocks.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(super) projection: Projection,
    pub(super) norm: Option<Norm>,
    pub(super) factor: Option<Tensor>,
}

impl Exit {
    /// `x + factor * norm(linear(inner) + bias)`.
    pub(crate) fn onto(&self, x: Tensor, inner: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let device = pass.device;
        let Self { projection, norm, factor } = self;
        if norm.is_none() && factor.is_none() {
            let y = device.linear_add(x, inner, &projection.linear, pass.precision)?;
            return projection.add_bias(device, y);
        }
        let mut y = projection.apply(inner, pass)?;
        if let Some(norm) = norm {
            y = norm.apply(device, &y)?;
        }
        if let Some(factor) = factor {
            y = device.binary(Binary::Multiply, y, factor)?;
        }
        device.binary(Binary::Add, x, &y)
    }
}
