//! What follows attention in a block: a gated unit, or experts of which each token has some.

use super::{Loader, Mlp, MlpDeclaration, Pass, Routed, RoutedDeclaration};
use crate::error;
use tandem_contracts::tensor::{Result, Tensor};

/// Which of both a block has.
#[derive(Clone, Debug)]
pub(crate) enum FeedForwardDeclaration {
    Gated(MlpDeclaration),
    Routed(Box<RoutedDeclaration>),
}

/// The loaded layer.
#[derive(Debug)]
pub(crate) enum FeedForward {
    Gated(Box<Mlp>),
    Routed(Box<Routed>),
}

impl FeedForward {
    /// Loads what the block at `path` has.
    pub(crate) fn load(
        declaration: &FeedForwardDeclaration,
        path: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        Ok(match declaration {
            FeedForwardDeclaration::Gated(unit) => Self::Gated(Box::new(Mlp::load(unit, path, loader)?)),
            FeedForwardDeclaration::Routed(routed) => {
                Self::Routed(Box::new(Routed::load(routed, path, loader)?))
            }
        })
    }

    /// What packed `x [tokens, hidden]` give, for [`Self::onto`].
    pub(crate) fn inner(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        match self {
            Self::Gated(unit) => unit.halves(x, pass),
            Self::Routed(routed) => routed.mix(x, pass),
        }
    }

    /// Adds that to the activations between blocks.
    pub(crate) fn onto(&self, x: Tensor, inner: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        match self {
            Self::Gated(unit) => unit.onto(x, &inner, pass),
            Self::Routed(routed) => routed.landing.onto(x, inner, pass),
        }
    }
}
