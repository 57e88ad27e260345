//! Norms and projections, in the fused forms that devices may have faster.
//!
//! Residuals of mounted adapters belong here: each is a pair of small products on its rows' tokens, added to a
//! projection's output.

use tandem_contracts::tensor::{Binary, Device, Linear, Precision, Result, Tensor};

/// Root mean square norm.
#[derive(Debug)]
pub(crate) struct Norm {
    /// `[width]`.
    pub(crate) weight: Tensor,
    /// Added to the mean square.
    pub(crate) epsilon: f32,
}

/// A matrix, perhaps of several joined modules, and its bias.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) linear: Linear,
    /// `[outputs]`.
    pub(crate) bias: Option<Tensor>,
}

impl Projection {
    /// `linear(norm(x)) + bias`: `[tokens, inputs]` gives `[tokens, outputs]`.
    pub(crate) fn after_norm(
        &self,
        device: &Device,
        x: &Tensor,
        norm: &Norm,
        precision: Precision,
    ) -> Result<Tensor> {
        let y = device.norm_linear(x, (&norm.weight, norm.epsilon), &self.linear, precision)?;
        self.add_bias(device, y)
    }

    /// `residual + linear(x) + bias`.
    pub(crate) fn onto(
        &self,
        device: &Device,
        residual: Tensor,
        x: &Tensor,
        precision: Precision,
    ) -> Result<Tensor> {
        let y = device.linear_add(residual, x, &self.linear, precision)?;
        self.add_bias(device, y)
    }

    fn add_bias(&self, device: &Device, y: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => device.binary(Binary::Add, y, bias),
            None => Ok(y),
        }
    }
}
