//! One block: attention and a gated unit, each onto the activations between blocks.

use super::{BlockDeclaration, Flow};
use crate::{
    error,
    layer::{Attention, LayerInput, LayerInputsDeclaration, Loader, Mlp, Pass},
};
use tandem_contracts::tensor::{Binary, Result, Tensor};

/// A loaded block.
#[derive(Debug)]
pub(super) struct Block {
    attention: Attention,
    mlp: Mlp,
    flow: Flow,
    /// The gate of the block's own part of the layer inputs.
    input: Option<LayerInput>,
    /// `[1]`, multiplies the block's result.
    factor: Option<Tensor>,
}

impl Block {
    pub(super) fn load(
        declaration: &BlockDeclaration,
        inputs: Option<&LayerInputsDeclaration>,
        layer: usize,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let path = &declaration.path;
        let scalar = |loader: &mut Loader<'_, '_>| loader.vector(&format!("{path}.layer_scalar"), 1);
        Ok(Self {
            attention: Attention::load(&declaration.attention, path, layer, loader)?,
            mlp: Mlp::load(&declaration.mlp, path, loader)?,
            flow: declaration.flow,
            input: inputs.map(|inputs| LayerInput::load(inputs, path, layer, loader)).transpose()?,
            factor: declaration.factor.then(|| scalar(loader)).transpose()?,
        })
    }

    /// `x [tokens, hidden]` through the block; `inputs` are those of all layers.
    pub(super) fn forward(&self, x: Tensor, inputs: Option<&Tensor>, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mixed = self.attention.mix(&x, pass)?;
        let x = match self.flow {
            Flow::Serial => {
                let x = self.attention.exit.onto(x, &mixed, pass)?;
                let inner = self.mlp.gate(&x, pass)?;
                self.mlp.exit.onto(x, &inner, pass)?
            }
            Flow::Parallel => {
                let inner = self.mlp.gate(&x, pass)?;
                let x = self.attention.exit.onto(x, &mixed, pass)?;
                self.mlp.exit.onto(x, &inner, pass)?
            }
        };
        let x = match (&self.input, inputs) {
            (Some(input), Some(inputs)) => input.onto(x, inputs, pass)?,
            _ => x,
        };
        match &self.factor {
            Some(factor) => pass.device.binary(Binary::Multiply, x, factor),
            None => Ok(x),
        }
    }
}
