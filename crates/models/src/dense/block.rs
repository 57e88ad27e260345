//! One block: attention, or what stands in its place, and a gated unit or experts, each onto the activations between
//! blocks.

use super::{BlockDeclaration, Flow};
use crate::{
    error,
    layer::{Attention, Exit, FeedForward, LayerInput, LayerInputsDeclaration, Loader, Pass, Recurrent},
};
use tandem_contracts::tensor::{Binary, Result, Tensor};

/// A loaded block.
#[derive(Debug)]
pub(super) struct Block {
    mixer: Mixer,
    /// None where the flow has none.
    feed_forward: Option<FeedForward>,
    flow: Flow,
    /// The gate of the block's own part of the layer inputs.
    input: Option<LayerInput>,
    /// `[1]`, multiplies the block's result.
    factor: Option<Tensor>,
}

/// What brings a row's tokens together.
#[derive(Debug)]
enum Mixer {
    Attention(Box<Attention>),
    Recurrent(Box<Recurrent>),
}

impl Mixer {
    fn load(
        declaration: &BlockDeclaration,
        layer: usize,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let BlockDeclaration { path, attention, recurrent, .. } = declaration;
        Ok(match recurrent {
            Some(recurrent) => Self::Recurrent(Box::new(Recurrent::load(recurrent, path, layer, loader)?)),
            None => Self::Attention(Box::new(Attention::load(attention, path, layer, loader)?)),
        })
    }

    /// What packed `x [tokens, hidden]` get of their rows, for the exit.
    fn mix(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        match self {
            Self::Attention(attention) => attention.mix(x, pass),
            Self::Recurrent(recurrent) => recurrent.mix(x, pass),
        }
    }

    fn exit(&self) -> &Exit {
        match self {
            Self::Attention(attention) => &attention.exit,
            Self::Recurrent(recurrent) => &recurrent.exit,
        }
    }
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
            mixer: Mixer::load(declaration, layer, loader)?,
            feed_forward: match declaration.flow {
                Flow::Alone => None,
                Flow::Serial | Flow::Parallel => {
                    Some(FeedForward::load(&declaration.feed_forward, path, loader)?)
                }
            },
            flow: declaration.flow,
            input: inputs.map(|inputs| LayerInput::load(inputs, path, layer, loader)).transpose()?,
            factor: declaration.factor.then(|| scalar(loader)).transpose()?,
        })
    }

    /// `x [tokens, hidden]` through the block; `inputs` are those of all layers.
    pub(super) fn forward(&self, x: Tensor, inputs: Option<&Tensor>, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mixed = self.mixer.mix(&x, pass)?;
        let exit = self.mixer.exit();
        let x = match (&self.feed_forward, self.flow) {
            (None, _) | (_, Flow::Alone) => exit.onto(x, &mixed, pass)?,
            (Some(feed_forward), Flow::Serial) => {
                let x = exit.onto(x, &mixed, pass)?;
                let inner = feed_forward.inner(&x, pass)?;
                feed_forward.onto(x, inner, pass)?
            }
            (Some(feed_forward), Flow::Parallel) => {
                let inner = feed_forward.inner(&x, pass)?;
                let x = exit.onto(x, &mixed, pass)?;
                feed_forward.onto(x, inner, pass)?
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
