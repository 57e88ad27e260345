//! Steps on their way: what is begun, and what is read of it.
//!
//! ```text
//!   device that runs at once:  begin t, read t, deliver t;  begin t+1, read t+1, ..
//!   device that defers:        begin t;  begin t+1 from what t has sampled, read t, deliver t;  begin t+2, ..
//! ```
//!
//! A step begins before the one before it is read only while nothing else is to be done: every row has its last known token
//! in it, the device chooses all their tokens, nothing proposes for one of them, and nobody came, left or was cancelled. Otherwise that one is read and
//! delivered first. So a row that ends by a token that nobody could foresee has one token too many in its slot; rows whose
//! end is a length are left out. A row behind whose token something is filled in has sampled one token in vain: it is dropped,
//! and the next step begins when all is read.
//!
//! Invariants: at most one step is unread when a turn ends; on a device that runs at once there is none, and no token is computed
//! that a row does not want.

use super::{
    Course, Executor, Given, Iteration, Parts,
    fault::{Fault, guard},
    structure::Bound,
};
use crate::{
    pace::Load,
    row::Row,
    sample::{Draw, Picks},
};
use std::time::Duration;
use tandem_contracts::{
    execution::Method,
    model::{RowStep, Slot, Step, TokenSource, Wanted},
    tensor::Tensor,
};

/// A step that has been begun and not been read.
#[derive(Debug)]
pub(super) struct Flight {
    step: Step,
    load: Load,
    /// Tokens of it that were filled in.
    filled: usize,
    begun: Duration,
    /// What is to be read, or why it failed.
    outcome: Result<Unread, Fault>,
    /// What binds some of its rows; none where the next step may follow unread.
    bound: Vec<Bound>,
    leads: bool,
}

#[derive(Debug)]
struct Unread {
    picks: Option<Picks>,
    sound: Option<Tensor>,
}

impl Flight {
    /// Whether the next step may begin from what it samples, before anybody has read that.
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    fn carries(&self, slot: Slot) -> bool {
        self.step.rows.iter().any(|part| part.slot == slot)
    }
}

impl Executor {
    /// Whether the next step is to begin before the one in flight is read.
    pub(super) fn runs_ahead(&self) -> bool {
        let leads = self.flight.as_ref().is_some_and(|flight| flight.leads);
        leads && self.settled && self.course == Course::Open && self.rows.iter().all(|row| !row.cancelled)
    }

    /// Whether a row's slot holds a token more than the row knows of.
    pub(super) fn is_ahead(&self, slot: Slot) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.carries(slot))
    }

    /// Drops a step in flight of whose rows none is left.
    pub(super) fn forget_flight(&mut self) {
        let rows = &self.rows;
        self.flight.take_if(|flight| rows.iter().all(|row| !flight.carries(row.slot)));
    }

    /// Begins the step after one that is not read; none where all its rows end with it.
    pub(super) fn begin_after(&mut self, flight: &Flight) -> Option<Flight> {
        let unread = flight.outcome.as_ref().ok()?.picks.as_ref()?.unread()?;
        let (rows, context) = (&self.rows, self.capabilities.context);
        let goes_on = |part: &&RowStep| rows.iter().any(|row| row.slot == part.slot && row.goes_on(context));
        let next = |part: &RowStep| RowStep {
            slot: part.slot,
            position: part.position + part.tokens.len(),
            tokens: TokenSource::Register(part.slot),
            wanted: Wanted::Last,
            adapters: part.adapters,
        };
        let step = Step { rows: flight.step.rows.iter().filter(goes_on).map(next).collect() };
        let slots: Vec<Slot> = flight.step.rows.iter().map(|part| part.slot).collect();
        let load = Load { decoding: step.rows.len(), preparing: 0, tokens: 0 };
        (!step.rows.is_empty()).then(|| self.begin(step, load, Some((&slots, unread))))
    }

    /// Begins a step; `register` has what slots have sampled and nobody has read.
    pub(super) fn begin(&mut self, step: Step, load: Load, register: Option<(&[Slot], &Tensor)>) -> Flight {
        self.metrics.steps += 1;
        self.metrics.step_rows += step.rows.len() as u64;
        let vocabulary = self.vocabulary();
        let filled = self.filled(&step);
        let leading = self.may_lead(&step);
        let bound = self.lend_grammars(&step);
        let Parts { device, session, clock, .. } = &mut self.parts;
        // What grammars allow is found out while the device computes.
        let slots: Vec<Slot> = bound.iter().map(|bound| bound.slot).collect();
        let draws = draws(&self.rows, &step, |slot| slots.contains(&slot).then_some(&[]));
        let draws: Vec<Draw<'_>> = draws.collect();
        let begun = clock.now();
        let work = || {
            if let Some((slots, sampled)) = register {
                session.register(slots, sampled)?;
            }
            let stepped = session.step(&step)?;
            let picks = stepped.logits.as_ref().map(|logits| Picks::new(logits, &draws, vocabulary));
            let picks = picks.transpose()?;
            let chosen = picks.iter().flat_map(Picks::tensors);
            let tensors: Vec<&Tensor> = chosen.chain(&stepped.touched).chain(&stepped.sound).collect();
            let leads = leading && picks.as_ref().is_some_and(|picks| picks.unread().is_some());
            if leads {
                device.async_eval(&tensors)?
            } else {
                device.eval(&tensors)?
            }
            // Rows go on with their planes alone, so that the next step may append in place.
            Ok((Unread { picks, sound: stepped.sound }, leads))
        };
        let (bound, outcome) = self.aside.find_out(bound, || guard("step", work));
        self.metrics.times.model += clock.now().saturating_sub(begun);
        let leads = outcome.as_ref().is_ok_and(|(_, leads)| *leads);
        Flight { step, load, filled, begun, outcome: outcome.map(|(unread, _)| unread), bound, leads }
    }

    /// Tokens of a step that were filled in, but for the first of each row, which a row that decodes has too.
    fn filled(&self, step: &Step) -> usize {
        let fills = |part: &&RowStep| self.rows.iter().any(|row| row.slot == part.slot && row.is_filling());
        step.rows.iter().filter(fills).map(|part| part.tokens.len() - 1).sum()
    }

    /// Whether another step could follow before anybody reads this one, if the device chooses its tokens.
    fn may_lead(&self, step: &Step) -> bool {
        let able = self.parts.device.traits().deferred && self.capabilities.execution.registers;
        let decoding = |part: &RowStep| part.wanted == Wanted::Last;
        // Whatever proposes goes on from tokens that have been read.
        let proposed = |row: &Row| row.execution.method == Method::Speculative;
        let alone = step.rows.len() == self.rows.len() && !self.rows.iter().any(proposed);
        able && alone && step.rows.iter().all(decoding)
    }

    /// Waits for a step, and reads what it gave.
    pub(super) fn read(&mut self, flight: Flight) -> Iteration {
        let Flight { step, load, filled, begun, outcome, bound, leads } = flight;
        let Parts { device, clock, .. } = &self.parts;
        let rows = &self.rows;
        let sets = |slot| bound.iter().find(|bound| bound.slot == slot).map(Bound::sets);
        let begins = clock.now();
        let mut evaluated = begins;
        let outcome = outcome.and_then(|Unread { picks, sound }| {
            guard("step", || {
                if leads {
                    device.eval(&picks.iter().flat_map(Picks::tensors).chain(&sound).collect::<Vec<_>>())?;
                }
                evaluated = clock.now();
                let sound = sound.map_or_else(|| Ok(Vec::new()), |sound| sound.to_vec::<i32>())?;
                let on_host = draws(rows, &step, sets).filter(|draw| !draw.is_on_device());
                let choices = picks.map_or_else(|| Ok(Vec::new()), |picks| picks.read(on_host))?;
                Ok(Given { choices, sound: sound.into_iter().map(|it| it != 0).collect() })
            })
        });
        let now = clock.now();
        self.return_grammars(bound);
        self.metrics.times.model += evaluated.saturating_sub(begins);
        self.metrics.times.sampling += now.saturating_sub(evaluated);
        let mut round = None;
        if outcome.is_ok() {
            // What a step takes that begins before the one before it is read, is the time between the two.
            let time = now.saturating_sub(begun.max(self.read_at));
            let drafts: usize = self.rows.iter().map(Row::drafts).sum();
            let tokens = step.tokens().saturating_sub(load.decoding + drafts + filled);
            if filled == 0 {
                self.pace.note(Load { tokens, ..load }, time);
            }
            if tokens == 0 {
                self.note_round(&step, time);
                round = Some(time);
            }
        }
        self.read_at = now;
        Iteration { step, outcome, round }
    }
}

/// What each row of a step's logits is for, by what is known of the grammars of slots so far.
fn draws<'a>(
    rows: &'a [Row],
    step: &'a Step,
    sets: impl Fn(Slot) -> Option<&'a [Vec<u32>]>,
) -> impl Iterator<Item = Draw<'a>> {
    let parts = step.rows.iter().filter_map(move |part| {
        let row = rows.iter().find(|row| row.slot == part.slot)?;
        Some(row.draws(part, sets(part.slot)))
    });
    parts.flatten()
}
