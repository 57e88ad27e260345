//! Runs with other caches than the ordinary one.
//!
//! mlx-lm encodes a whole cache after the model call in which it reaches the threshold, so that the first call is
//! attended as it is. Here precision is a function of position; the same follows with the threshold at the end of that
//! call, and prompts fed as mlx-lm feeds them: all but the last token at once, then token by token.

use super::{Answers, Checks, Kind, LONGEST, Run};
use crate::{
    Result,
    drive::{Driver, Logits, best, log_probabilities},
    parity::Greedy,
};
use tandem_contracts::{
    model::{Code, Codes, StatePolicy, Wanted},
    tensor::Affine,
    text::TokenId,
};
use tandem_models::Ring;

/// Tokens of the longest prompt before it is stored.
const STORED: usize = 25;

/// What the name of a run with quantised caches says: `kvq8g64_start16_p24`.
struct Quantised<'n> {
    affine: Affine,
    start: usize,
    prompt: &'n str,
}

impl<'n> Quantised<'n> {
    fn parse(name: &'n str) -> Option<Self> {
        let (codes, rest) = name.strip_prefix("kvq")?.split_once("_start")?;
        let ((bits, group), (start, prompt)) = (codes.split_once('g')?, rest.split_once('_')?);
        let affine = Affine { bits: bits.parse().ok()?, group: group.parse().ok()? };
        Some(Self { affine, start: start.parse().ok()?, prompt })
    }
}

impl Checks<'_> {
    /// Every run with another cache.
    pub(super) fn caches(&mut self) -> Result<()> {
        let case = self.case;
        for (name, run) in &case.runs {
            let kind =
                Kind::of(name).ok_or_else(|| format!("{}: no check for the run: {name}", case.name))?;
            if !self.wants(kind) {
                continue;
            }
            match &run.tokens {
                Answers::Batch(answers) => {
                    for (prompt, tokens) in answers {
                        self.batch_tokens(name, prompt, tokens)?;
                    }
                }
                Answers::One(tokens) if name == "prompt_cache_save_load" => self.stored(tokens)?,
                Answers::One(tokens) if name == "rotating16_keep4_p40" => self.rotating(name, run, tokens)?,
                Answers::One(tokens) => match Quantised::parse(name) {
                    Some(quantised) => self.quantised(name, &quantised, run, tokens)?,
                    None => return Err(format!("{}: no check for the run: {name}", case.name).into()),
                },
            }
        }
        Ok(())
    }

    /// The golden tokens of a batch against the rows alone, to which our own batches are held.
    fn batch_tokens(&mut self, name: &str, prompt: &str, tokens: &[TokenId]) -> Result<()> {
        let golden = self.case.run(prompt)?;
        let golden = Greedy { tokens: tokens.to_vec(), ..golden.clone() };
        let Some(logits) = self.runs.get(prompt) else { return Ok(()) };
        let logits = logits[..tokens.len().min(logits.len())].to_vec();
        self.golden_tokens(&format!("{name} {prompt}"), &golden, &logits);
        Ok(())
    }

    /// A row goes through bytes in the middle of its prompt.
    fn stored(&mut self, tokens: &[TokenId]) -> Result<()> {
        let golden = Greedy { tokens: tokens.to_vec(), ..self.case.run(LONGEST)?.clone() };
        let slot = self.driver.open()?;
        self.driver.step(&[(slot, &golden.prompt[..STORED], Wanted::None)])?;
        self.driver.store_and_restore(slot, &StatePolicy::Plain)?;
        let first = self.driver.prefill(slot, &golden.prompt[STORED..], golden.prompt.len())?;
        let logits = self.driver.continue_greedily(slot, first, tokens.len())?;
        self.driver.close(slot)?;
        self.golden_tokens("stored", &golden, &logits);
        self.same_run("stored and restored", LONGEST, &logits);
        Ok(())
    }

    /// Rings of 16 positions, of which 4 are the first ones. mlx-lm's call for the prompt shows it no first ones.
    fn rotating(&mut self, name: &str, run: &Run, tokens: &[TokenId]) -> Result<()> {
        let prompt = self.case.run(LONGEST)?.prompt.clone();
        let first_call = prompt.len() - 1;
        let margins = vec![run.min_margin.unwrap_or(f32::INFINITY); tokens.len()];
        let golden = Greedy { prompt, tokens: tokens.to_vec(), margins };
        let ring = Ring { window: 16, keep: 4, from: first_call };
        let mut driver = Driver::load_ring(self.case.checkpoint()?, &self.device, Some(ring))?;
        let logits = driver.greedy(&golden.prompt, first_call, golden.tokens.len())?;
        let equal = self.golden_tokens(name, &golden, &logits);
        if let Some(rows) = self.case.run_log_probabilities.get(name) {
            let ours: Vec<Logits> = logits.iter().take(equal + 1).map(|it| log_probabilities(it)).collect();
            self.golden_rows(name, &ours, &rows[..ours.len().min(rows.len())]);
        }

        // Without the exception the rule knows positions only, so that chunks do not matter.
        let ring = Ring { from: 0, ..ring };
        let mut driver = Driver::load_ring(self.case.checkpoint()?, &self.device, Some(ring))?;
        let alone = driver.greedy(&golden.prompt, 1, golden.tokens.len())?;
        for chunk in [5, 16, golden.prompt.len()] {
            let chunked = driver.greedy(&golden.prompt, chunk, golden.tokens.len())?;
            self.same(&format!("rings in chunks of {chunk}"), &golden, &chunked, &alone);
        }
        Ok(())
    }

    /// Codes from a threshold on; then the same row in other chunks, beside another, and through bytes.
    fn quantised(
        &mut self,
        name: &str,
        quantised: &Quantised<'_>,
        run: &Run,
        tokens: &[TokenId],
    ) -> Result<()> {
        let prompt = &self.case.run(quantised.prompt)?.prompt;
        // The cache converts after the first call at whose end it holds `start` tokens or more.
        let first_call = prompt.len() - 1;
        let start = quantised.start.max(first_call);
        let policy = StatePolicy::Encoded { codes: Codes::Uniform(Code::Affine(quantised.affine)), start };
        let margins = vec![run.min_margin.unwrap_or(f32::INFINITY); tokens.len()];
        let golden = Greedy { prompt: prompt.clone(), tokens: tokens.to_vec(), margins };

        let alone = self.kept(&policy, &golden, first_call)?;
        let equal = self.golden_tokens(name, &golden, &alone);
        if let Some(rows) = self.case.run_log_probabilities.get(name) {
            let ours: Vec<Logits> = alone.iter().take(equal + 1).map(|it| log_probabilities(it)).collect();
            let error = self.farthest(name, &ours, &rows[..ours.len().min(rows.len())]);
            self.report.code_error = self.report.code_error.max(error);
            if error > self.tolerance.code_error {
                self.report.breach(format!("{name}: logit error over codes {error}"));
            }
        }
        let chunked = self.kept(&policy, &golden, 5)?;
        self.as_alone(&format!("{name} in chunks of 5"), &golden, &chunked, &alone);
        let batched = self.kept_in_company(&policy, &golden)?;
        self.as_alone(&format!("{name} in a batch"), &golden, &batched, &alone);
        Ok(())
    }

    /// Holds a run to the bits of the row alone, or, where a device's roundings depend on company and with them the codes
    /// of what is near a tie, to the golden tokens.
    fn as_alone(&mut self, what: &str, golden: &Greedy, logits: &[Logits], alone: &[Logits]) {
        if self.invariant {
            self.same(what, golden, logits, alone);
        } else {
            self.golden_tokens(what, golden, logits);
        }
    }

    /// A greedy run of a row that is kept by a policy; no chunk crosses its threshold.
    fn kept(&mut self, policy: &StatePolicy, golden: &Greedy, chunk: usize) -> Result<Vec<Logits>> {
        let slot = self.driver.open_by(policy)?;
        let first = self.driver.prefill_by(policy, slot, &golden.prompt, chunk)?;
        let logits = self.driver.continue_greedily(slot, first, golden.tokens.len())?;
        self.driver.close(slot)?;
        Ok(logits)
    }

    /// The same beside a row that began earlier and passes its threshold elsewhere; half-way both go through bytes.
    fn kept_in_company(&mut self, policy: &StatePolicy, golden: &Greedy) -> Result<Vec<Logits>> {
        let other = self.driver.open_by(policy)?;
        let company = &self.case.run(LONGEST)?.prompt;
        self.driver.prefill_by(policy, other, &company[..company.len() / 2], company.len())?;
        let slot = self.driver.open_by(policy)?;
        let mut logits = vec![self.driver.prefill_by(policy, slot, &golden.prompt, golden.prompt.len())?];
        while logits.len() < golden.tokens.len() {
            let token = [best(&logits[logits.len() - 1])];
            let mate = [company[logits.len() % company.len()]];
            let parts = [(other, &mate[..], Wanted::Last), (slot, &token[..], Wanted::Last)];
            logits.extend(self.driver.step(&parts)?.pop());
            if logits.len() == golden.tokens.len() / 2 {
                self.driver.store_and_restore(slot, policy)?;
                self.driver.store_and_restore(other, policy)?;
            }
        }
        self.driver.close(other)?;
        self.driver.close(slot)?;
        Ok(logits)
    }
}
