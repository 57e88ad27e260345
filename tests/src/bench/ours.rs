//! Our side: steps through the model port, each evaluated whole, logits included.

use super::case::{Cache, Case};
use crate::Result;
use std::time::{Duration, Instant};
use tandem_contracts::{
    model::{AdapterSet, RowStep, Session, Slot, Step, TokenSource, Wanted},
    tensor::{Device, Tensor},
    text::TokenId,
};

/// Tokens of one prompt that go into one step, as the engine has it by default.
const CHUNK: usize = 512;

/// A loaded model that is timed.
#[derive(Debug)]
pub struct Bench {
    /// The device it is on.
    pub device: Device,
    /// The model.
    pub session: Box<dyn Session>,
}

impl Bench {
    /// Tokens per second of one run of a case.
    ///
    /// # Errors
    /// The session's own.
    pub fn run(&mut self, case: Case) -> Result<f64> {
        let time = match case {
            Case::Prefill { tokens } => {
                let slots = self.open(1, Cache::Floats)?;
                let time = self.timed(|bench| bench.prefill(slots[0], tokens))?;
                self.close(&slots)?;
                time
            }
            Case::Decode { depth, tokens, cache } => self.decode(1, cache, depth, tokens)?,
            Case::Batch { rows, prompt, tokens } => self.decode(rows, Cache::Floats, prompt, tokens)?,
        };
        Ok(case.measured() as f64 / time.as_secs_f64())
    }

    fn decode(&mut self, rows: usize, cache: Cache, prompt: usize, tokens: usize) -> Result<Duration> {
        let slots = self.open(rows, cache)?;
        for &slot in &slots {
            self.prefill(slot, prompt)?;
        }
        let time = self.timed(|bench| {
            (prompt..prompt + tokens).try_for_each(|position| {
                let step = |&slot: &Slot| bench.row(slot, position, 1, Wanted::Last);
                let rows = slots.iter().map(step).collect();
                bench.step(&Step { rows })
            })
        })?;
        self.close(&slots)?;
        Ok(time)
    }

    fn timed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Duration> {
        let start = Instant::now();
        work(self)?;
        Ok(start.elapsed())
    }

    fn open(&mut self, rows: usize, cache: Cache) -> Result<Vec<Slot>> {
        let policy = cache.policy();
        let slots: Vec<Slot> = (0..rows as u32).map(Slot).collect();
        slots.iter().try_for_each(|&slot| self.session.open(slot, &policy, None))?;
        Ok(slots)
    }

    fn close(&mut self, slots: &[Slot]) -> Result<()> {
        slots.iter().try_for_each(|&slot| self.session.close(slot).map(drop))?;
        Ok(())
    }

    fn prefill(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        let mut position = 0;
        while position < tokens {
            let chunk = CHUNK.min(tokens - position);
            let wanted = if position + chunk == tokens { Wanted::Last } else { Wanted::None };
            let rows = vec![self.row(slot, position, chunk, wanted)];
            self.step(&Step { rows })?;
            position += chunk;
        }
        Ok(())
    }

    fn row(&self, slot: Slot, position: usize, tokens: usize, wanted: Wanted) -> RowStep {
        let vocabulary = self.session.capabilities().vocabulary;
        let id = |position: usize| token(position, slot.0 as usize, vocabulary);
        let tokens = TokenSource::Ids((position..position + tokens).map(id).collect());
        RowStep { slot, position, tokens, wanted, adapters: AdapterSet::BASE }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let stepped = self.session.step(step)?;
        let values: Vec<&Tensor> =
            stepped.touched.iter().chain(&stepped.logits).chain(&stepped.sound).collect();
        Ok(self.device.eval(&values)?)
    }
}

/// A token of row `row`. They are spread over the vocabulary: the time does not depend on the ids, but the caches must
/// not help.
pub fn token(position: usize, row: usize, vocabulary: usize) -> TokenId {
    ((position * 7919 + row * 104_729) % vocabulary) as TokenId
}
