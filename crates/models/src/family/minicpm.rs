//! MiniCPM (Hu et al., arXiv:2404.06395): llama's graph with scaled embeddings, branches and logits.

use super::{Family, llama::LLAMA};
use crate::{
    config::{Config, Fields},
    error::Result,
};

/// `minicpm`.
pub(crate) const MINICPM: Family =
    Family { name: "minicpm", defaults: &[("rope_theta", 1e6)], read, ..LLAMA };

fn read(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    config.scales.embedding = fields.required("scale_emb")?;
    config.scales.residual = fields.required("scale_depth")? / (config.layers.len() as f32).sqrt();
    // Logits of a head that is declared to be the embedding are not scaled, as in mlx-lm; where files merely lack a
    // head they are.
    let base = fields.required("dim_model_base")?;
    if config.tied != Some(true) {
        config.scales.logits = base / config.hidden as f32;
        config.tied = None;
    }
    Ok(())
}
