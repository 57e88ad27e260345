//! Ports of scheduling: time.
//!
//! Core crates never read a clock themselves; a scheduler's tests script one.

use std::{fmt, time::Duration};

/// Monotonic time since an origin of the clock's own.
pub trait Clock: fmt::Debug + Send {
    /// Never less than an earlier answer of the same clock.
    fn now(&self) -> Duration;
}
