//! How well a model predicts a text, window by window, and what mlx-lm's perplexity of the same text is.
//!
//! Each window starts from nothing; its first token is not predicted. The golden file was made once by
//! `fixtures/real.py`, with the same weights, dequantised to f32.

use crate::{Result, drive::log_probabilities};
use serde::Deserialize;
use std::{fs, path::Path};
use tandem_contracts::{
    model::{AdapterSet, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
    tensor::{Device, Tensor},
    text::TokenId,
};
use tandem_models::Checkpoint;
use tandem_serve::text::{GgufVocabulary, Tokenizer};

/// Tokens of a window of the golden file.
pub const WINDOW: usize = 512;

/// Most by which a perplexity may differ from mlx-lm's, as a fraction of that.
pub const BAR: f64 = 0.001;

/// What mlx-lm computes.
#[derive(Clone, Debug, Deserialize)]
pub struct Golden {
    /// Token ids of the whole text.
    pub ids: Vec<TokenId>,
    /// Its first tokens alone.
    pub prefix: Window,
    /// All of it, each window alone.
    pub windows: Vec<Window>,
}

/// The golden perplexity of some tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Window {
    /// How many tokens; all but the first are predicted.
    pub tokens: usize,
    /// `exp` of the mean loss.
    pub perplexity: f64,
}

impl Golden {
    /// Reads the file.
    ///
    /// # Errors
    /// It is missing or malformed.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// Sum of losses, in nats, over some predicted tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    sum: f64,
    tokens: usize,
}

impl Loss {
    /// The loss that mlx-lm has on a window.
    pub fn of(window: &Window) -> Self {
        let tokens = window.tokens.saturating_sub(1);
        Self { sum: tokens as f64 * window.perplexity.ln(), tokens }
    }

    /// Counts one token, predicted by the logits behind the token before it.
    pub fn add(&mut self, logits: &[f32], next: TokenId) {
        self.sum -= f64::from(log_probabilities(logits)[next as usize]);
        self.tokens += 1;
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, tokens: self.tokens + other.tokens }
    }

    /// `exp` of the mean; 1 of nothing.
    pub fn perplexity(self) -> f64 {
        (self.sum / self.tokens.max(1) as f64).exp()
    }

    /// By which fraction of the golden perplexity this one is above it; not a number for losses over other counts.
    pub fn above(self, golden: Self) -> f64 {
        if self.tokens == golden.tokens { self.perplexity() / golden.perplexity() - 1.0 } else { f64::NAN }
    }
}

/// The tokeniser inside a GGUF file.
///
/// # Errors
/// The file carries none, or one that is not known.
pub fn tokenizer(checkpoint: &Checkpoint<'_>) -> Result<Tokenizer> {
    let file = checkpoint.vocabulary().ok_or("the file carries no vocabulary")?;
    Ok(Tokenizer::from_gguf(GgufVocabulary {
        model: file.model.clone(),
        pre: file.pre_tokenizer.clone(),
        tokens: file.tokens.clone(),
        kinds: file.token_types.clone(),
        scores: file.scores.clone(),
        merges: file.merges.clone(),
        begin: file.begin,
        end: file.end,
        unknown: file.unknown,
        padding: file.padding,
        add_begin: file.add_begin,
        add_space_prefix: file.add_space_prefix,
        ..GgufVocabulary::default()
    })?)
}

/// Logits behind every token of a window, whose keys and values are kept by a policy.
///
/// # Errors
/// The session's own.
pub fn logits(
    device: &Device,
    session: &mut dyn Session,
    window: &[TokenId],
    policy: &StatePolicy,
) -> Result<Vec<Vec<f32>>> {
    let slot = Slot(0);
    session.open(slot, policy, None)?;
    let row = RowStep {
        slot,
        position: 0,
        tokens: TokenSource::Ids(window.to_vec()),
        wanted: Wanted::All,
        adapters: AdapterSet::BASE,
    };
    let stepped = session.step(&Step { rows: vec![row] })?;
    let logits = stepped.logits.ok_or("the step gave no logits")?;
    device.eval(&stepped.touched.iter().chain([&logits]).collect::<Vec<&Tensor>>())?;
    drop(session.close(slot)?);
    let width = session.capabilities().vocabulary;
    Ok(logits.to_vec::<f32>()?.chunks(width).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn equally_likely_tokens_are_as_perplexing_as_they_are_many() {
        let mut loss = Loss::default();
        loss.add(&[1.0, 1.0], 0);
        assert!((loss.perplexity() - 2.0).abs() < 1e-6);
        let golden = Loss::of(&Window { tokens: 2, perplexity: 4.0 });
        assert!((loss.above(golden) + 0.5).abs() < 1e-6);
        // A mean over two losses of ln 2 and ln 4 is ln of their geometric mean.
        assert!((loss.and(golden).perplexity() - 8f64.sqrt()).abs() < 1e-6);
        assert!(loss.and(golden).above(golden).is_nan());
    }

    #[test]
    fn the_golden_windows_cover_the_text() {
        let golden = Golden::read(&fixtures().join("smollm2/perplexity.json")).unwrap();
        let windows: Vec<_> = golden.ids.chunks(WINDOW).map(<[TokenId]>::len).collect();
        assert_eq!(golden.windows.iter().map(|window| window.tokens).collect::<Vec<_>>(), windows);
        assert!(golden.prefix.tokens < WINDOW);
    }
}
