//! The decoder that dense families share: an embedding, blocks of attention and a gated unit, a norm, a head.
//!
//! ```text
//!   ids -> embedding -> [ + attention(norm) -> + mlp(norm) ] x blocks -> rows that want logits -> norm -> head
//! ```
//!
//! A family is a [`Declaration`] made from its configuration; nothing here knows one by name.

mod block;
mod declaration;

pub(crate) use declaration::{BlockDeclaration, Declaration, Flow};

use crate::{
    error,
    layer::{LayerInputs, Loader, Norm, Pass},
};
use block::Block;
use tandem_contracts::tensor::{Binary, Dtype, Linear, Result, Scalar, Tensor, Unary};

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Decoder {
    embedding: Linear,
    embedding_scale: Option<Tensor>,
    inputs: Option<LayerInputs>,
    blocks: Vec<Block>,
    norm: Norm,
    /// None where the embedding is the head.
    head: Option<Linear>,
    logit_scale: f32,
    logit_cap: Option<f32>,
}

impl Decoder {
    /// Loads every weight and makes sure that none is left over.
    pub(crate) fn load(declaration: &Declaration, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let config = loader.config;
        let head_weight = format!("{}.weight", declaration.head);
        let tied = config.tied.unwrap_or_else(|| !loader.weights.contains(&head_weight));
        loader.weights.discard(|name| {
            declaration.unneeded.iter().any(|part| names(name, part)) || (tied && name == head_weight)
        });
        let embedding = loader.linear(&declaration.embedding, config.vocabulary, config.hidden)?;
        let inputs = declaration.inputs.as_ref();
        let blocks = declaration.blocks.iter().enumerate();
        let blocks = blocks
            .map(|(layer, block)| Block::load(block, inputs, layer, loader))
            .collect::<error::Result<_>>()?;
        let inputs = inputs.map(|inputs| LayerInputs::load(inputs, loader));
        let norm = loader.norm(&declaration.norm, config.hidden)?;
        let head = match tied {
            true => None,
            false => Some(loader.linear(&declaration.head, config.vocabulary, config.hidden)?),
        };
        let decoder = Self {
            embedding,
            embedding_scale: loader.factor(config.scales.embedding)?,
            inputs: inputs.transpose()?,
            blocks,
            norm,
            head,
            logit_scale: config.scales.logits,
            logit_cap: config.scales.logit_cap,
        };
        loader.finish()?;
        Ok(decoder)
    }

    /// Runs packed tokens through all blocks: ids `i32 [tokens]` give `[tokens, hidden]`.
    pub(crate) fn forward(&self, ids: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = pass.device.embed(&self.embedding, ids)?;
        if let Some(scale) = &self.embedding_scale {
            x = pass.device.binary(Binary::Multiply, x, scale)?;
        }
        let inputs = self.inputs.as_ref().map(|inputs| inputs.of(ids, &x, pass)).transpose()?;
        for block in &self.blocks {
            x = block.forward(x, inputs.as_ref(), pass)?;
        }
        Ok(x)
    }

    /// Logits of activations: `[rows, hidden]` give f32 `[rows, vocabulary]`.
    pub(crate) fn logits(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let device = pass.device;
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        let mut logits = self.norm.then_linear(device, x, head, pass.precision)?;
        if logits.dtype() != Dtype::F32 {
            logits = device.cast(&logits, Dtype::F32)?;
        }
        let number = |value: f32| device.full(Scalar::Float(value), Dtype::F32, &[]);
        if self.logit_scale != 1.0 {
            logits = device.binary(Binary::Multiply, logits, &number(self.logit_scale)?)?;
        }
        let Some(cap) = self.logit_cap else { return Ok(logits) };
        let cap = number(cap)?;
        let logits = device.unary(Unary::Tanh, device.binary(Binary::Divide, logits, &cap)?)?;
        device.binary(Binary::Multiply, logits, &cap)
    }
}

/// Whether a part of a tensor's path stands in its name, from the beginning of a module's name on.
fn names(name: &str, part: &str) -> bool {
    name.match_indices(part).any(|(at, _)| at == 0 || name[..at].ends_with('.'))
}
