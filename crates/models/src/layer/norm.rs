//! Norms before and behind layers, and of heads.

use super::Loader;
use crate::{config::Normalisation, error};
use tandem_contracts::tensor::{Device, Linear, Precision, Result, Tensor};

/// Norms around a branch: their modules' names in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Norms {
    /// Of what the branch reads.
    pub(crate) before: Option<&'static str>,
    /// Of what the branch adds.
    pub(crate) after: Option<&'static str>,
}

impl Norms {
    pub(crate) const NONE: Self = Self { before: None, after: None };

    pub(crate) const fn before(name: &'static str) -> Self {
        Self { before: Some(name), after: None }
    }

    pub(crate) const fn after(name: &'static str) -> Self {
        Self { before: None, after: Some(name) }
    }

    pub(crate) const fn around(before: &'static str, after: &'static str) -> Self {
        Self { before: Some(before), after: Some(after) }
    }
}

/// A loaded norm, over the last axis.
#[derive(Clone, Debug)]
pub(crate) enum Norm {
    /// Root mean square.
    RootMeanSquare {
        /// `[width]`; 1 where there is none.
        weight: Option<Tensor>,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// Mean and variance.
    MeanAndVariance {
        /// `[width]`.
        weight: Tensor,
        /// Added to the variance.
        epsilon: f32,
    },
}

impl Norm {
    /// The norm of a configuration's kind with the weight of that module.
    pub(super) fn load(path: &str, width: usize, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let epsilon = loader.config.norm_epsilon;
        let weight = loader.vector(&format!("{path}.weight"), width)?;
        Ok(match loader.config.normalisation {
            Normalisation::RootMeanSquare => Self::RootMeanSquare { weight: Some(weight), epsilon },
            Normalisation::RootMeanSquareOfOnePlus => {
                Self::RootMeanSquare { weight: Some(loader.plus_one(weight)?), epsilon }
            }
            Normalisation::MeanAndVariance => Self::MeanAndVariance { weight, epsilon },
        })
    }

    /// Root mean square without a weight.
    pub(super) const fn unweighted(epsilon: f32) -> Self {
        Self::RootMeanSquare { weight: None, epsilon }
    }

    pub(super) fn apply(&self, device: &Device, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::RootMeanSquare { weight, epsilon } => device.rms_norm(x, weight.as_ref(), *epsilon),
            Self::MeanAndVariance { weight, epsilon } => device.layer_norm(x, Some(weight), None, *epsilon),
        }
    }

    /// `linear(norm(x))`, which devices may have fused.
    pub(crate) fn then_linear(
        &self,
        device: &Device,
        x: &Tensor,
        linear: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        match self {
            Self::RootMeanSquare { weight: Some(weight), epsilon } => {
                device.norm_linear(x, (weight, *epsilon), linear, precision)
            }
            _ => device.linear(&self.apply(device, x)?, linear, precision),
        }
    }
}
