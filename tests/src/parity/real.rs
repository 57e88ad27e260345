//! Models with real weights, and what mlx-lm answers with the same weights, dequantised to f32.
//!
//! Every step is fed the golden token before it, whatever was found there: after a divergence the comparison goes on with
//! the golden text, so that all steps of an answer are compared. Where another token than the golden one is found, the
//! logits of these two must be nearer to each other than the tolerance, here and in mlx-lm; and the logits of the two
//! best tokens of each step, and the logarithm of the sum of all exponentials, may be no farther than that from mlx-lm's.
//!
//! The tokeniser takes part: a prompt's text must give the golden ids, and the golden answer's ids its text.

use super::Answered;
use crate::{
    Result,
    drive::{Driver, Logits, best},
    quality::tokenizer,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Instant};
use tandem_contracts::{model::Wanted, tensor::Device, text::TokenId};
use tandem_models::{Checkpoint, Source, weights::File};
use tandem_serve::text::{Detokenizer, Tokenizer};

/// What mlx-lm answers, from a model's `greedy.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Real {
    /// Greedy answers by the names of their prompts.
    pub runs: BTreeMap<String, Answer>,
}

/// A prompt and its greedy answer; the lists have one entry for each token of that.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The prompt, with all that a chat template wrote.
    pub text: String,
    /// Its token ids.
    pub prompt: Vec<TokenId>,
    /// Token ids of the answer.
    pub tokens: Vec<TokenId>,
    /// The answer's text, with special tokens by their names.
    pub answer: String,
    /// The second best token.
    pub others: Vec<TokenId>,
    /// Logit of the best token.
    pub best: Vec<f32>,
    /// Logit of the second best token.
    pub second: Vec<f32>,
    /// Natural logarithm of the sum of the exponentials of all logits.
    pub total: Vec<f32>,
}

/// Where a step's most likely token is not the golden one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// Index of the step.
    pub token: usize,
    /// What mlx-lm finds.
    pub golden: TokenId,
    /// What is found here.
    pub ours: TokenId,
    /// By how much the logit of what is found here is the greater one, here.
    pub gap: f32,
    /// By how much the logit of mlx-lm's token is the greater one, there; infinite where the other is not the second.
    pub golden_gap: f32,
}

impl Real {
    /// Reads the file of a model's folder.
    ///
    /// # Errors
    /// It is missing or malformed, or lists of one answer differ in length.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("greedy.json");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let real: Self = serde_json::from_slice(&bytes)?;
        match real.runs.iter().find(|(_, answer)| !answer.is_even()) {
            Some((name, _)) => Err(format!("{}: lists of other lengths: {name}", path.display()).into()),
            None => Ok(real),
        }
    }
}

impl Answer {
    fn is_even(&self) -> bool {
        let lengths =
            [self.tokens.len(), self.others.len(), self.best.len(), self.second.len(), self.total.len()];
        lengths.iter().all(|length| *length == self.tokens.len())
    }

    /// Largest difference of the three golden numbers of a step; infinite where one is not a number.
    fn error(&self, step: usize, logits: &[f32]) -> f32 {
        let at = |id: TokenId| logits.get(id as usize).copied().unwrap_or(f32::NAN);
        let pairs = [
            (at(self.tokens[step]), self.best[step]),
            (at(self.others[step]), self.second[step]),
            (total(logits), self.total[step]),
        ];
        let apart = |(ours, golden): (f32, f32)| (ours - golden).abs();
        let errors = pairs.map(apart).map(|error| if error.is_nan() { f32::INFINITY } else { error });
        errors.into_iter().fold(0.0, f32::max)
    }

    /// Where the most likely token of a step is another one.
    fn divergence(&self, step: usize, logits: &[f32]) -> Option<Divergence> {
        let (golden, ours) = (self.tokens[step], best(logits));
        let second = ours == self.others[step];
        let golden_gap = if second { self.best[step] - self.second[step] } else { f32::INFINITY };
        let gap = logits[ours as usize] - logits.get(golden as usize).copied().unwrap_or(f32::NAN);
        (ours != golden).then_some(Divergence { token: step, golden, ours, gap, golden_gap })
    }
}

/// Natural logarithm of the sum of all exponentials, in f64.
fn total(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    (f64::from(highest) + sum.ln()) as f32
}

/// A model with real weights on a device.
#[derive(Debug)]
pub struct Held<'r> {
    name: String,
    real: &'r Real,
    tolerance: f32,
    backend: &'static str,
    driver: Driver,
    tokenizer: Arc<Tokenizer>,
}

impl<'r> Held<'r> {
    /// Loads the model's GGUF file in the `exact` precision.
    ///
    /// # Errors
    /// Those of reading and loading.
    pub fn load(name: &str, real: &'r Real, file: &Path, device: &Device, tolerance: f32) -> Result<Self> {
        let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let checkpoint = Checkpoint::open(Source::Gguf(File { name, bytes: &bytes }))?;
        let tokenizer = Arc::new(tokenizer(&checkpoint)?);
        let driver = Driver::load(checkpoint, device)?;
        let backend = device.traits().name;
        Ok(Self { name: name.to_owned(), real, tolerance, backend, driver, tokenizer })
    }

    /// Holds the answer to one prompt to mlx-lm's.
    ///
    /// # Errors
    /// There is no such prompt, or the model cannot be run; what is too far away is a breach instead.
    pub fn answer(&mut self, prompt: &str) -> Result<Answered> {
        let start = Instant::now();
        let real = self.real;
        let golden = real.runs.get(prompt).ok_or_else(|| format!("no golden answer to: {prompt}"))?;
        let mut answered = Answered {
            case: self.name.clone(),
            backend: self.backend.to_owned(),
            prompt: prompt.to_owned(),
            prompt_tokens: golden.prompt.len(),
            tokens: golden.tokens.len(),
            tolerance: self.tolerance,
            answer: golden.answer.clone(),
            ..Answered::default()
        };
        self.words(golden, &mut answered)?;
        let slot = self.driver.open()?;
        let mut logits: Logits = self.driver.prefill(slot, &golden.prompt, golden.prompt.len())?;
        for (step, token) in golden.tokens.iter().enumerate() {
            answered.add(step, golden.error(step, &logits), golden.divergence(step, &logits));
            if step + 1 < golden.tokens.len() {
                let next = self.driver.step(&[(slot, &[*token], Wanted::Last)])?.pop();
                logits = next.ok_or("the step gave no logits")?;
            }
        }
        self.driver.close(slot)?;
        answered.seconds = start.elapsed().as_secs_f64();
        Ok(answered)
    }

    /// Holds the tokeniser to the golden ids and to the golden text.
    fn words(&self, golden: &Answer, answered: &mut Answered) -> Result<()> {
        if self.tokenizer.encode_prompt(&golden.text)? != golden.prompt {
            answered.breaches.push("the prompt's text has other tokens".to_owned());
        }
        let (mut text, mut words) = (String::new(), Detokenizer::with_special(self.tokenizer.clone()));
        golden.tokens.iter().for_each(|token| words.push(*token, &mut text));
        words.finish(&mut text);
        if text != golden.answer {
            answered.breaches.push(format!("the answer's tokens have another text: {text:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// Three tokens; the golden logits of the one step are 2, 1.5 and 0.
    fn answer() -> Answer {
        Answer {
            text: String::new(),
            prompt: vec![0],
            tokens: vec![0],
            answer: String::new(),
            others: vec![1],
            best: vec![2.0],
            second: vec![1.5],
            // ln(e^2 + e^1.5 + 1) = ln(7.389056 + 4.481689 + 1).
            total: vec![2.554_957],
        }
    }

    #[test]
    fn the_largest_of_three_differences_counts() {
        let error = |logits: &[f32]| answer().error(0, logits);
        assert!(error(&[2.0, 1.5, 0.0]) < 1e-6);
        assert!((error(&[2.25, 1.5, 0.0]) - 0.25).abs() < 1e-6);
        assert!((error(&[2.0, 1.0, 0.0]) - 0.5).abs() < 1e-6);
        // ln(7.389056 + 4.481689 + e) - 2.554957: the rest of the vocabulary counts through the sum.
        assert!((error(&[2.0, 1.5, 1.0]) - 0.125_320).abs() < 1e-5);
        assert_eq!(error(&[2.0, f32::NAN, 0.0]), f32::INFINITY);
        assert_eq!(error(&[2.0]), f32::INFINITY);
    }

    #[test]
    fn a_divergence_has_a_gap_on_either_side() {
        let found = |logits: &[f32]| answer().divergence(0, logits);
        assert_eq!(found(&[2.0, 1.5, 0.0]), None);
        let second = Divergence { token: 0, golden: 0, ours: 1, gap: 0.25, golden_gap: 0.5 };
        assert_eq!(found(&[2.0, 2.25, 0.0]), Some(second.clone()));
        let third = Divergence { ours: 2, golden_gap: f32::INFINITY, ..second };
        assert_eq!(found(&[2.0, 1.5, 2.25]), Some(third));
    }

    #[test]
    fn goldens_are_ten_answers_of_64_tokens() {
        for name in ["smollm2", "gemma3-270m"] {
            let real = Real::read(&fixtures().join(name)).unwrap();
            assert_eq!(real.runs.len(), 10, "{name}");
            assert!(real.runs.values().all(|run| run.tokens.len() == 64 && run.is_even()), "{name}");
            let lengths: Vec<_> = real.runs.values().map(|run| run.prompt.len()).collect();
            assert!(lengths.iter().any(|length| *length < 16) && lengths.iter().any(|length| *length > 512));
        }
    }

    #[test]
    fn a_list_that_is_cut_short_is_named() {
        let folder = std::env::temp_dir().join(format!("tandem-real-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let run = r#"{"text":"","prompt":[0],"tokens":[0],"answer":"","others":[],"best":[2],"second":[1],"total":[3]}"#;
        fs::write(folder.join("greedy.json"), format!(r#"{{"runs":{{"short":{run}}}}}"#)).unwrap();
        let message = Real::read(&folder).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert!(message.ends_with("greedy.json: lists of other lengths: short"), "{message}");
    }
}
