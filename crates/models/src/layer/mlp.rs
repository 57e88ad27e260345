//! The gated unit of a block (Shazeer, arXiv:2002.05202).

use super::{Loader, Norm, Pass, Projection};
use crate::error;
use tandem_contracts::tensor::{Activation, Result, Tensor};

/// What distinguishes one gated unit.
#[derive(Clone, Debug)]
pub(crate) struct MlpDeclaration {
    /// Module of the norm before it.
    pub(crate) norm: String,
    /// Module that holds `gate_proj`, `up_proj` and `down_proj`.
    pub(crate) path: String,
    /// Width inside.
    pub(crate) width: usize,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    /// Activation of the gate.
    pub(crate) activation: Activation,
}

/// A loaded gated unit.
#[derive(Debug)]
pub(crate) struct Mlp {
    norm: Norm,
    /// Gate and up, joined.
    input: Projection,
    output: Projection,
    activation: Activation,
}

impl Mlp {
    pub(crate) fn load(declaration: &MlpDeclaration, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let MlpDeclaration { norm, path, width, bias, activation } = declaration;
        let hidden = loader.config.hidden;
        let joined = [(format!("{path}.gate_proj"), *width), (format!("{path}.up_proj"), *width)];
        Ok(Self {
            norm: loader.norm(norm)?,
            input: loader.projection(&joined, hidden, *bias)?,
            output: loader.projection(&[(format!("{path}.down_proj"), hidden)], *width, *bias)?,
            activation: *activation,
        })
    }

    /// `x + down(activation(gate(norm(x))) * up(norm(x)))` for packed `x [tokens, hidden]`.
    pub(crate) fn forward(&self, x: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let joined = self.input.after_norm(pass.device, &x, &self.norm, pass.precision)?;
        let inner = pass.device.gated(&joined, self.activation)?;
        drop(joined);
        self.output.onto(pass.device, x, &inner, pass.precision)
    }
}
