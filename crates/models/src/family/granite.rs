//! Granite 3 (IBM): llama's graph with a factor for each of embeddings, scores, branches and logits.

use super::{Family, llama::LLAMA};
use crate::{
    config::{Config, Fields},
    error::Result,
};

/// `granite`.
pub(crate) const GRANITE: Family = Family { name: "granite", read, ..LLAMA };

fn read(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    config.scales.embedding = fields.required("embedding_multiplier")?;
    config.scales.residual = fields.required("residual_multiplier")?;
    config.scales.scores = Some(fields.required("attention_multiplier")?);
    config.scales.logits = fields.required("logits_scaling")?.recip();
    Ok(())
}
