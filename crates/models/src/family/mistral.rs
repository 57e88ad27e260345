//! Mistral (Jiang et al., arXiv:2310.06825) is llama's graph; Ministral 3 adds queries that grow with their position.

use super::{Family, llama::LLAMA};
use crate::config::QueryGrowth;

/// `mistral`. A `sliding_window` counts only for the layers that `layer_types` names.
pub(crate) const MISTRAL: Family = Family { name: "mistral", ..LLAMA };

/// `ministral3`.
pub(crate) const MINISTRAL3: Family = Family {
    name: "ministral3",
    read: |fields, config| {
        config.query_growth = QueryGrowth::read(fields)?;
        Ok(())
    },
    ..LLAMA
};
