//! The gate through which workers enter a job.
//!
//! One word holds the job's generation, whether it is open, and how many workers are inside. Workers add
//! themselves only while it is open; the caller closes it and waits until it is empty. A worker that comes late
//! finds it closed and has touched nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use super::wait::Patience;

const INSIDE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const GENERATION: u64 = 1 << 17;

/// Which job a gate stands for; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// See the module.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gate(AtomicU64);

impl Gate {
    /// Opens the closed, empty gate for the next generation. What was written before is seen by who enters.
    pub(super) fn open(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | INSIDE), 0, "a job is still running");
        self.0.store(word.wrapping_add(GENERATION) | OPEN, Ordering::SeqCst);
    }

    /// Closes the gate and waits until nobody is inside. What those inside wrote is seen afterwards.
    pub(super) fn close(&self) {
        let mut word = self.0.fetch_and(!OPEN, Ordering::AcqRel);
        let mut patience = Patience::default();
        while word & INSIDE != 0 {
            patience.wait_long();
            word = self.0.load(Ordering::Acquire);
        }
    }

    /// The open generation, if it is not `last`.
    pub(super) fn opened_since(&self, last: Generation) -> Option<Generation> {
        let word = self.0.load(Ordering::SeqCst);
        let generation = Generation(word / GENERATION);
        (word & OPEN != 0 && generation != last).then_some(generation)
    }

    /// Enters, if the gate is still open for this generation.
    pub(super) fn enter(&self, generation: Generation) -> bool {
        let enter = |word: u64| (word & OPEN != 0 && word / GENERATION == generation.0).then(|| word + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }

    /// Leaves. What was written inside is seen by the caller once it finds the gate empty.
    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_gate_lets_in_and_only_for_its_generation() {
        let gate = Gate::default();
        assert_eq!(gate.opened_since(Generation(0)), None);
        assert!(!gate.enter(Generation(0)));
        gate.open();
        assert_eq!(gate.opened_since(Generation(0)), Some(Generation(1)));
        assert_eq!(gate.opened_since(Generation(1)), None);
        assert!(gate.enter(Generation(1)));
        gate.leave();
        gate.close();
        assert!(!gate.enter(Generation(1)));
        gate.open();
        assert!(!gate.enter(Generation(1)));
        assert!(gate.enter(Generation(2)));
        gate.leave();
        gate.close();
    }
}
