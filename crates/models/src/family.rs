//! The families that are known, by `model_type`.

use crate::{
    config::Config,
    dense::Declaration,
    error::{Error, Result, printable},
    llama,
};

/// One family: how its configuration is read, and what graph it stands for.
#[derive(Debug)]
pub(crate) struct Family {
    /// Value of `model_type`.
    pub(crate) name: &'static str,
    /// Every so many layers one is not rotated, where the configuration does not list them.
    pub(crate) unrotated_interval: Option<usize>,
    /// The graph.
    pub(crate) declare: fn(&Config) -> Declaration,
}

static FAMILIES: [Family; 2] = [llama::LLAMA, llama::SMOLLM3];

/// The family of a model type.
pub(crate) fn find(name: &str) -> Result<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        Error::unsupported(format!("model type is not known (known: {known}): {}", printable(name)))
    })
}

/// Model types that are known.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}
