//! How long to spin, when to give the core to others, when to sleep.

use std::time::{Duration, Instant};

/// Spinning answers fastest, and costs nothing that matters for this long.
const SPIN: Duration = Duration::from_micros(30);
/// Then the core is offered to other threads between looks, for the pauses between two steps of a model.
const YIELD: Duration = Duration::from_micros(300);
/// Spins between two looks at the clock.
const SPINS: u32 = 32;

/// How long one has waited.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    spins: u32,
}

impl Patience {
    /// Waits a moment. False when it is time to sleep instead.
    pub(super) fn wait(&mut self) -> bool {
        if self.spins < SPINS {
            self.spins += 1;
            std::hint::spin_loop();
            return true;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < SPIN {
            self.spins = 0;
        } else {
            std::thread::yield_now();
        }
        waited < YIELD
    }

    /// Waits a moment, for something that is sure to come.
    pub(super) fn wait_long(&mut self) {
        if !self.wait() {
            std::thread::yield_now();
        }
    }
}

/// Hardware threads of one core, from leaf 11 of `cpuid` (extended topology; the first level is the threads of a
/// core). Where it says nothing, one.
#[cfg(target_arch = "x86_64")]
pub(super) fn threads_per_core() -> usize {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// The level's kind in bits 8 to 15 of register ECX: hardware threads.
    const THREADS: u32 = 1;
    if __cpuid(0).eax < 11 {
        return 1;
    }
    let level = __cpuid_count(11, 0);
    if level.ecx >> 8 & 0xff == THREADS { (level.ebx as usize & 0xffff).max(1) } else { 1 }
}

/// Hardware threads of one core: one on the machines of other kinds that this is built for.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn threads_per_core() -> usize {
    1
}
