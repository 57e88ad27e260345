//! The engine without its thread: commands in, steps over the session, events out.
//!
//! ```text
//!   accept --> queue --admit--> rows --plan--> step --session, one evaluation--> choices --deliver--> events
//! ```
//!
//! Invariants: every accepted request ends once; a row's slot is closed when the row leaves, whatever the reason;
//! a failed step ends the rows that it carried and no others; requests start in the order of their ids.

use crate::{
    command::{Command, Submission},
    config::Config,
    error::panic_message,
    plan::{Limits, plan},
    row::{Row, failed, longest},
    sample::{Choice, Draw, Picks},
    status::{Metrics, Times},
};
use std::{
    collections::BTreeMap,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::Sender,
};
use tandem_contracts::{
    model::{Capabilities, Session, Slot, Step, Wanted},
    request::{Outcome, RequestId},
    schedule::Clock,
    tensor::{Device, ErrorKind, Result, Tensor},
};

/// What the executor drives.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) device: Device,
    pub(crate) session: Box<dyn Session>,
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
    course: Course,
    drains: Vec<Sender<()>>,
    metrics: Metrics,
}

/// Whether a request can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// With it the rows take so many bytes.
    Fits(usize),
    /// Others hold the bytes now.
    Wait,
    /// The whole budget would not do, or the session cannot keep so long a row; alone it takes so many bytes.
    Never(Option<usize>),
}

/// A step that has run, and what came of it.
#[derive(Debug)]
struct Iteration {
    step: Step,
    /// What came of it, or why it failed.
    outcome: std::result::Result<Given, Fault>,
}

/// What a step gave.
#[derive(Debug)]
struct Given {
    /// One for each row of the step that wanted logits.
    choices: Vec<Choice>,
    /// Of each row of the step, whether its keys and values could be stored; empty where none was encoded.
    sound: Vec<bool>,
}

impl Executor {
    pub(crate) fn new(parts: Parts) -> Self {
        let capabilities = parts.session.capabilities().clone();
        Self {
            parts,
            capabilities,
            queue: BTreeMap::new(),
            rows: Vec::new(),
            projected: 0,
            course: Course::Open,
            drains: Vec::new(),
            metrics: Metrics::default(),
        }
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Tokens that a row may come to: the more of them, the more bytes it needs.
    pub(crate) fn longest(&self) -> usize {
        let fits = |length| matches!(self.admit(length), Ok(Admission::Fits(_)));
        let (mut fitting, mut end) = (0, self.capabilities.context.saturating_add(1));
        while fitting + 1 < end {
            let middle = fitting + (end - fitting) / 2;
            if fits(middle) { fitting = middle } else { end = middle }
        }
        fitting
    }

    pub(crate) fn course(&self) -> Course {
        self.course
    }

    /// Whether there is nothing to do until a command comes.
    pub(crate) fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.queue.is_empty()
    }

    /// One turn: the commands that have come, admission, one step, delivery. `inbox` gives the next command if
    /// there is one; it is asked again after the step, so that a cancel during it comes before its tokens.
    pub(crate) fn turn(&mut self, mut inbox: impl FnMut() -> Option<Command>) {
        let begun = self.parts.clock.now();
        let Times { model, sampling, .. } = self.metrics.times;
        while let Some(command) = inbox() {
            self.accept(command);
        }
        self.prepare();
        if let Some(iteration) = self.forward() {
            while let Some(command) = inbox() {
                self.accept(command);
            }
            self.deliver(iteration);
        }
        if self.rows.is_empty() {
            // Dropping the senders is the reply.
            self.drains.clear();
        }
        let times = &mut self.metrics.times;
        let inside = (times.model + times.sampling).saturating_sub(model + sampling);
        times.other += self.parts.clock.now().saturating_sub(begun).saturating_sub(inside);
    }

    /// Takes one command. Rows that it cancels leave at the next preparation or delivery.
    fn accept(&mut self, command: Command) {
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
            Command::Shutdown => self.close(Course::Stopped),
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

    /// Lets cancelled rows go and gives free rows to the queue, in order.
    fn prepare(&mut self) {
        self.retire(|row| row.cancelled.then_some(Outcome::Cancelled));
        while self.course == Course::Open && self.rows.len() < self.parts.config.max_rows.max(1) {
            let Some(head) = self.queue.values().next() else { break };
            let (prompt, answer) = (head.request.prompt.len(), head.request.max_tokens);
            let length = longest((prompt, answer), self.capabilities.context);
            let admission = self.admit(length);
            if matches!(admission, Ok(Admission::Wait)) {
                break;
            }
            let Some((_, submission)) = self.queue.pop_first() else { break };
            match admission {
                Ok(Admission::Never(bytes)) => self.turn_away(*submission, failed(self.too_large(bytes))),
                Ok(Admission::Fits(bytes)) => self.start(Row::new(*submission, self.free_slot()), bytes),
                Ok(Admission::Wait) => {}
                Err(fault) => self.turn_away(*submission, failed(fault.message)),
            }
        }
    }

    /// Whether a row of `length` tokens fits beside those that live.
    fn admit(&self, length: usize) -> std::result::Result<Admission, Fault> {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        match self.project(self.lengths().chain([length]))? {
            Some(together) if together <= limit => return Ok(Admission::Fits(together)),
            _ => {}
        }
        Ok(match self.project([length])? {
            Some(alone) if alone <= limit => Admission::Wait,
            alone => Admission::Never(alone),
        })
    }

    /// Bytes that rows on their way to these lengths take together at most; none where they cannot be kept together.
    fn project(&self, lengths: impl IntoIterator<Item = usize>) -> std::result::Result<Option<usize>, Fault> {
        let Parts { session, config, .. } = &self.parts;
        let lengths: Vec<usize> = lengths.into_iter().collect();
        let step = config.prompt_chunk.min(config.step_tokens);
        guard("project", || match session.project_bytes(&config.state, &lengths, step) {
            Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
            bytes => bytes.map(Some),
        })
    }

    /// The lengths that the rows may come to.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.longest(self.capabilities.context))
    }

    fn too_large(&self, bytes: Option<usize>) -> String {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        match bytes {
            Some(bytes) => format!(
                "the request's cache may take {bytes} bytes, a shorter prompt or a lower max_tokens takes less, \
                 the device's budget is: {limit}"
            ),
            None => "the request is longer than all that can be cached, \
                     a shorter prompt or a lower max_tokens takes less"
                .to_owned(),
        }
    }

    fn free_slot(&self) -> Slot {
        let mut slot = 0;
        while self.rows.iter().any(|row| row.slot == Slot(slot)) {
            slot += 1;
        }
        Slot(slot)
    }

    /// Starts a row, with which all take so many bytes.
    fn start(&mut self, row: Row, bytes: usize) {
        let Parts { session, config, .. } = &mut self.parts;
        match guard("open", || session.open(row.slot, &config.state, None)) {
            Ok(()) => {
                self.rows.push(row);
                self.projected = bytes;
            }
            Err(fault) => {
                // After an error the slot is closed; after a panic nobody knows, and either answer will do.
                if fault.panicked
                    && guard("close", || session.close(row.slot)).is_err_and(|fault| fault.panicked)
                {
                    self.course = Course::Broken;
                }
                let outcome = row.finish(failed(fault.message), self.parts.clock.now());
                self.metrics.outcomes.count(&outcome);
            }
        }
    }

    /// Runs one step over the rows; `None` when no row has anything to do, or the session cannot be trusted.
    fn forward(&mut self) -> Option<Iteration> {
        if self.course == Course::Broken {
            return None;
        }
        let Config { step_tokens, prompt_chunk, ref state, .. } = self.parts.config;
        let counted: Vec<_> = self.rows.iter().map(Row::counted).collect();
        let step = plan(&counted, Limits { step: step_tokens, chunk: prompt_chunk }, state);
        if step.rows.is_empty() {
            return None;
        }
        self.metrics.steps += 1;
        let outcome = self.run(&step);
        Some(Iteration { step, outcome })
    }

    fn run(&mut self, step: &Step) -> std::result::Result<Given, Fault> {
        let vocabulary = self.vocabulary();
        let Parts { device, session, clock, .. } = &mut self.parts;
        let wanting =
            |row: &&Row| step.rows.iter().any(|part| part.slot == row.slot && part.wanted != Wanted::None);
        let draws: Vec<Draw<'_>> = self.rows.iter().filter(wanting).map(Row::draw).collect();
        let started = clock.now();
        let mut evaluated = started;
        let result = guard("step", || {
            let stepped = session.step(step)?;
            let picks = stepped.logits.as_ref().map(|logits| Picks::new(logits, &draws, vocabulary));
            let picks = picks.transpose()?;
            let chosen = picks.iter().flat_map(Picks::tensors);
            let tensors: Vec<&Tensor> = chosen.chain(&stepped.touched).chain(&stepped.sound).collect();
            device.eval(&tensors)?;
            evaluated = clock.now();
            let sound = stepped.sound.as_ref().map_or_else(|| Ok(Vec::new()), Tensor::to_vec::<i32>)?;
            // Rows go on with their planes alone, so that the next step may append in place.
            drop(stepped);
            let choices = picks.map_or_else(|| Ok(Vec::new()), Picks::read)?;
            Ok(Given { choices, sound: sound.into_iter().map(|it| it != 0).collect() })
        });
        self.metrics.times.model += evaluated.saturating_sub(started);
        self.metrics.times.sampling += clock.now().saturating_sub(evaluated);
        result
    }

    fn vocabulary(&self) -> usize {
        self.parts.config.vocabulary.unwrap_or(usize::MAX).min(self.capabilities.vocabulary)
    }

    /// Tells the consumers what a step gave, and lets rows go that have ended.
    fn deliver(&mut self, iteration: Iteration) {
        let Iteration { step, outcome } = iteration;
        let now = self.parts.clock.now();
        let Given { choices, sound } = match outcome {
            Ok(given) => given,
            Err(fault) => return self.fail(&step, &fault),
        };
        let mut choices = choices.into_iter();
        let mut sound = sound.into_iter();
        let mut ended: BTreeMap<Slot, Outcome> = BTreeMap::new();
        for part in &step.rows {
            let unsound = sound.next() == Some(false);
            let choice = (part.wanted != Wanted::None).then(|| choices.next());
            let Some(row) = self.rows.iter_mut().find(|row| row.slot == part.slot) else { continue };
            self.metrics.prompt_tokens += row.advance(part.tokens.len(), now) as u64;
            let outcome = match choice {
                _ if unsound => Some(failed("the model gave keys or values that are not numbers")),
                None => continue,
                Some(None) => Some(failed("the model gave no logits")),
                Some(Some(Err(_))) => Some(failed("the model gave logits that are not numbers")),
                Some(Some(Ok(token))) => {
                    self.metrics.completion_tokens += 1;
                    row.deliver(token, self.capabilities.context, now)
                }
            };
            ended.extend(outcome.map(|outcome| (part.slot, outcome)));
        }
        self.retire(|row| ended.remove(&row.slot).or(row.cancelled.then_some(Outcome::Cancelled)));
    }

    /// Ends the rows that a failed step carried.
    fn fail(&mut self, step: &Step, fault: &Fault) {
        self.metrics.failed_steps += 1;
        let carried = |row: &mut Row| step.rows.iter().any(|part| part.slot == row.slot);
        self.retire(|row| carried(row).then(|| failed(fault.message.clone())));
        if fault.kind == Some(ErrorKind::Memory) {
            // What the rows held is free now; the next ones start with all of it.
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
            self.release(row.slot);
            let outcome = row.finish(outcome, self.parts.clock.now());
            self.metrics.outcomes.count(&outcome);
        }
        self.rows = kept;
        if ended {
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
        self.metrics.memory = self.parts.device.memory();
        &self.metrics
    }
}

/// A call into the session that failed.
#[derive(Debug)]
struct Fault {
    message: String,
    kind: Option<ErrorKind>,
    panicked: bool,
}

/// Calls into the session; an error or a panic becomes a fault with a message for the consumer.
fn guard<T>(what: &'static str, call: impl FnOnce() -> Result<T>) -> std::result::Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(what, %error, "the model failed");
            Err(Fault {
                message: format!("the model failed: {error}"),
                kind: Some(error.kind()),
                panicked: false,
            })
        }
        Err(payload) => {
            tracing::error!(what, panic = panic_message(payload.as_ref()), "the model panicked");
            Err(Fault { message: "the model failed unexpectedly".to_owned(), kind: None, panicked: true })
        }
    }
}
