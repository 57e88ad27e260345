//! A session driven as an engine drives it: steps, one evaluation for each, greedy tokens.

use crate::Result;
use std::collections::BTreeMap;
use tandem_contracts::{
    model::{AdapterSet, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
    tensor::{Device, Precision, Tensor},
    text::TokenId,
};
use tandem_models::{Checkpoint, Options, Ring};

/// Logits over the vocabulary, for one token.
pub type Logits = Vec<f32>;

/// A loaded model and the counts of its open rows.
#[derive(Debug)]
pub struct Driver {
    session: Box<dyn Session>,
    device: Device,
    counts: BTreeMap<Slot, usize>,
    next: u32,
}

/// Tokens for one row of a step, and which of them want logits.
pub type Part<'t> = (Slot, &'t [TokenId], Wanted);

impl Driver {
    /// Loads a model in the `exact` precision.
    ///
    /// # Errors
    /// Those of loading.
    pub fn load(checkpoint: Checkpoint<'_>, device: &Device) -> Result<Self> {
        Self::load_ring(checkpoint, device, None)
    }

    /// The same, with a bound on what layers keep.
    ///
    /// # Errors
    /// Those of loading.
    pub fn load_ring(checkpoint: Checkpoint<'_>, device: &Device, ring: Option<Ring>) -> Result<Self> {
        let options = Options { precision: Some(Precision::Exact), ring, ..Options::default() };
        Self::load_with(checkpoint, device, options)
    }

    /// Loads a model in whatever way.
    ///
    /// # Errors
    /// Those of loading.
    pub fn load_with(checkpoint: Checkpoint<'_>, device: &Device, options: Options) -> Result<Self> {
        let session = checkpoint.load(device, options)?;
        Ok(Self { session, device: device.clone(), counts: BTreeMap::new(), next: 0 })
    }

    /// Opens a fresh row.
    ///
    /// # Errors
    /// The session's own.
    pub fn open(&mut self) -> Result<Slot> {
        self.open_by(&StatePolicy::Plain)
    }

    /// Opens a fresh row that is kept by a policy.
    ///
    /// # Errors
    /// The session's own.
    pub fn open_by(&mut self, policy: &StatePolicy) -> Result<Slot> {
        let slot = Slot(self.next);
        self.session.open(slot, policy, None)?;
        self.next += 1;
        self.counts.insert(slot, 0);
        Ok(slot)
    }

    /// Takes a row out, turns it into bytes and these into a row again.
    ///
    /// # Errors
    /// The session's own.
    pub fn store_and_restore(&mut self, slot: Slot, policy: &StatePolicy) -> Result<()> {
        let state = self.session.close(slot)?;
        let bytes = self.session.snapshot(state.as_ref(), b"golden")?;
        drop(state);
        let state = self.session.restore(policy, b"golden", &bytes)?;
        Ok(self.session.open(slot, policy, Some(state))?)
    }

    /// Fewest tokens to which a row can be shortened.
    ///
    /// # Errors
    /// The session's own.
    pub fn floor(&mut self, slot: Slot) -> Result<usize> {
        let state = self.session.close(slot)?;
        let floor = state.reuse_floor();
        self.session.open(slot, &StatePolicy::Plain, Some(state))?;
        Ok(floor)
    }

    /// Closes a row and drops what it holds.
    ///
    /// # Errors
    /// The session's own.
    pub fn close(&mut self, slot: Slot) -> Result<()> {
        drop(self.session.close(slot)?);
        Ok(())
    }

    /// Shortens a row.
    ///
    /// # Errors
    /// The session's own.
    pub fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        self.session.trim(slot, tokens)?;
        self.counts.insert(slot, tokens);
        Ok(())
    }

    /// Runs a step and gives the logits of all tokens that want them, in order.
    ///
    /// # Errors
    /// The session's own.
    pub fn step(&mut self, parts: &[Part<'_>]) -> Result<Vec<Logits>> {
        let row = |&(slot, ids, wanted): &Part<'_>| RowStep {
            slot,
            position: self.counts.get(&slot).copied().unwrap_or(0),
            tokens: TokenSource::Ids(ids.to_vec()),
            wanted,
            adapters: AdapterSet::BASE,
        };
        let step = Step { rows: parts.iter().map(row).collect() };
        let stepped = self.session.step(&step)?;
        let values: Vec<&Tensor> =
            stepped.touched.iter().chain(&stepped.logits).chain(&stepped.sound).collect();
        self.device.eval(&values)?;
        for (slot, ids, _) in parts {
            *self.counts.entry(*slot).or_default() += ids.len();
        }
        if let Some(sound) = &stepped.sound
            && sound.to_vec::<i32>()?.contains(&0)
        {
            return Err("keys or values are not finite".into());
        }
        let Some(logits) = stepped.logits else { return Ok(Vec::new()) };
        let width = self.session.capabilities().vocabulary;
        Ok(logits.to_vec::<f32>()?.chunks(width).map(<[f32]>::to_vec).collect())
    }

    /// Feeds a prompt in chunks and gives the logits after its last token.
    ///
    /// # Errors
    /// The session's own.
    pub fn prefill(&mut self, slot: Slot, prompt: &[TokenId], chunk: usize) -> Result<Logits> {
        let mut chunks = prompt.chunks(chunk).peekable();
        let mut last = Vec::new();
        while let Some(chunk) = chunks.next() {
            let wanted = if chunks.peek().is_some() { Wanted::None } else { Wanted::Last };
            last = self.step(&[(slot, chunk, wanted)])?;
        }
        last.pop().ok_or_else(|| "the prompt is empty".into())
    }

    /// The same for a row that is kept by a policy: chunks end where its precision changes.
    ///
    /// # Errors
    /// The session's own.
    pub fn prefill_by(
        &mut self,
        policy: &StatePolicy,
        slot: Slot,
        prompt: &[TokenId],
        chunk: usize,
    ) -> Result<Logits> {
        let mut rest = prompt;
        loop {
            let position = prompt.len() - rest.len();
            let limit = policy.limit(position).unwrap_or(usize::MAX);
            let (part, more) = rest.split_at(rest.len().min(chunk).min(limit));
            let logits = self.prefill(slot, part, part.len())?;
            if more.is_empty() {
                return Ok(logits);
            }
            rest = more;
        }
    }

    /// Continues greedily from the logits of a row's last token; gives the logits behind each of `count` tokens,
    /// those passed in being the first.
    ///
    /// # Errors
    /// The session's own.
    pub fn continue_greedily(&mut self, slot: Slot, first: Logits, count: usize) -> Result<Vec<Logits>> {
        let mut all = vec![first];
        while all.len() < count {
            let token = best(&all[all.len() - 1]);
            all.append(&mut self.step(&[(slot, &[token], Wanted::Last)])?);
        }
        Ok(all)
    }

    /// Logits behind each of the first `count` greedy tokens after a prompt.
    ///
    /// # Errors
    /// The session's own.
    pub fn greedy(&mut self, prompt: &[TokenId], chunk: usize, count: usize) -> Result<Vec<Logits>> {
        let slot = self.open()?;
        let first = self.prefill(slot, prompt, chunk)?;
        let all = self.continue_greedily(slot, first, count)?;
        self.close(slot)?;
        Ok(all)
    }
}

/// The most likely token; the smallest id among equals.
pub fn best(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as TokenId
}

/// Natural logarithms of the probabilities, as f64 sums give them.
pub fn log_probabilities(logits: &[f32]) -> Logits {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    logits.iter().map(|logit| (f64::from(logit - highest) - sum.ln()) as f32).collect()
}

/// Largest difference between two rows of numbers; infinite where one is not a number or the lengths differ.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return f32::INFINITY;
    }
    let between = |(a, b): (&f32, &f32)| match (a - b).abs() {
        _ if a == b => 0.0,
        difference if difference.is_nan() => f32::INFINITY,
        difference => difference,
    };
    a.iter().zip(b).map(between).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_smallest_id() {
        assert_eq!(best(&[0.0, 2.0, 2.0, 1.0]), 1);
        assert_eq!(best(&[f32::NEG_INFINITY, -1.0]), 1);
    }

    #[test]
    fn probabilities_sum_to_one_and_nan_is_far_from_everything() {
        let sum: f32 = log_probabilities(&[1000.0, 999.0, 0.0]).iter().map(|it| it.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        assert_eq!(distance(&[1.0, 5.0], &[1.5, 5.0]), 0.5);
        assert_eq!(distance(&[f32::NAN, 1.0], &[1.0, 1.0]), f32::INFINITY);
        assert_eq!(distance(&[1.0], &[]), f32::INFINITY);
    }
}
