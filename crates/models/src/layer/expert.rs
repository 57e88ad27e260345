//! Gated units of which each token has some: their matrices lie in stacks, and rows are multiplied with those of their
//! own experts.
//!
//! Invariant: what a token gets is the sum over its experts in the order of its choice, so that it depends on no other
//! token. Rows are brought together by expert inside the device's product, where that pays.

mod stored;

use super::{Loader, Norm, Norms, Pass, router::Choice};
use crate::{
    config::ExpertConfig,
    error::{self, Error},
};
use stored::Stored;
use tandem_contracts::tensor::{Activation, Binary, Device, Linear, Reduce, Result, Scalar, Tensor, Unary};

/// What distinguishes the experts of one block.
#[derive(Clone, Debug)]
pub(crate) struct ExpertsDeclaration {
    pub(crate) extents: ExpertConfig,
    pub(crate) names: ExpertNames,
    /// Norms of what the experts read and of their sum, besides those around the whole layer.
    pub(crate) norms: Norms,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    pub(crate) gate: ExpertGate,
}

/// Under which names files hold the matrices, in one of four forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertNames {
    /// Module of the block whose `gate_proj`, `up_proj` and `down_proj` are stacks.
    pub(crate) stacked: &'static str,
    /// Module of the block that holds a module for each expert, by number; or two stacks that are no modules,
    /// `gate_up_proj` (each expert's gate, then its up) and `down_proj`; or these in MXFP4 as gpt-oss's authors have them,
    /// `_blocks` and `_scales`, with rows of gate and up in turn.
    pub(crate) apart: &'static str,
    /// Gate, up and down of an expert that has a module.
    pub(crate) own: [&'static str; 3],
}

/// How an expert's gate acts on its other half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExpertGate {
    /// As in a gated unit.
    Plain(Activation),
    /// `gate * sigmoid(slope * gate) * (up + 1)`, with gates of at most `limit` and ups within it.
    Clamped {
        /// Largest magnitude.
        limit: f32,
        /// Slope of the sigmoid.
        slope: f32,
    },
}

/// The loaded experts of one block.
#[derive(Debug)]
pub(super) struct Experts {
    before: Option<Norm>,
    after: Option<Norm>,
    /// Gate and up, joined.
    entry: Stack,
    exit: Stack,
    gate: ExpertGate,
}

/// Matrices of all experts.
#[derive(Debug)]
struct Stack {
    linear: Linear,
    /// `[experts, outputs]`.
    bias: Option<Tensor>,
}

impl Experts {
    /// Loads the experts of the block at `path`.
    pub(super) fn load(
        declaration: &ExpertsDeclaration,
        path: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let &ExpertsDeclaration { extents, names, norms, bias, gate } = declaration;
        let ExpertConfig { count, width, .. } = extents;
        let hidden = loader.config.hidden;
        let files = Stored::find(&names, path, loader)?;
        if let (Some(name), ExpertGate::Clamped { .. }) = (files.joint(), gate) {
            let message = "its gates lie between its ups, which is read in MXFP4 only: convert the model with mlx_lm.convert";
            return Err(Error::unsupported(message).of_tensor(&name));
        }
        let entry = files.entry([count, width, hidden], loader)?;
        let entry = loader.prepare(entry)?;
        let exit = files.exit([count, hidden, width], loader)?;
        let exit = loader.prepare(vec![exit])?;
        let (mut entry_bias, mut exit_bias) = (None, None);
        if bias {
            entry_bias = Some(files.entry_bias([count, width], loader)?);
            exit_bias = Some(files.exit_bias([count, hidden], loader)?);
        }
        Ok(Self {
            entry: Stack { linear: entry, bias: entry_bias },
            exit: Stack { linear: exit, bias: exit_bias },
            before: loader.branch_norm(path, norms.before)?,
            after: loader.branch_norm(path, norms.after)?,
            gate,
        })
    }

    /// The sum of what each token's experts give for it, times their shares: `x [tokens, hidden]` gives as much.
    pub(super) fn mix(&self, x: &Tensor, choice: &Choice, pass: &Pass<'_>) -> Result<Tensor> {
        let device = pass.device;
        let [tokens, hidden] = [x.shape()[0], x.shape()[1]];
        let chosen = choice.experts.shape()[1];
        let inner = match &self.before {
            Some(norm) => self.entry.apply(&norm.apply(device, x)?, &choice.experts, pass)?,
            None => self.entry.apply(x, &choice.experts, pass)?,
        };
        let inner = device.reshape(&inner, &[tokens * chosen, inner.shape()[2]])?;
        let inner = self.gate.apply(&inner, device)?;
        let each = device.reshape(&choice.experts, &[tokens * chosen, 1])?;
        let y = self.exit.apply(&inner, &each, pass)?;
        let y = device.reshape(&y, &[tokens, chosen, hidden])?;
        let shares = device.reshape(&choice.shares, &[tokens, chosen, 1])?;
        let y = device.reduce(Reduce::Sum, &device.binary(Binary::Multiply, y, &shares)?, 1)?;
        let y = device.reshape(&y, &[tokens, hidden])?;
        match &self.after {
            Some(norm) => norm.apply(device, &y),
            None => Ok(y),
        }
    }
}

impl Stack {
    /// `[rows, inputs]` with each row's experts `i32 [rows, choices]`: `[rows, choices, outputs]`.
    fn apply(&self, x: &Tensor, experts: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let y = pass.device.gather_linear(x, &self.linear, experts, pass.precision)?;
        match &self.bias {
            Some(bias) => pass.device.binary(Binary::Add, y, &pass.device.take(bias, experts, 0)?),
            None => Ok(y),
        }
    }
}

impl ExpertGate {
    /// `[rows, 2 n]`, gates and then ups, gives `[rows, n]`.
    fn apply(self, gate_up: &Tensor, device: &Device) -> Result<Tensor> {
        let (limit, slope) = match self {
            Self::Plain(activation) => return device.gated(gate_up, activation),
            Self::Clamped { limit, slope } => (limit, slope),
        };
        let (rows, width) = (gate_up.shape()[0], gate_up.shape()[1] / 2);
        let number = |value| device.full(Scalar::Float(value), gate_up.dtype(), &[]);
        let gate = device.slice(gate_up, &[0..rows, 0..width])?;
        let gate = device.binary(Binary::Minimum, gate, &number(limit)?)?;
        let up = device.slice(gate_up, &[0..rows, width..2 * width])?;
        let up = device.binary(Binary::Minimum, up, &number(limit)?)?;
        let up = device.binary(Binary::Maximum, up, &number(-limit)?)?;
        let open = device.binary(Binary::Multiply, gate.clone(), &number(slope)?)?;
        let gate = device.binary(Binary::Multiply, gate, &device.unary(Unary::Sigmoid, open)?)?;
        device.binary(Binary::Multiply, device.binary(Binary::Add, up, &number(1.0)?)?, &gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::fake;

    #[test]
    fn clamped_gates_are_bounded_above_and_ups_on_both_sides() {
        let device = fake::open();
        let gate = ExpertGate::Clamped { limit: 2.0, slope: 1.5 };
        let open = |gate: f32| gate / (1.0 + (-1.5 * gate).exp());
        for (gate_up, expected) in [
            ([1.0, 0.5], 1.5 * open(1.0)),
            ([9.0, 0.5], 1.5 * open(2.0)),
            ([-9.0, 0.5], 1.5 * open(-9.0)),
            ([1.0, 9.0], 3.0 * open(1.0)),
            ([1.0, -9.0], -open(1.0)),
        ] {
            let x = device.upload_f32(&gate_up, &[1, 2]).unwrap();
            let got = gate.apply(&x, &device).unwrap().to_vec::<f32>().unwrap();
            assert!((got[0] - expected).abs() < 1e-6, "{gate_up:?}: {got:?} is not {expected}");
        }
    }
}
