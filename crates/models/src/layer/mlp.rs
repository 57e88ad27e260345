//! The gated unit of a block (Shazeer, arXiv:2002.05202).

use super::{Entry, Exit, Loader, Norms, Pass, Stored};
use crate::error;
use tandem_contracts::tensor::{Activation, Result, Tensor};

/// What distinguishes one gated unit. Its gate and up are `gate_up_proj` where they are stored as one.
#[derive(Clone, Debug)]
pub(crate) struct MlpDeclaration {
    /// Module of the block that holds those of the unit, `mlp` in most files.
    pub(crate) module: &'static str,
    /// Gate, up and down in it; see [`MlpDeclaration::NAMES`].
    pub(crate) names: [&'static str; 3],
    pub(crate) norms: Norms,
    /// Width inside.
    pub(crate) width: usize,
    pub(crate) stored: Stored,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    /// Activation of the gate.
    pub(crate) activation: Activation,
}

impl MlpDeclaration {
    /// Names in most files.
    pub(crate) const NAMES: [&'static str; 3] = ["gate_proj", "up_proj", "down_proj"];
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
        let &MlpDeclaration { module, names: [gate, up, down], norms, width, stored, bias, activation } =
            declaration;
        let part = |name: &str, outputs: usize| (format!("{path}.{module}.{name}"), outputs);
        let joined = match stored {
            Stored::Apart => vec![part(gate, width), part(up, width)],
            Stored::Joined => vec![part("gate_up_proj", 2 * width)],
        };
        let entry = loader.entry((path, norms), &joined, bias)?;
        let exit = loader.exit((path, norms), &format!("{path}.{module}.{down}"), width, bias)?;
        Ok(Self { entry, exit, activation })
    }

    /// `activation(gate(norm(x))) * up(norm(x))` for packed `x [tokens, hidden]`.
    pub(crate) fn gate(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        pass.device.gated(&self.halves(x, pass)?, self.activation)
    }

    /// `gate(norm(x))` and `up(norm(x))` side by side.
    pub(super) fn halves(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.entry.apply(x, pass)
    }

    /// `x` with what the halves give.
    pub(super) fn onto(&self, x: Tensor, halves: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.exit.gated_onto(x, (halves, self.activation), pass)
    }
}
