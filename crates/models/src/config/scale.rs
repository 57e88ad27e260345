//! Numbers that keep activations in range, in families that train with them.

use super::{RopeConfig, field::Fields, missing};
use crate::error::Result;

/// Factors and bounds along the graph; each is without effect by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Multiplies embeddings.
    pub embedding: f32,
    /// Multiplies what attention and gated units add to the activations between layers.
    pub residual: f32,
    /// Multiplies logits.
    pub logits: f32,
    /// Multiplies the scores of attention; one over the root of the head's width where there is none.
    pub scores: Option<f32>,
    /// Scores become `cap * tanh(score / cap)`.
    pub score_cap: Option<f32>,
    /// As for scores, of logits.
    pub logit_cap: Option<f32>,
}

impl Default for Scales {
    fn default() -> Self {
        Self { embedding: 1.0, residual: 1.0, logits: 1.0, scores: None, score_cap: None, logit_cap: None }
    }
}

/// Queries that grow with their position: times `1 + rate * ln(1 + floor(position / context))` (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// Multiplies the logarithm.
    pub rate: f32,
    /// Positions of the original training; within them queries stay as they are.
    pub context: f32,
}

impl QueryGrowth {
    /// Reads `llama_4_scaling_beta` of the rotary block, where it stands.
    pub(crate) fn read(fields: Fields<'_>) -> Result<Option<Self>> {
        let Some(block) = RopeConfig::block(fields)? else { return Ok(None) };
        let Some(rate) = block.positive("llama_4_scaling_beta")? else { return Ok(None) };
        let key = "original_max_position_embeddings";
        let context = block.positive(key)?.ok_or_else(|| missing(&format!("rope_parameters.{key}")))?;
        Ok(Some(Self { rate: rate as f32, context: context as f32 }))
    }
}

/// Which norm stands before and behind layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalisation {
    /// Root mean square, times a weight.
    #[default]
    RootMeanSquare,
    /// Root mean square, times one plus a weight (Gemma 2 and 3).
    RootMeanSquareOfOnePlus,
    /// Mean and variance, times a weight (Ba et al., arXiv:1607.06450), without bias.
    MeanAndVariance,
}
