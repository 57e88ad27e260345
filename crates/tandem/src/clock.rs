//! The clock of this machine, behind the port of the core crates.

use std::time::{Duration, Instant};
use tandem_contracts::schedule::Clock;

/// Monotonic time since the clock was made.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
