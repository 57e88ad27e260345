//! The gated unit of a block (Shazeer, arXiv:2002.05202).

use super::{Entry, Exit, Loader, Norms, Pass, Stored};
use crate::error;
use tandem_contracts::tensor::{Activation, Result, Tensor};

/// What distinguishes one gated unit. Its modules are `gate_proj`, `up_proj` and `down_proj` of the block's `mlp`; the
/// first two are `gate_up_proj` where they are stored as one.
#[derive(Clone, Debug)]
pub(crate) struct MlpDeclaration {
    pub(crate) norms: Norms,
    /// Width inside.
    pub(crate) width: usize,
    pub(crate) stored: Stored,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    /// Activation of the gate.
    pub(crate) activation: Activation,
}

/// A loaded gated unit.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// Gate and up, joined.
    entry: Entry,
    pub(crate) exit: Exit,
    activation: Activation,
}

impl Mlp {
    /// Loads the unit of the block at `path`.
    pub(crate) fn load(
        declaration: &MlpDeclaration,
        path: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let &MlpDeclaration { norms, width, stored, bias, activation } = declaration;
        let part = |name: &str, outputs: usize| (format!("{path}.mlp.{name}"), outputs);
        let joined = match stored {
            Stored::Apart => vec![part("gate_proj", width), part("up_proj", width)],
            Stored::Joined => vec![part("gate_up_proj", 2 * width)],
        };
        let entry = loader.entry((path, norms), &joined, bias)?;
        let exit = loader.exit((path, norms), &format!("{path}.mlp.down_proj"), width, bias)?;
        Ok(Self { entry, exit, activation })
    }

    /// `activation(gate(norm(x))) * up(norm(x))` for packed `x [tokens, hidden]`.
    pub(crate) fn gate(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        pass.device.gated(&self.entry.apply(x, pass)?, self.activation)
    }
}
