//! How far numbers may be from the goldens, and why: `fixtures/parity.toml`.
//!
//! Invariant: whatever is wider than the bar of its backend says why, family by family, and model by model where the
//! weights are real ones.

use crate::{Result, device::Backend};
use serde::Deserialize;
use std::{fs, path::Path};

/// The tolerances of all backends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerances {
    tolerance: Vec<Tolerance>,
    #[serde(default)]
    exception: Vec<Exception>,
    #[serde(default)]
    real: Vec<Weights>,
}

/// What one backend is held to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Families that one backend holds to another bar.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    backend: String,
    /// As their configurations call them.
    families: Vec<String>,
    logit_error: f32,
    reason: String,
}

/// What one backend is held to with one model's real weights.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    backend: String,
    /// As the folder of its goldens is called.
    model: String,
    /// Largest difference of a logit, and how near to each other two logits must be to change places.
    pub logit_error: f32,
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
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The tolerance of a family on a backend.
    ///
    /// # Errors
    /// None is stated, or a family stands in several exceptions.
    pub fn of(&self, backend: Backend, family: &str) -> Result<Tolerance> {
        let name = backend.to_string();
        let found = self.tolerance.iter().find(|tolerance| tolerance.backend == name);
        let mut tolerance =
            found.cloned().ok_or_else(|| format!("no tolerance is stated for backend: {name}"))?;
        let names = |it: &&Exception| it.backend == name && it.families.iter().any(|own| own == family);
        match &self.exception.iter().filter(names).collect::<Vec<_>>()[..] {
            [] => {}
            [one] => {
                tolerance.logit_error = one.logit_error;
                tolerance.reason.clone_from(&one.reason);
            }
            _ => return Err(format!("several tolerances are stated for {name} and family: {family}").into()),
        }
        Ok(tolerance)
    }

    /// The tolerance of a model with real weights on a backend.
    ///
    /// # Errors
    /// None is stated, or several are.
    pub fn of_real(&self, backend: Backend, model: &str) -> Result<&Weights> {
        let name = backend.to_string();
        let names = |it: &&Weights| it.backend == name && it.model == model;
        match &self.real.iter().filter(names).collect::<Vec<_>>()[..] {
            [one] => Ok(one),
            found => Err(format!("tolerances for {name} and model {model}: {}", found.len()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    const REAL: &str = r#"
        [[real]]
        backend = "mlx"
        model = "smollm2"
        logit_error = 2e-3
        reason = "three"
    "#;

    const TEXT: &str = r#"
        [[tolerance]]
        backend = "mlx"
        logit_error = 1e-5
        code_error = 1e-2
        margin = 1e-3
        reason = "one"

        [[exception]]
        backend = "mlx"
        families = ["llama", "qwen3"]
        logit_error = 5e-5
        reason = "two"
    "#;

    #[test]
    fn an_exception_replaces_the_bar_of_its_families() {
        let tolerances = Tolerances::parse(TEXT).unwrap();
        let error = |family| tolerances.of(Backend::Mlx, family).unwrap().logit_error;
        assert_eq!((error("mistral"), error("qwen3")), (1e-5, 5e-5));
        assert!(tolerances.of(Backend::Cpu, "llama").is_err());
    }

    #[test]
    fn two_exceptions_for_one_family_are_an_error() {
        let again = TEXT[TEXT.find("[[exception]]").unwrap()..].to_owned();
        let tolerances = Tolerances::parse(&format!("{TEXT}\n{again}")).unwrap();
        assert!(tolerances.of(Backend::Mlx, "llama").is_err());
        assert!(tolerances.of(Backend::Mlx, "mistral").is_ok());
    }

    #[test]
    fn real_weights_have_one_bar_for_each_backend() {
        let tolerances = |text: String| Tolerances::parse(&text).unwrap();
        let once = tolerances(format!("{TEXT}{REAL}"));
        assert_eq!(once.of_real(Backend::Mlx, "smollm2").unwrap().logit_error, 2e-3);
        assert!(
            once.of_real(Backend::Cpu, "smollm2").is_err() && once.of_real(Backend::Mlx, "llama").is_err()
        );
        assert!(tolerances(format!("{TEXT}{REAL}{REAL}")).of_real(Backend::Mlx, "smollm2").is_err());
    }

    #[test]
    fn the_stated_bars_are_those_of_the_project() {
        let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
        assert!(tolerances.of(Backend::Cpu, "any").unwrap().logit_error <= 2e-4);
        assert!(tolerances.of(Backend::Mlx, "any").unwrap().logit_error <= 1e-5);
        assert!(tolerances.exception.iter().all(|it| it.reason.len() > 40 && it.logit_error <= 6e-5));
        assert!(tolerances.real.iter().all(|it| it.reason.len() > 40 && it.logit_error <= 2e-4));
    }
}
