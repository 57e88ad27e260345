//! The decoder that dense families share: an embedding, blocks of attention and a gated unit, a norm, a head.
//!
//! ```text
//!   ids -> embedding -> [ + attention(norm) -> + mlp(norm) ] x blocks -> rows that want logits -> norm -> head
//! ```
//!
//! A family is a [`Declaration`] made from its configuration; nothing here knows one by name.

use crate::{
    error,
    layer::{Attention, AttentionDeclaration, Loader, Mlp, MlpDeclaration, Norm, Pass},
};
use tandem_contracts::tensor::{Dtype, Linear, Result, Tensor};
use tandem_kv::LayerShape;

/// A family's graph.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// Module of the embedding.
    pub(crate) embedding: &'static str,
    /// Module of the last norm.
    pub(crate) norm: &'static str,
    /// Module of the head, where it is not the embedding.
    pub(crate) head: &'static str,
    /// The blocks in order.
    pub(crate) blocks: Vec<BlockDeclaration>,
    /// Ends of names of tensors that files may hold and the model does not use.
    pub(crate) unneeded: &'static [&'static str],
}

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct BlockDeclaration {
    pub(crate) attention: AttentionDeclaration,
    pub(crate) mlp: MlpDeclaration,
}

impl Declaration {
    /// What each layer keeps of each token.
    pub(crate) fn cached(&self) -> Vec<LayerShape> {
        self.blocks.iter().map(|block| block.attention.cached()).collect()
    }
}

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Decoder {
    embedding: Linear,
    blocks: Vec<(Attention, Mlp)>,
    norm: Norm,
    /// None where the embedding is the head.
    head: Option<Linear>,
}

impl Decoder {
    /// Loads every weight and makes sure that none is left over.
    pub(crate) fn load(declaration: &Declaration, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let config = loader.config;
        let head_weight = format!("{}.weight", declaration.head);
        let tied = config.tied.unwrap_or_else(|| !loader.weights.contains(&head_weight));
        loader.weights.discard(|name| {
            declaration.unneeded.iter().any(|end| name.ends_with(end)) || (tied && name == head_weight)
        });
        let rope = loader.rope(config.head_width)?;
        let embedding = loader.linear(declaration.embedding, config.vocabulary, config.hidden)?;
        let blocks = declaration
            .blocks
            .iter()
            .enumerate()
            .map(|(layer, block)| {
                let attention = Attention::load(&block.attention, layer, Some(&rope), loader)?;
                Ok((attention, Mlp::load(&block.mlp, loader)?))
            })
            .collect::<error::Result<_>>()?;
        let norm = loader.norm(declaration.norm)?;
        let head = match tied {
            true => None,
            false => Some(loader.linear(declaration.head, config.vocabulary, config.hidden)?),
        };
        loader.finish()?;
        Ok(Self { embedding, blocks, norm, head })
    }

    /// Runs packed tokens through all blocks: ids `i32 [tokens]` give `[tokens, hidden]`.
    pub(crate) fn forward(&self, ids: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = pass.device.embed(&self.embedding, ids)?;
        for (attention, mlp) in &self.blocks {
            x = attention.forward(x, pass)?;
            x = mlp.forward(x, pass)?;
        }
        Ok(x)
    }

    /// Logits of activations: `[rows, hidden]` give f32 `[rows, vocabulary]`.
    pub(crate) fn logits(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let norm = (&self.norm.weight, self.norm.epsilon);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        let logits = pass.device.norm_linear(x, norm, head, pass.precision)?;
        if logits.dtype() == Dtype::F32 { Ok(logits) } else { pass.device.cast(&logits, Dtype::F32) }
    }
}
