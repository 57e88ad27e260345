//! The engine without its thread: commands in, steps over the session, events out.
//!
//! ```text
//!   accept --> queue --admit--> rows --plan--> step --session, one evaluation--> choices --deliver--> events
//! ```
//!
//! Invariants: every accepted request ends once; a row's slot is closed when the row leaves, whatever the reason;
//! a failed step ends the rows that it carried and no others; requests start in the order of their ids.

mod admission;
mod beginning;
mod draft;
mod fault;
mod flight;
mod structure;

use crate::{
    command::{Command, Submission, Waiter},
    config::{Config, Mixing},
    handle::DraftSource,
    pace::{Load, Pace},
    plan::{Limits, Turn, plan},
    prefix::PrefixStore,
    row::{NOT_NUMBERS, Row, failed},
    sample::{Choice, Chosen, NoChoice},
    status::{Metrics, Times},
    turn::Turns,
};
pub(crate) use draft::Drafting;
use fault::{Fault, guard};
use flight::Flight;
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::mpsc::Sender,
    time::Duration,
};
use structure::Aside;
use tandem_contracts::{
    model::{Capabilities, Session, Slot, Step},
    request::{Outcome, RequestId},
    schedule::Clock,
    tensor::{Device, ErrorKind},
};

/// What the executor drives.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) device: Device,
    pub(crate) session: Box<dyn Session>,
    /// What proposes, until it is taken.
    pub(crate) draft: Option<DraftSource>,
    pub(crate) config: Config,
    pub(crate) clock: Box<dyn Clock>,
}

/// Whether more can come of it. A later course is never left for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Course {
    /// Requests are taken.
    Open,
    /// Rows finish, nothing starts.
    Draining,
    /// It was told to end.
    Stopped,
    /// A slot could not be closed: the session is beyond repair.
    Broken,
}

/// Queue, rows and counts over one session.
#[derive(Debug)]
pub(crate) struct Executor {
    parts: Parts,
    capabilities: Capabilities,
    queue: BTreeMap<RequestId, Box<Submission>>,
    /// In the order in which they were admitted.
    rows: Vec<Row>,
    /// Cache bytes that the rows may take together, by projection; never more than the budget.
    projected: usize,
    prefix: PrefixStore,
    drafting: Drafting,
    aside: Aside,
    pace: Pace,
    turns: Turns,
    /// Whether the last step carried prompts and left decoding rows to the next one.
    prompts_had_a_turn: bool,
    /// A step that has been begun and not been read.
    flight: Option<Flight>,
    /// When the last step was read.
    read_at: Duration,
    /// Whether nothing has happened since rows were admitted that could let another one start.
    settled: bool,
    course: Course,
    drains: Vec<Sender<()>>,
    /// In the order in which they came; the first has the device once no row lives, and nothing starts before the last is gone.
    waiters: VecDeque<Waiter>,
    /// Whether the first of them has it.
    held: bool,
    metrics: Metrics,
}

/// A step that has run, and what came of it.
#[derive(Debug)]
struct Iteration {
    step: Step,
    /// What came of it, or why it failed.
    outcome: std::result::Result<Given, Fault>,
    /// What it took, where it carried no prompt.
    round: Option<Duration>,
}

/// What a step gave.
#[derive(Debug)]
struct Given {
    /// One for each token of the step that wanted logits.
    choices: Vec<Choice>,
    /// Of each row of the step, whether its keys and values could be stored; empty where none was encoded.
    sound: Vec<bool>,
}

impl Executor {
    pub(crate) fn new(mut parts: Parts) -> Self {
        let capabilities = parts.session.capabilities().clone();
        let prefix = PrefixStore::new(parts.config.prefix);
        let drafting = Drafting::new(&mut parts, &capabilities);
        Self {
            parts,
            prefix,
            capabilities,
            queue: BTreeMap::new(),
            rows: Vec::new(),
            projected: 0,
            drafting,
            aside: Aside::default(),
            pace: Pace::default(),
            turns: Turns::default(),
            prompts_had_a_turn: false,
            flight: None,
            read_at: Duration::ZERO,
            settled: false,
            course: Course::Open,
            drains: Vec::new(),
            waiters: VecDeque::new(),
            held: false,
            metrics: Metrics::default(),
        }
    }

    /// Takes proposals from elsewhere than it is configured.
    #[cfg(test)]
    pub(crate) fn provide(&mut self, drafting: Drafting) {
        self.drafting = drafting;
    }

    /// Tries proposals only where they pay.
    #[cfg(test)]
    pub(crate) fn adapt(&mut self) {
        self.parts.config.drafting.adaptive = true;
    }

    pub(crate) fn course(&self) -> Course {
        self.course
    }

    /// Whether there is nothing to do until a command comes.
    pub(crate) fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.flight.is_none() && (self.queue.is_empty() || self.held)
    }

    /// One turn: the commands that have come, admission, one step, delivery. `inbox` gives the next command if
    /// there is one; it is asked again after the step, so that a cancel during it comes before its tokens.
    pub(crate) fn turn(&mut self, mut inbox: impl FnMut() -> Option<Command>) {
        let started = self.parts.clock.now();
        let Times { model, sampling, .. } = self.metrics.times;
        while let Some(command) = inbox() {
            self.accept(command);
        }
        let unread = match self.runs_ahead() {
            true => self.flight.take(),
            false => {
                self.land();
                self.prepare();
                None
            }
        };
        let mut begun = match &unread {
            Some(unread) => self.begin_after(unread),
            None => self.forward(),
        };
        let due = unread.or_else(|| begun.take_if(|begun| !begun.leads()));
        let iteration = due.map(|flight| self.read(flight));
        self.flight = begun;
        while let Some(command) = inbox() {
            self.accept(command);
        }
        iteration.into_iter().for_each(|iteration| self.deliver(iteration));
        self.forget_flight();
        if self.rows.is_empty() {
            // Dropping the senders is the reply.
            self.drains.clear();
            self.grant();
        }
        let times = &mut self.metrics.times;
        let inside = (times.model + times.sampling).saturating_sub(model + sampling);
        times.other += self.parts.clock.now().saturating_sub(started).saturating_sub(inside);
    }

    /// Takes one command. Rows that it cancels leave at the next preparation or delivery.
    fn accept(&mut self, command: Command) {
        self.settled = false;
        match command {
            Command::Submit(submission) if self.course == Course::Open => {
                self.queue.insert(submission.id, submission);
            }
            Command::Submit(submission) => self.turn_away(*submission, failed("the engine is shutting down")),
            Command::Cancel(id) => match self.queue.remove(&id) {
                Some(submission) => self.turn_away(*submission, Outcome::Cancelled),
                None => self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.cancelled = true),
            },
            Command::Drain(reply) => {
                self.close(Course::Draining);
                self.drains.push(reply);
            }
            Command::Hold(waiter) => self.waiters.push_back(waiter),
            Command::Release(number) => {
                let first = self.waiters.front().is_some_and(|waiter| waiter.number == number);
                self.held &= !first;
                self.waiters.retain(|waiter| waiter.number != number);
            }
            Command::Shutdown => self.close(Course::Stopped),
        }
    }

    /// Gives the device to the first who waits for it; whoever has gone meanwhile is passed over.
    fn grant(&mut self) {
        while !self.held
            && let Some(waiter) = self.waiters.front()
        {
            match waiter.granted.send(()) {
                Ok(()) => self.held = true,
                Err(_) => drop(self.waiters.pop_front()),
            }
        }
    }

    fn close(&mut self, course: Course) {
        self.course = self.course.max(course);
        for submission in mem::take(&mut self.queue).into_values() {
            self.turn_away(*submission, failed("the engine is shutting down, the request had not started"));
        }
        if self.course == Course::Stopped {
            self.retire(|_| Some(failed("the engine is shutting down")));
        }
    }

    fn turn_away(&mut self, submission: Submission, outcome: Outcome) {
        self.metrics.outcomes.count(&outcome);
        submission.publisher.finish(outcome);
    }

    /// Reads and delivers the step in flight, if there is one.
    fn land(&mut self) {
        if let Some(flight) = self.flight.take() {
            let iteration = self.read(flight);
            self.deliver(iteration);
        }
    }

    /// Begins a step over the rows; `None` when no row has anything to do, or the session cannot be trusted.
    fn forward(&mut self) -> Option<Flight> {
        if self.course == Course::Broken {
            return None;
        }
        let policy = self.turns.next(&self.groups())?;
        self.propose(policy);
        let taking_part = self.rows.iter().filter(|row| row.is_open() && row.policy == policy);
        let counted: Vec<_> = taking_part.map(Row::counted).collect();
        let load = Load::of(&counted);
        let limits = self.limits(load);
        let step = plan(&counted, limits, self.policy(policy));
        if step.rows.is_empty() {
            return None;
        }
        self.settle_drafts(&step);
        self.prompts_had_a_turn = limits.turn == Turn::Prompts;
        Some(self.begin(step, load, None))
    }

    /// The ways in which rows are kept, each with its number of open rows, in order of their oldest.
    fn groups(&self) -> Vec<(usize, usize)> {
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.is_open()) {
            match groups.iter_mut().find(|(policy, _)| *policy == row.policy) {
                Some((_, rows)) => *rows += 1,
                None => groups.push((row.policy, 1)),
            }
        }
        groups
    }

    /// What the next step may carry of what there is.
    fn limits(&self, load: Load) -> Limits {
        let Config { step_tokens, prompt_chunk, mixing, .. } = self.parts.config;
        let all = Limits { step: step_tokens, chunk: prompt_chunk, prompts: usize::MAX, turn: Turn::Both };
        match mixing {
            _ if load.decoding == 0 || load.preparing == 0 => all,
            Mixing::Packed(gap) => Limits { prompts: self.pace.prompt_tokens(load.decoding, gap), ..all },
            Mixing::Alternating if self.prompts_had_a_turn => Limits { turn: Turn::Decoding, ..all },
            Mixing::Alternating => Limits { turn: Turn::Prompts, ..all },
        }
    }

    fn vocabulary(&self) -> usize {
        self.parts.config.vocabulary.unwrap_or(usize::MAX).min(self.capabilities.vocabulary)
    }

    /// Tells the consumers what a step gave, and lets rows go that have ended.
    fn deliver(&mut self, iteration: Iteration) {
        let Iteration { step, outcome, round } = iteration;
        let now = self.parts.clock.now();
        let Given { choices, sound } = match outcome {
            Ok(given) => given,
            Err(fault) => return self.fail(&step, &fault),
        };
        let counts = |metrics: &Metrics| (metrics.drafted_tokens, metrics.accepted_tokens);
        let before_all = counts(&self.metrics);
        let mut choices = choices.into_iter();
        let mut sound = sound.into_iter();
        let mut ended: BTreeMap<Slot, Outcome> = BTreeMap::new();
        let mut excess = Vec::new();
        for part in &step.rows {
            let unsound = sound.next() == Some(false);
            let wanted = part.wanted.count(part.tokens.len());
            let drawn = choices.by_ref().take(wanted).filter(|choice| *choice != Err(NoChoice::Passed));
            let drawn: Vec<Choice> = drawn.collect();
            let Some(row) = self.rows.iter_mut().find(|row| row.slot == part.slot) else { continue };
            self.metrics.prompt_tokens += row.advance(part.tokens.len(), now) as u64;
            let (before, held, window) = (row.usage(), row.computed(), row.drafts() > 0);
            let lost = row.grammar_failure();
            let given = drawn.len();
            let drawn: Vec<Chosen> = drawn.into_iter().map_while(std::result::Result::ok).collect();
            let broken = drawn.len() < given;
            let outcome = match drawn.len() {
                _ if lost.is_some() => lost.map(Outcome::Failed),
                _ if unsound => Some(failed("the model gave keys or values that are not numbers")),
                0 if broken => Some(failed(NOT_NUMBERS)),
                count if count < wanted && !window => {
                    Some(failed(if broken { NOT_NUMBERS } else { "the model gave no logits" }))
                }
                _ => row.deliver(drawn, self.capabilities.context, now),
            };
            let after = row.usage();
            self.metrics.completion_tokens += (after.completion_tokens - before.completion_tokens) as u64;
            self.metrics.drafted_tokens += (after.drafted_tokens - before.drafted_tokens) as u64;
            self.metrics.accepted_tokens += (after.accepted_tokens - before.accepted_tokens) as u64;
            self.metrics.filled_tokens += (after.filled_tokens - before.filled_tokens) as u64;
            // What comes next is known, and not what has been sampled meanwhile.
            self.settled &= !row.is_filling();
            if row.computed() < held {
                excess.push((row.slot, row.computed()));
            }
            ended.extend(outcome.map(|outcome| (part.slot, outcome)));
        }
        if let Some(time) = round {
            let (drafted, accepted) = counts(&self.metrics);
            let drafts = (drafted - before_all.0) as usize;
            self.metrics.rounds.count(drafts, accepted - before_all.1, time);
        }
        self.take_back(excess, &mut ended);
        self.retire(|row| ended.remove(&row.slot).or(row.cancelled.then_some(Outcome::Cancelled)));
        self.keep_boundaries();
        self.make_room();
    }

    /// Ends the rows that a failed step carried.
    fn fail(&mut self, step: &Step, fault: &Fault) {
        self.metrics.failed_steps += 1;
        let carried = |row: &mut Row| step.rows.iter().any(|part| part.slot == row.slot);
        self.retire(|row| carried(row).then(|| failed(fault.message.clone())));
        if fault.kind == Some(ErrorKind::Memory) {
            // What the rows held is free now; the next ones start with all of it, and with what was only kept.
            while self.prefix.evict() {}
            self.parts.device.trim();
        }
    }

    /// Ends the rows for which `outcome` gives one, and closes their slots.
    fn retire(&mut self, mut outcome: impl FnMut(&mut Row) -> Option<Outcome>) {
        let (mut kept, mut ended) = (Vec::with_capacity(self.rows.len()), false);
        for mut row in mem::take(&mut self.rows) {
            let Some(outcome) = outcome(&mut row) else {
                kept.push(row);
                continue;
            };
            ended = true;
            self.drafting.close(row.slot);
            row.tally().into_iter().for_each(|tally| self.metrics.fill += tally);
            self.let_go(&row, &outcome);
            let outcome = row.finish(outcome, self.parts.clock.now());
            self.metrics.outcomes.count(&outcome);
        }
        self.rows = kept;
        if ended {
            self.settled = false;
            // A session that cannot tell any more is found out by the next step.
            self.projected = self.project(self.lengths()).ok().flatten().unwrap_or(self.projected);
        }
    }

    /// Lets a row go, be it lost. Where that panics nobody knows what the session holds, and nothing more may run on it.
    fn release(&mut self, slot: Slot) {
        let session = &mut self.parts.session;
        let discard = || {
            session.discard(slot);
            Ok(())
        };
        if guard("discard", discard).is_err() {
            self.course = Course::Broken;
        }
    }

    /// Counts so far, and gauges of now.
    pub(crate) fn metrics(&mut self) -> &Metrics {
        self.metrics.active = self.rows.len();
        self.metrics.cache_bytes = self.projected;
        self.metrics.stored_bytes = self.prefix.bytes();
        self.metrics.stored_states = self.prefix.len();
        self.metrics.memory = self.parts.device.memory();
        &self.metrics
    }
}
