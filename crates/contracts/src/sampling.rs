//! How one row chooses its next token. Plain values, validated once where a request enters.
//!
//! Invariant: with equal parameters, seed, history and logits a row samples the same token, whatever else runs.

use crate::text::TokenId;

/// Sampling parameters of one request. [`Default`] is plain sampling at temperature 1 with every filter off.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy (the smallest id among equal maxima).
    pub temperature: f32,
    /// Keeps the smallest set of most likely tokens whose probability reaches this; 1 is off.
    pub top_p: f32,
    /// Keeps this many most likely tokens; 0 is off.
    pub top_k: u32,
    /// Drops tokens less likely than this fraction of the most likely one; 0 is off.
    pub min_p: f32,
    /// Seed of the counter-based generator; the same seed gives the same tokens.
    pub seed: u64,
    /// Added to the logits of single tokens before anything else.
    pub logit_bias: Vec<(TokenId, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: 0, logit_bias: Vec::new() }
    }
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {expected}, got: {value}")]
pub struct SamplingError {
    /// Name of the field as clients write it.
    pub field: &'static str,
    /// What would be accepted.
    pub expected: &'static str,
    /// What was given.
    pub value: f64,
}

impl Sampling {
    /// Greedy decoding: the most likely token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether no random number is drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every range; NaN is outside all of them.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let check = |field, value: f32, low: f32, high: f32, expected| {
            if value >= low && value <= high {
                Ok(())
            } else {
                Err(SamplingError { field, expected, value: f64::from(value) })
            }
        };
        check("temperature", self.temperature, 0.0, 100.0, "a number from 0 to 100")?;
        check("top_p", self.top_p, f32::MIN_POSITIVE, 1.0, "a number above 0 and at most 1")?;
        check("min_p", self.min_p, 0.0, 1.0, "a number from 0 to 1")?;
        for &(_, bias) in &self.logit_bias {
            check("logit_bias", bias, -100.0, 100.0, "a number from -100 to 100")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_and_nan_is_in_none() {
        assert_eq!(Sampling::default().validate(), Ok(()));
        assert_eq!(Sampling::greedy().validate(), Ok(()));
        for (field, bad) in [
            ("temperature", Sampling { temperature: -0.1, ..Sampling::default() }),
            ("temperature", Sampling { temperature: f32::NAN, ..Sampling::default() }),
            ("top_p", Sampling { top_p: 0.0, ..Sampling::default() }),
            ("top_p", Sampling { top_p: 1.5, ..Sampling::default() }),
            ("min_p", Sampling { min_p: f32::INFINITY, ..Sampling::default() }),
            ("logit_bias", Sampling { logit_bias: vec![(3, 101.0)], ..Sampling::default() }),
        ] {
            assert_eq!(bad.validate().map_err(|e| e.field), Err(field));
        }
    }
}
