//! A smaller model of the same vocabulary that proposes for a larger one.
//!
//! It has a session of its own on the engine's device, and in it a row for each row that it proposes for. Before it proposes it
//! reads what the row has come to since; a long prompt takes it several turns, in which it has nothing to say. Then it says the
//! likeliest token, reads it, and so on, for all rows together.
//!
//! ```text
//!   history   a b c d        the larger model chose c d, where d was not proposed
//!   held      a b c x y      what the smaller one has read: it goes back to a b c, reads d, proposes
//! ```
//!
//! Where its rows cannot be shortened at any time it proposes in a copy of the row, which it drops.
//!
//! Invariants: a row's own slot holds nothing but a beginning of its history and, where it can be shortened, proposals behind it;
//! whatever goes wrong here costs proposals and no answer.

use crate::error::panic_message;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};
use tandem_contracts::{
    model::{AdapterSet, Capabilities, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
    tensor::{Device, Result},
    text::TokenId,
};
use tandem_spec::draft::{Ask, DraftProvider, Guess};

/// Slots of copies stand behind those of rows.
const COPIES: u32 = 1 << 16;

/// The model and its rows.
#[derive(Debug)]
pub(crate) struct Drafter {
    device: Device,
    session: Box<dyn Session>,
    capabilities: Capabilities,
    /// Ids that may be proposed are below this.
    vocabulary: usize,
    /// Most tokens that it reads of a row in a step.
    chunk: usize,
    rows: BTreeMap<Slot, Line>,
    /// Whether it has panicked: nobody knows what its session holds.
    broken: bool,
}

/// One row.
#[derive(Debug, Default)]
struct Line {
    history: Vec<TokenId>,
    /// What its slot holds; none where it is not open.
    held: Option<Vec<TokenId>>,
}

/// A row that is being proposed for.
#[derive(Debug)]
struct Course {
    ask: Ask,
    /// Where it reads its proposals.
    slot: Slot,
    guess: Vec<TokenId>,
}

impl Drafter {
    pub(crate) fn new(device: Device, session: Box<dyn Session>, vocabulary: usize, chunk: usize) -> Self {
        let capabilities = session.capabilities().clone();
        let (chunk, vocabulary) = (chunk.max(1), vocabulary.min(capabilities.vocabulary));
        Self { device, session, capabilities, vocabulary, chunk, rows: BTreeMap::new(), broken: false }
    }

    /// Proposals of all rows, in the order of the asks.
    fn guess(&mut self, asks: &[Ask]) -> Result<Vec<Vec<TokenId>>> {
        let mut guesses = vec![Vec::new(); asks.len()];
        let mut running: Vec<(usize, Course)> = Vec::new();
        let (mut step, mut read) = (Vec::new(), Vec::new());
        for (index, ask) in asks.iter().enumerate() {
            if let Some((part, ready)) = self.catch_up(*ask)? {
                step.push(part);
                read.extend(ready.then_some((index, *ask)));
            }
        }
        let mut next = self.step(step)?.into_iter();
        for (index, ask) in read {
            let Some(first) = next.next() else { break };
            let mut slot = ask.slot;
            if !self.capabilities.trimmable && ask.most > 1 {
                slot = Slot(ask.slot.0 + COPIES);
                self.session.discard(slot);
                self.session.fork(ask.slot, slot)?;
            }
            running.push((index, Course { ask, slot, guess: vec![first] }));
        }
        while !running.is_empty() {
            let (done, going): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(_, course)| course.guess.len() >= course.ask.most);
            for (index, course) in done {
                if course.slot != course.ask.slot {
                    self.session.discard(course.slot);
                }
                guesses[index] = course.guess;
            }
            running = going;
            self.go_on(&mut running)?;
        }
        Ok(guesses)
    }

    /// What a row has to read before it is proposed for, and whether a proposal comes of that; none where it cannot be.
    fn catch_up(&mut self, Ask { slot, most }: Ask) -> Result<Option<(RowStep, bool)>> {
        let Some(line) = self.rows.get_mut(&slot) else { return Ok(None) };
        if most == 0 || line.history.len() + most > self.capabilities.context {
            return Ok(None);
        }
        if line.held.is_none() {
            self.session.open(slot, &StatePolicy::Plain, None)?;
        }
        let held = line.held.get_or_insert_default();
        let same = held.iter().zip(&line.history).take_while(|(held, known)| held == known).count();
        let same = same.min(line.history.len().saturating_sub(1));
        if same < held.len() {
            self.session.trim(slot, same)?;
            held.truncate(same);
        }
        let end = line.history.len().min(same + self.chunk);
        let (tokens, ready) = (line.history[same..end].to_vec(), end == line.history.len());
        held.extend(&tokens);
        let wanted = if ready { Wanted::Last } else { Wanted::None };
        Ok((!tokens.is_empty()).then(|| (part(slot, same, tokens, wanted), ready)))
    }

    /// Reads the last proposal of each row, and finds the next.
    fn go_on(&mut self, running: &mut [(usize, Course)]) -> Result<()> {
        let mut step = Vec::new();
        for (_, course) in running.iter() {
            let (Some(&last), Some(line)) = (course.guess.last(), self.rows.get_mut(&course.ask.slot)) else {
                continue;
            };
            let position = line.history.len() + course.guess.len() - 1;
            step.push(part(course.slot, position, vec![last], Wanted::Last));
            if course.slot == course.ask.slot {
                line.held.get_or_insert_default().push(last);
            }
        }
        let next = self.step(step)?;
        running.iter_mut().zip(next).for_each(|((_, course), token)| course.guess.push(token));
        Ok(())
    }

    /// Runs a step, and gives the likeliest token of each row of logits.
    fn step(&mut self, rows: Vec<RowStep>) -> Result<Vec<TokenId>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let stepped = self.session.step(&Step { rows })?;
        let best = stepped.logits.map(|logits| {
            let &[rows, width] = logits.shape() else { return self.device.argmax(&logits, 1) };
            let logits = match self.vocabulary < width {
                true => self.device.slice(&logits, &[0..rows, 0..self.vocabulary])?,
                false => logits,
            };
            self.device.argmax(&logits, 1)
        });
        let best = best.transpose()?;
        self.device.eval(&best.iter().chain(&stepped.touched).collect::<Vec<_>>())?;
        let best = best.map_or_else(|| Ok(Vec::new()), |best| best.to_vec::<i32>())?;
        Ok(best.into_iter().map(|token| token as TokenId).collect())
    }

    /// Forgets what slots hold; rows begin anew.
    fn lose(&mut self) {
        for (slot, line) in &mut self.rows {
            line.held = None;
            self.session.discard(*slot);
            self.session.discard(Slot(slot.0 + COPIES));
        }
    }
}

fn part(slot: Slot, position: usize, tokens: Vec<TokenId>, wanted: Wanted) -> RowStep {
    RowStep { slot, position, tokens: TokenSource::Ids(tokens), wanted, adapters: AdapterSet::BASE }
}

impl DraftProvider for Drafter {
    fn namespace(&self) -> String {
        "model".to_owned()
    }

    fn adapters(&self) -> bool {
        true
    }

    fn takes_time(&self) -> bool {
        true
    }

    fn bytes(&self, rows: &[usize]) -> usize {
        let lengths: Vec<usize> =
            rows.iter().map(|length| (*length).min(self.capabilities.context)).collect();
        // Where it cannot tell, it is taken to hold nothing: it loses its rows where there is no room.
        self.session.project_bytes(&StatePolicy::Plain, &lengths, self.chunk).unwrap_or(0)
    }

    fn open(&mut self, slot: Slot, history: &[TokenId]) {
        self.close(slot);
        self.rows.insert(slot, Line { history: history.to_vec(), held: None });
    }

    fn commit(&mut self, slot: Slot, tokens: &[TokenId]) {
        if let Some(line) = self.rows.get_mut(&slot) {
            line.history.extend(tokens);
        }
    }

    fn propose(&mut self, asks: &[Ask]) -> Vec<Guess> {
        let nothing = || vec![Guess::default(); asks.len()];
        if self.broken {
            return nothing();
        }
        match catch_unwind(AssertUnwindSafe(|| self.guess(asks))) {
            Ok(Ok(guesses)) => guesses.into_iter().map(|tokens| Guess { tokens, sort: 0 }).collect(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the draft model failed");
                self.lose();
                nothing()
            }
            Err(payload) => {
                tracing::error!(panic = panic_message(payload.as_ref()), "the draft model panicked");
                self.broken = true;
                nothing()
            }
        }
    }

    fn close(&mut self, slot: Slot) {
        if self.rows.remove(&slot).is_some() && !self.broken {
            self.session.discard(slot);
        }
    }
}
