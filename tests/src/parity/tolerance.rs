//! How far numbers may be from the goldens, and why: `fixtures/parity.toml`.

use crate::{Result, device::Backend};
use serde::Deserialize;
use std::{fs, path::Path};

/// The tolerances of all backends.
#[derive(Clone, Debug, Deserialize)]
pub struct Tolerances {
    tolerance: Vec<Tolerance>,
}

/// What one backend is held to.
#[derive(Clone, Debug, Deserialize)]
pub struct Tolerance {
    backend: String,
    /// Largest difference of a logit or log-probability.
    pub logit_error: f32,
    /// The same over quantised caches, where a key near a tie may take the next code.
    pub code_error: f32,
    /// Golden tokens whose two best logits are closer than this decide nothing.
    pub margin: f32,
    /// Why it is as large as it is.
    pub reason: String,
}

impl Tolerances {
    /// Reads the file.
    ///
    /// # Errors
    /// It is missing or malformed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(toml::from_str(&text)?)
    }

    /// The tolerance of a backend.
    ///
    /// # Errors
    /// None is stated.
    pub fn of(&self, backend: Backend) -> Result<&Tolerance> {
        let name = backend.to_string();
        let found = self.tolerance.iter().find(|tolerance| tolerance.backend == name);
        found.ok_or_else(|| format!("no tolerance is stated for backend: {name}").into())
    }
}
