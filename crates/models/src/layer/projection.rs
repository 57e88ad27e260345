//! Projections into and out of a branch, in the fused forms that devices may have faster.
//!
//! What mounted adapters add comes last: to the product and its bias, and at the end of a branch without a norm to the sum
//! with what was before. So rows without adapters have the same numbers whoever is beside them.

use super::{Norm, Pass};
use tandem_contracts::tensor::{Activation, Binary, Device, Linear, Precision, Result, Tensor};

/// A matrix, perhaps of several joined modules, and its bias.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) linear: Linear,
    /// `[outputs]`.
    pub(crate) bias: Option<Tensor>,
    /// Number under which adapters know it, if it takes some.
    pub(super) number: Option<usize>,
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
        self.adapt(self.apply_in(x, pass.device, pass.precision)?, (x, None), pass)
    }

    /// The same in a given precision.
    pub(super) fn apply_in(&self, x: &Tensor, device: &Device, precision: Precision) -> Result<Tensor> {
        self.add_bias(device, device.linear(x, &self.linear, precision)?)
    }

    /// Adds what rows' adapters have for it, to what it gives of `x` through the norm.
    fn adapt(&self, y: Tensor, x: (&Tensor, Option<&Norm>), pass: &Pass<'_>) -> Result<Tensor> {
        let Some(number) = self.number else { return Ok(y) };
        pass.adapted.iter().try_fold(y, |y, adapted| adapted.onto(y, x, number, pass.device))
    }

    /// Whether some row's adapter may have something for it.
    fn is_adapted(&self, pass: &Pass<'_>) -> bool {
        self.number.is_some() && !pass.adapted.is_empty()
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
        let y = self.projection.add_bias(pass.device, y)?;
        self.projection.adapt(y, (x, Some(norm)), pass)
    }
}

/// Where a branch ends: a projection, and how that comes onto the activations between blocks.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(super) projection: Projection,
    pub(super) landing: Landing,
}

impl Exit {
    /// `x + factor * norm(linear(inner) + bias)`.
    pub(crate) fn onto(&self, x: Tensor, inner: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let Self { projection, landing } = self;
        if landing.is_plain() {
            let y = pass.device.linear_add(x, inner, &projection.linear, pass.precision)?;
            return projection.adapt(projection.add_bias(pass.device, y)?, (inner, None), pass);
        }
        landing.onto(x, projection.apply(inner, pass)?, pass)
    }

    /// The same of what a gated unit makes of its halves.
    pub(super) fn gated_onto(
        &self,
        x: Tensor,
        (halves, activation): (&Tensor, Activation),
        pass: &Pass<'_>,
    ) -> Result<Tensor> {
        let Self { projection, landing } = self;
        if !landing.is_plain() || projection.is_adapted(pass) {
            return self.onto(x, &pass.device.gated(halves, activation)?, pass);
        }
        let y = pass.device.gated_linear_add(x, (halves, activation), &projection.linear, pass.precision)?;
        projection.add_bias(pass.device, y)
    }

    /// `norm(linear(inner) + bias)`: what the branch would add, for what is mixed before it is added.
    pub(super) fn value(&self, inner: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.landing.normed(self.projection.apply(inner, pass)?, pass)
    }
}

/// How a branch comes onto the activations between blocks: perhaps through a norm, and times a factor.
#[derive(Debug)]
pub(crate) struct Landing {
    pub(super) norm: Option<Norm>,
    pub(super) factor: Option<Tensor>,
}

impl Landing {
    /// Whether the branch is only added.
    fn is_plain(&self) -> bool {
        self.norm.is_none() && self.factor.is_none()
    }

    /// `x + factor * norm(y)`.
    pub(super) fn onto(&self, x: Tensor, y: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let mut y = self.normed(y, pass)?;
        if let Some(factor) = &self.factor {
            y = pass.device.binary(Binary::Multiply, y, factor)?;
        }
        pass.device.binary(Binary::Add, x, &y)
    }

    fn normed(&self, y: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        match &self.norm {
            Some(norm) => norm.apply(pass.device, &y),
            None => Ok(y),
        }
    }
}
