//! Layers that carry a state of fixed size from token to token, in the place of attention.
//!
//! ```text
//!   x -> norm, projection -> Net::enter -+- inputs -> Recurrence (state before -> state after) -+-> Net::leave -> exit
//!                                        \------------------- gate ----------------------------/
//! ```
//!
//! Invariant: only the [`Recurrence`] sees what earlier tokens left; before and behind it every token is by itself. So a
//! step is given up, or kept in part, by what the rows know of the recurrence alone.

mod convolution;
mod decay;
mod delta;
mod short;
mod space;

use super::{Entry, Exit, Loader, Norms, Pass, Stored};
use crate::{config::RecurrenceConfig, error};
use delta::DeltaNet;
use short::ShortNet;
use space::SpaceNet;
use std::{fmt, ops::Range, rc::Rc};
use tandem_contracts::tensor::{Device, Result, StateSpan, Tensor};
use tandem_kv::{
    Kind,
    recurrence::{Carried, Recurrence, State},
};

/// What distinguishes one such layer.
#[derive(Clone, Debug)]
pub(crate) struct RecurrentDeclaration {
    pub(crate) norms: Norms,
    pub(crate) net: RecurrenceConfig,
    /// Whether projections of a delta net lie apart, or are joined by key head.
    pub(crate) stored: Stored,
}

/// A loaded layer.
#[derive(Debug)]
pub(crate) struct Recurrent {
    layer: usize,
    entry: Entry,
    pub(crate) exit: Exit,
    net: Box<dyn Net>,
    recurrence: Rc<dyn Recurrence>,
}

/// What stands around a recurrence.
trait Net: fmt::Debug {
    /// Cuts what the entry projects, `[tokens, outputs]`, into the recurrence's inputs and what [`Net::leave`] takes.
    fn enter(&self, device: &Device, projected: &Tensor) -> Result<Entered>;

    /// What the exit takes, `[tokens, inner]`, of the recurrence's outputs.
    fn leave(&self, device: &Device, outputs: Tensor, gate: &Tensor) -> Result<Tensor>;
}

/// What comes of [`Net::enter`]; everything has tokens as its first axis.
struct Entered {
    inputs: Vec<Tensor>,
    gate: Tensor,
}

/// A net and its recurrence, with the projections around them.
struct Parts {
    /// Names of the modules that are projected to, with their outputs, below the layer's own.
    entry: Vec<(&'static str, usize)>,
    /// Inputs of `out_proj`.
    inner: usize,
    bias: bool,
    net: Box<dyn Net>,
    recurrence: Rc<dyn Recurrence>,
}

impl RecurrentDeclaration {
    /// What the layer keeps, where activations have a width of `hidden`.
    pub(crate) fn cached(&self, hidden: usize) -> Kind {
        Kind::Recurrent(match self.net {
            RecurrenceConfig::Short(config) => short::state(config, hidden),
            RecurrenceConfig::Delta(config) => delta::state(config),
            RecurrenceConfig::Space(config) => space::state(config),
        })
    }

    /// Name of the layer's module in its block.
    const fn module(&self) -> &'static str {
        match self.net {
            RecurrenceConfig::Short(_) => "conv",
            RecurrenceConfig::Delta(_) => "linear_attn",
            RecurrenceConfig::Space(_) => "mixer",
        }
    }
}

impl Recurrent {
    /// Loads layer `layer`, whose block is at `path`.
    pub(crate) fn load(
        declaration: &RecurrentDeclaration,
        path: &str,
        layer: usize,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let module = format!("{path}.{}", declaration.module());
        let Parts { entry, inner, bias, net, recurrence } = match declaration.net {
            RecurrenceConfig::Short(config) => ShortNet::load(config, &module, loader)?,
            RecurrenceConfig::Delta(config) => DeltaNet::load(config, declaration.stored, &module, loader)?,
            RecurrenceConfig::Space(config) => SpaceNet::load(config, &module, loader)?,
        };
        let norms = declaration.norms;
        let entry: Vec<_> =
            entry.into_iter().map(|(name, outputs)| (format!("{module}.{name}"), outputs)).collect();
        Ok(Self {
            layer,
            entry: loader.entry((path, norms), &entry, bias)?,
            exit: loader.exit((path, norms), &format!("{module}.out_proj"), inner, bias)?,
            net,
            recurrence,
        })
    }

    /// What the packed tokens `x [tokens, hidden]` get of their rows' states, for the exit; the states move on.
    pub(crate) fn mix(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let projected = self.entry.apply(x, pass)?;
        let Entered { inputs, gate } = self.net.enter(pass.device, &projected)?;
        let outputs = pass.rows.recur(self.layer, &inputs, &self.recurrence)?;
        self.net.leave(pass.device, outputs, &gate)
    }
}

/// Columns of `x [tokens, columns]`.
fn columns(device: &Device, x: &Tensor, columns: Range<usize>) -> Result<Tensor> {
    device.slice(x, &[0..x.shape()[0], columns])
}

/// Columns of `x`, as heads: `[tokens, heads, width]`.
fn heads(device: &Device, x: &Tensor, cut: Range<usize>, heads: usize) -> Result<Tensor> {
    let width = cut.len() / heads;
    device.reshape(&columns(device, x, cut)?, &[x.shape()[0], heads, width])
}

/// Each row's tokens and matrix.
fn matrices<'r>(rows: &'r [Carried<'_>]) -> Vec<StateSpan<'r>> {
    rows.iter().map(|row| StateSpan { tokens: row.tokens.clone(), state: &row.state.matrix }).collect()
}

/// States of tails and matrices.
fn joined(tails: Vec<Tensor>, matrices: Vec<Tensor>) -> Vec<State> {
    tails.into_iter().zip(matrices).map(|(tail, matrix)| State { tail, matrix }).collect()
}
