//! The state of one recurrent layer of a row, and what an open step makes of it.
//!
//! Invariant: the state changes in [`Cell::close`] alone. Until then the step's result lies beside it, so that nothing
//! that fails or is given up can touch it.

use super::kit::Kit;
use crate::{
    RecurrentShape,
    recurrence::{Carried, Recurrence, State},
};
use std::{ops::Range, rc::Rc};
use tandem_contracts::tensor::{Error, ErrorKind, Result, Tensor};

/// A state and the step that is being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// None before the first step.
    state: Option<State>,
    step: Option<Step>,
}

/// What a step made of the state.
#[derive(Clone, Debug)]
struct Step {
    after: State,
    tokens: usize,
    /// Absent where nothing is to be done again: a step of one token is kept or not.
    replay: Option<Replay>,
    /// The state after so many tokens, once it was asked for.
    settled: Option<(usize, State)>,
}

/// What it takes to do a step again.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) inputs: Vec<Tensor>,
    /// The row's tokens among those of the inputs.
    pub(crate) range: Range<usize>,
    pub(crate) recurrence: Rc<dyn Recurrence>,
}

impl Replay {
    /// The state after the first `keep` tokens.
    fn run(&self, kit: &Kit, state: &State, keep: usize) -> Result<State> {
        let first = |x: &Tensor| {
            let mut ranges: Vec<Range<usize>> = x.shape().iter().map(|&extent| 0..extent).collect();
            if let Some(range) = ranges.first_mut() {
                *range = self.range.start..self.range.start + keep;
            }
            kit.device().slice(x, &ranges)
        };
        let inputs = self.inputs.iter().map(first).collect::<Result<Vec<_>>>()?;
        let carry = self.recurrence.carry(&inputs, &[Carried { tokens: 0..keep, state }])?;
        carry.states.into_iter().next().ok_or_else(|| Error::shape("recur", "gave no state"))
    }
}

impl Cell {
    /// A state that was stored.
    pub(crate) fn stored(state: Option<State>) -> Self {
        Self { state, step: None }
    }

    /// Makes a state for a row's first step.
    pub(crate) fn begin(&mut self, kit: &Kit, shape: RecurrentShape) -> Result<()> {
        if self.state.is_none() {
            self.state = Some(State::cold(kit.device(), shape, kit.blueprint().policy().dtype())?);
        }
        Ok(())
    }

    /// What was left before the open step; none before the first one.
    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Takes what the open step's tokens left.
    pub(crate) fn advance(&mut self, after: State, replay: Replay) {
        let tokens = replay.range.len();
        self.step = Some(Step { after, tokens, replay: (tokens > 1).then_some(replay), settled: None });
    }

    /// Finds the state after the first `keep` tokens of the step, so that closing it needs nothing any more.
    pub(crate) fn settle(&mut self, kit: &Kit, keep: usize) -> Result<()> {
        let (Some(step), Some(state)) = (&mut self.step, &self.state) else { return Err(not_written()) };
        if step.settled.as_ref().is_some_and(|(kept, _)| *kept == keep) {
            return Ok(());
        }
        let settled = match &step.replay {
            _ if keep == 0 => state.clone(),
            Some(replay) if keep < step.tokens => replay.run(kit, state, keep)?,
            _ => step.after.clone(),
        };
        step.settled = Some((keep, settled));
        Ok(())
    }

    /// Ends the step with the state that was settled.
    pub(crate) fn close(&mut self) {
        if let Some((_, settled)) = self.step.take().and_then(|step| step.settled) {
            self.state = Some(settled);
        }
    }

    /// Ends the step with the state before it.
    pub(crate) fn roll_back(&mut self) {
        self.step = None;
    }

    /// Every tensor that is held.
    pub(crate) fn planes(&self) -> impl Iterator<Item = &Tensor> {
        self.state.iter().flat_map(State::planes)
    }
}

fn not_written() -> Error {
    Error::new(ErrorKind::State, "commit", "a layer's state was not written")
}
