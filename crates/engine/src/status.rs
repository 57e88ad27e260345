//! What the engine thread and its handles share: phase, queue places, counts.
//!
//! Invariants: the phase only moves forward; a place in the queue is given back exactly once, in `Drop`; handles
//! read metrics that the thread has written whole.

use crate::binding::Binding;
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::time::Duration;
use tandem_contracts::{
    request::{Outcome, Rejection},
    tensor::Memory,
};
use tandem_spec::fill::Tally;

/// Where an engine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The device is being opened or the model built.
    Loading,
    /// Requests are taken.
    Ready,
    /// Running rows finish; nothing is started any more.
    Draining,
    /// Ended as asked, or because every handle is gone.
    Stopped,
    /// The thread has died, or the model can no longer be trusted.
    Failed,
}

impl Phase {
    /// Why no request is taken, if none is.
    pub(crate) fn refusal(self) -> Result<(), Rejection> {
        match self {
            Self::Ready => Ok(()),
            Self::Loading => Err(Rejection::Closed("its model is loading")),
            Self::Draining => Err(Rejection::Closed("it is draining")),
            Self::Stopped => Err(Rejection::Closed("it has stopped")),
            Self::Failed => Err(Rejection::Closed("it has failed")),
        }
    }
}

/// Ended requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// An end token was sampled.
    pub end: u64,
    /// A stop string was completed.
    pub stop: u64,
    /// A length limit was reached.
    pub length: u64,
    /// The consumer went away or asked for it.
    pub cancelled: u64,
    /// Something failed.
    pub failed: u64,
}

impl Outcomes {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::End => &mut self.end,
            Outcome::Stop(_) => &mut self.stop,
            Outcome::Length => &mut self.length,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Failed(_) => &mut self.failed,
        };
        *counter += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.end + self.stop + self.length + self.cancelled + self.failed
    }
}

/// Time spent by the engine thread while it had work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In the model's steps, evaluation included.
    pub model: Duration,
    /// Reading logits and choosing tokens.
    pub sampling: Duration,
    /// Everything else: commands, admission, planning, delivery.
    pub other: Duration,
}

/// Steps without prompts, by how many drafts they carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds(Vec<Round>);

/// Steps that carried equally many drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// How many there were.
    pub steps: u64,
    /// Drafts of theirs that were chosen.
    pub accepted: u64,
    /// Time between a step's beginning and its reading, of all of them.
    pub time: Duration,
}

impl Rounds {
    pub(crate) fn count(&mut self, drafts: usize, accepted: u64, time: Duration) {
        if self.0.len() <= drafts {
            self.0.resize(drafts + 1, Round::default());
        }
        let round = &mut self.0[drafts];
        *round =
            Round { steps: round.steps + 1, accepted: round.accepted + accepted, time: round.time + time };
    }

    /// Those that there were, each with its number of drafts.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Round)> {
        self.0.iter().copied().enumerate().filter(|(_, round)| round.steps > 0)
    }
}

/// Counts since the engine started, and gauges of now. All of one moment between two steps, except `queued`,
/// `accepted` and `rejected`, which are of the moment of asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests taken.
    pub accepted: u64,
    /// Requests refused.
    pub rejected: u64,
    /// Requests ended.
    pub outcomes: Outcomes,
    /// Requests that wait for a row now.
    pub queued: usize,
    /// Rows now.
    pub active: usize,
    /// Steps taken, failed ones included.
    pub steps: u64,
    /// Rows of all of them together.
    pub step_rows: u64,
    /// Steps that failed.
    pub failed_steps: u64,
    /// Requests that got a row.
    pub begun: u64,
    /// How many of them began with tokens that had been computed for others.
    pub reused: u64,
    /// Prompt tokens processed.
    pub prompt_tokens: u64,
    /// Prompt tokens that came from stored states or from other rows instead of forward passes.
    pub cached_tokens: u64,
    /// Tokens sampled or filled in.
    pub completion_tokens: u64,
    /// Tokens that were proposed and verified.
    pub drafted_tokens: u64,
    /// How many of them were chosen.
    pub accepted_tokens: u64,
    /// Tokens that requests determined, so that nobody chose them.
    pub filled_tokens: u64,
    /// What became of the spans of ended rows.
    pub fill: Tally,
    /// Steps that rows decoded in.
    pub rounds: Rounds,
    /// Projected bytes of the rows' caches now.
    pub cache_bytes: usize,
    /// States kept for requests that begin alike.
    pub stored_states: usize,
    /// Device bytes of them.
    pub stored_bytes: usize,
    /// The device's memory.
    pub memory: Memory,
    /// Where the time went.
    pub times: Times,
}

/// What is known once the model is there.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) binding: Binding,
    /// Tokens that a row may come to, by the number of its policy.
    pub(crate) longest: Vec<usize>,
}

/// The shared state itself.
#[derive(Debug)]
pub(crate) struct Status {
    phase: Mutex<Phase>,
    loaded: OnceLock<Loaded>,
    queued: AtomicUsize,
    accepted: AtomicU64,
    rejected: AtomicU64,
    metrics: Mutex<Metrics>,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            phase: Mutex::new(Phase::Loading),
            loaded: OnceLock::new(),
            queued: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            metrics: Mutex::new(Metrics::default()),
        }
    }

    /// The phase, held: it cannot move while the guard lives, so what is sent under it is seen in this phase.
    pub(crate) fn phase(&self) -> MutexGuard<'_, Phase> {
        // A phase is one word; a poisoned lock guards a whole one.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves to a later phase; an earlier one is ignored.
    pub(crate) fn advance(&self, phase: Phase) {
        let mut current = self.phase();
        *current = phase.max(*current);
    }

    pub(crate) fn load(&self, loaded: Loaded) {
        // A model is loaded once.
        let _ = self.loaded.set(loaded);
        self.advance(Phase::Ready);
    }

    pub(crate) fn loaded(&self) -> Option<&Loaded> {
        self.loaded.get()
    }

    pub(crate) fn count_submission(&self, accepted: bool) {
        let counter = if accepted { &self.accepted } else { &self.rejected };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, metrics: &Metrics) {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone_from(metrics);
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics {
            queued: self.queued.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            ..self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }
}

/// One of the bounded queue's places.
#[derive(Debug)]
pub(crate) struct Place(Arc<Status>);

impl Place {
    /// Takes a place if one is free.
    pub(crate) fn take(status: &Arc<Status>, limit: usize) -> Option<Self> {
        let more = |queued: usize| (queued < limit).then_some(queued + 1);
        status.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(Arc::clone(status)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_move_forward() {
        let status = Status::new();
        assert_eq!(status.phase().refusal(), Err(Rejection::Closed("its model is loading")));
        status.advance(Phase::Draining);
        status.advance(Phase::Ready);
        assert_eq!(*status.phase(), Phase::Draining);
    }

    #[test]
    fn rounds_are_told_apart_by_their_drafts() {
        let mut rounds = Rounds::default();
        let second = Duration::from_secs(1);
        for (drafts, accepted) in [(4, 3), (0, 0), (4, 1)] {
            rounds.count(drafts, accepted, second);
        }
        let round = |steps, accepted| Round { steps, accepted, time: second * steps as u32 };
        assert_eq!(rounds.iter().collect::<Vec<_>>(), [(0, round(1, 0)), (4, round(2, 4))]);
    }

    #[test]
    fn places_come_back_when_dropped() {
        let status = Arc::new(Status::new());
        let first = Place::take(&status, 2);
        let second = Place::take(&status, 2);
        assert!(first.is_some() && second.is_some() && Place::take(&status, 2).is_none());
        drop(first);
        assert_eq!(status.metrics().queued, 1);
        assert!(Place::take(&status, 2).is_some());
    }
}
