//! The checks of one golden model on one device.
//!
//! | check | what it holds |
//! |---|---|
//! | prompt | logits of every token of a prompt, fed whole |
//! | greedy | four prompts, shorter and longer than any window, 32 tokens each |
//! | chunks | the longest prompt fed in chunks of 1, 5 and 16 |
//! | batch | all prompts as rows of the same steps; one joins late |
//! | trim | five wrong tokens are taken back; a row that carries states refuses |
//! | drafts | four wrong tokens behind a right one, all with logits, are taken back by every row |
//! | caches | quantised from a threshold on; bounded by rings; stored as bytes in between |
//!
//! Of mlx-lm's own runs `trim5_rollback` and `batch_forward_leftpad` say only that the answer is that of the row alone,
//! which the checks of trims and batches hold here.
//!
//! Where a device is batch invariant all but the first two compare bits with the greedy runs, else numbers within twice the
//! tolerance, as either may be off by as much.

mod cache;

use super::{
    Case, Greedy, Kind, Report, Tolerance,
    case::{Answers, Run},
};
use crate::{
    Result,
    drive::{Driver, Logits, best, distance, log_probabilities},
};
use std::{collections::BTreeMap, time::Instant};
use tandem_contracts::{
    model::{Slot, Wanted},
    tensor::Device,
    text::TokenId,
};

/// Prompt whose logits are golden.
const LOGITS: &str = "p24";

/// Prompt that is fed in chunks; log-probabilities of its answer are golden.
const LONGEST: &str = "p40";

/// Steps after which the last row of a batch joins.
const LATE: usize = 5;

struct Checks<'c> {
    case: &'c Case,
    tolerance: &'c Tolerance,
    wanted: Option<Kind>,
    driver: Driver,
    device: Device,
    invariant: bool,
    report: Report,
    /// Logits of the greedy runs, by prompt.
    runs: BTreeMap<&'c str, Vec<Logits>>,
}

/// Runs all checks, or those of one kind.
///
/// # Errors
/// The model cannot be loaded or run; numbers that are too far away are breaches in the report instead.
pub fn run(case: &Case, device: &Device, tolerance: &Tolerance, wanted: Option<Kind>) -> Result<Report> {
    let start = Instant::now();
    let mut checks = Checks {
        case,
        tolerance,
        wanted,
        driver: Driver::load(case.checkpoint()?, device)?,
        device: device.clone(),
        invariant: device.traits().batch_invariant,
        report: Report::new(case, device.traits().name, tolerance),
        runs: BTreeMap::new(),
    };
    if checks.wants(Kind::Plain) {
        checks.prompt()?;
    }
    checks.greedy()?;
    if checks.wants(Kind::Chunks) {
        checks.chunks()?;
    }
    if checks.wants(Kind::Batch) {
        checks.batch()?;
    }
    if checks.wants(Kind::Trim) {
        checks.trim()?;
        checks.drafts()?;
    }
    checks.caches()?;
    Ok(checks.report.finish(start.elapsed()))
}

impl<'c> Checks<'c> {
    fn prompt(&mut self) -> Result<()> {
        let slot = self.driver.open()?;
        let logits = self.driver.step(&[(slot, &self.case.run(LOGITS)?.prompt, Wanted::All)])?;
        self.golden_rows("prompt", &logits, &self.case.prompt_logits);
        Ok(())
    }

    fn wants(&self, kind: Kind) -> bool {
        self.wanted.is_none_or(|wanted| wanted == kind)
    }

    /// Every greedy run, which others are held to; it counts where it is wanted itself.
    fn greedy(&mut self) -> Result<()> {
        for (name, golden) in &self.case.greedy {
            let logits = self.driver.greedy(&golden.prompt, golden.prompt.len(), golden.tokens.len())?;
            let counts = self.wants(Kind::Plain);
            let equal = if counts { self.golden_tokens(name, golden, &logits) } else { 0 };
            if counts && name == LONGEST {
                // After a token parts from the golden one, so does everything behind it.
                let ours: Vec<_> = logits.iter().take(equal + 1).map(|it| log_probabilities(it)).collect();
                let golden = &self.case.greedy_log_probabilities;
                self.golden_rows(name, &ours, &golden[..ours.len().min(golden.len())]);
            }
            self.runs.insert(name, logits);
        }
        Ok(())
    }

    fn chunks(&mut self) -> Result<()> {
        let golden = self.case.run(LONGEST)?;
        for chunk in [1, 5, 16] {
            let logits = self.driver.greedy(&golden.prompt, chunk, golden.tokens.len())?;
            self.same_run(&format!("chunks of {chunk}"), LONGEST, &logits);
        }
        Ok(())
    }

    /// All prompts in one step, then all rows token by token; the longest prompt joins late.
    fn batch(&mut self) -> Result<()> {
        let mut rows: Vec<(Slot, &str, &Greedy, Vec<Logits>)> = Vec::new();
        let mut late = None;
        for (name, golden) in &self.case.greedy {
            let row = (self.driver.open()?, name.as_str(), golden, Vec::new());
            if name == LONGEST { late = Some(row) } else { rows.push(row) }
        }
        for step in 0.. {
            if step == LATE {
                rows.extend(late.take());
            }
            let mut parts: Vec<(Slot, Vec<TokenId>)> = Vec::new();
            for (slot, _, golden, logits) in rows.iter().filter(|row| row.3.len() < row.2.tokens.len()) {
                let tokens = logits.last().map_or_else(|| golden.prompt.clone(), |last| vec![best(last)]);
                parts.push((*slot, tokens));
            }
            if parts.is_empty() && step > LATE {
                break;
            }
            let wanted: Vec<_> =
                parts.iter().map(|(slot, tokens)| (*slot, &tokens[..], Wanted::Last)).collect();
            let logits = self.driver.step(&wanted)?;
            for ((slot, _), logits) in parts.iter().zip(logits) {
                rows.iter_mut().filter(|row| row.0 == *slot).for_each(|row| row.3.push(logits.clone()));
            }
        }
        for (_, name, _, logits) in rows {
            self.same_run(&format!("{name} in a batch"), name, &logits);
        }
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        let golden = self.case.run(LOGITS)?;
        let Some((last, before)) = golden.prompt.split_last() else {
            return Err("the prompt is empty".into());
        };
        let slot = self.driver.open()?;
        self.driver.step(&[(slot, before, Wanted::None)])?;
        self.driver.step(&[(slot, &golden.prompt[..5], Wanted::Last)])?;
        if self.driver.floor(slot)? == before.len() + 5 {
            return self.refused_trim(slot, before.len());
        }
        self.driver.trim(slot, before.len())?;
        let first = self.driver.prefill(slot, &[*last], 1)?;
        let logits = self.driver.continue_greedily(slot, first, golden.tokens.len())?;
        self.same_run("after a trim", LOGITS, &logits);
        Ok(())
    }

    fn drafts(&mut self) -> Result<()> {
        let golden = self.case.run(LOGITS)?;
        let Some((last, before)) = golden.prompt.split_last() else {
            return Err("the prompt is empty".into());
        };
        let slot = self.driver.open()?;
        self.driver.step(&[(slot, before, Wanted::None)])?;
        let window = [&[*last], &golden.prompt[..4]].concat();
        let first = self.driver.step(&[(slot, &window, Wanted::All)])?.swap_remove(0);
        self.driver.trim(slot, golden.prompt.len())?;
        let logits = self.driver.continue_greedily(slot, first, golden.tokens.len())?;
        self.same_run("after drafts", LOGITS, &logits);
        Ok(())
    }

    /// A row whose states know all of its tokens cannot be shortened, and goes on as if nobody had asked.
    fn refused_trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        let golden = self.case.run(LOGITS)?;
        let row = &[&golden.prompt[..golden.prompt.len() - 1], &golden.prompt[..5]].concat();
        if self.driver.trim(slot, tokens).is_ok() {
            self.report.breach("after a trim: a row below its floor".to_owned());
        }
        let next = [golden.tokens[0]];
        let got = self.driver.step(&[(slot, &next, Wanted::Last)])?;
        let fresh = self.driver.open()?;
        self.driver.prefill(fresh, row, row.len())?;
        let expected = self.driver.step(&[(fresh, &next, Wanted::Last)])?;
        self.same("after a refused trim", golden, &got, &expected);
        Ok(())
    }

    /// Holds rows of numbers against golden ones.
    fn golden_rows(&mut self, what: &str, ours: &[Vec<f32>], golden: &[Vec<f32>]) {
        let error = self.farthest(what, ours, golden);
        self.report.logit_error = self.report.logit_error.max(error);
        if error > self.tolerance.logit_error {
            self.report.breach(format!("{what}: logit error {error}"));
        }
    }

    /// The largest difference between rows of numbers and golden ones.
    fn farthest(&mut self, what: &str, ours: &[Vec<f32>], golden: &[Vec<f32>]) -> f32 {
        if ours.len() != golden.len() {
            self.report.breach(format!("{what}: {} rows of numbers, golden: {}", ours.len(), golden.len()));
        }
        ours.iter().zip(golden).map(|(ours, golden)| distance(ours, golden)).fold(0.0, f32::max)
    }

    /// Holds a greedy run against the golden tokens by the margin rule; gives the number of equal tokens.
    fn golden_tokens(&mut self, name: &str, golden: &Greedy, logits: &[Logits]) -> usize {
        let ours = logits.iter().map(|logits| best(logits));
        let equal = ours.zip(&golden.tokens).take_while(|(ours, golden)| ours == *golden).count();
        self.report.tokens += golden.tokens.len();
        self.report.equal += equal;
        if equal < golden.tokens.len() {
            let margin = golden.margins.get(equal).copied().unwrap_or(f32::INFINITY);
            self.report.divergence.get_or_insert_with(|| format!("{name} token {equal}, margin {margin}"));
            if margin >= self.tolerance.margin {
                self.report.breach(format!("{name}: token {equal} differs, margin {margin}"));
            }
        }
        equal
    }

    /// Holds a run against the greedy run of the same prompt.
    fn same_run(&mut self, what: &str, prompt: &str, logits: &[Logits]) {
        let case = self.case;
        if let (Some(alone), Some(golden)) = (self.runs.get(prompt).cloned(), case.greedy.get(prompt)) {
            self.same(what, golden, logits, &alone);
        }
    }

    /// Holds a run against that of the row alone.
    fn same(&mut self, what: &str, golden: &Greedy, logits: &[Logits], alone: &[Logits]) {
        let (tolerance, invariant) = (self.tolerance, self.invariant);
        // Both may be off the golden numbers, each its own way.
        let bar = 2.0 * tolerance.logit_error;
        for (token, (ours, alone)) in logits.iter().zip(alone).enumerate() {
            let far = if invariant { ours != alone } else { distance(ours, alone) > bar };
            if far {
                self.report.breach(format!(
                    "{what}: token {token} differs from the row alone by {}",
                    distance(ours, alone)
                ));
                return;
            }
            // A near tie may fall the other way; what follows is then another text.
            if best(ours) != best(alone) && golden.margins.get(token).is_some_and(|it| *it < tolerance.margin)
            {
                return;
            }
        }
        if logits.len() != alone.len() {
            self.report.breach(format!("{what}: {} tokens, alone: {}", logits.len(), alone.len()));
        }
    }
}
