//! Mixtures of experts: how many there are, and which layers have them.

use super::{MOST, WIDEST, field::Fields, layer::LayerConfig, missing};
use crate::error::{Error, Result};

/// Extents of the experts of a model; those of all its layers agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertConfig {
    /// Experts of a layer.
    pub count: usize,
    /// Those that each token goes to, at most all.
    pub chosen: usize,
    /// Width inside an expert.
    pub width: usize,
    /// Whether shares are of the chosen experts alone, so that they sum to 1.
    pub normalised: bool,
    /// Width of a gated unit that every token has besides, where there is one.
    pub company: Option<usize>,
}

/// Names of these fields, which families do not share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertFields {
    pub(crate) count: &'static str,
    pub(crate) chosen: &'static str,
    pub(crate) width: &'static str,
}

impl ExpertConfig {
    /// Reads the extents.
    ///
    /// # Errors
    /// A field that is missing, 0 or too large, or a token with more experts than there are.
    pub(crate) fn read(fields: Fields<'_>, names: &ExpertFields) -> Result<Self> {
        let count = |name, most| fields.count(name, most)?.ok_or_else(|| missing(name));
        let all = count(names.count, MOST)?;
        Ok(Self {
            count: all,
            chosen: count(names.chosen, all as u64)?,
            width: count(names.width, WIDEST)?,
            normalised: true,
            company: None,
        })
    }
}

/// Reads which layers have experts: one in `decoder_sparse_step`, the last of each such group, but none that
/// `mlp_only_layers` lists.
pub(crate) fn read_routed(fields: Fields<'_>, layers: &mut [LayerConfig]) -> Result<()> {
    let step = fields.count("decoder_sparse_step", MOST)?.unwrap_or(1);
    for (index, layer) in layers.iter_mut().enumerate() {
        layer.routed = (index + 1).is_multiple_of(step);
    }
    let key = "mlp_only_layers";
    for value in fields.list(key)?.into_iter().flatten() {
        let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
        let layer = index.and_then(|index| layers.get_mut(index));
        layer.ok_or_else(|| Error::config(format!("{key} names no layer: {value}")))?.routed = false;
    }
    Ok(())
}
