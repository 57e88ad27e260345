//! Counts of memory.
//!
//! MLX counts for the whole process, and keeps no count of all bytes ever handed out. What is counted here as
//! allocated is the height that MLX's peak reached above the live bytes, summed over the stretches between two
//! looks: before and after an evaluation. It is a lower bound (memory that a stretch frees and takes again counts
//! once), and it shows every copy that lives beside its original. Devices of other threads add to all counts.

use mlx_rs::memory;
use std::cell::Cell;
use tandem_contracts::tensor::Memory;

#[derive(Debug)]
pub(crate) struct Meter {
    /// Live bytes at the last look.
    base: Cell<usize>,
    peak: Cell<usize>,
    allocated: Cell<u64>,
}

impl Meter {
    /// Begins to count.
    pub(crate) fn new() -> Self {
        let meter = Self { base: Cell::new(0), peak: Cell::new(0), allocated: Cell::new(0) };
        meter.reset_peak();
        meter.allocated.set(0);
        meter
    }

    /// Takes account of what was allocated since the last look.
    pub(crate) fn look(&self) {
        // The counters cannot fail; a Rust caller sees a result because every C call has a status.
        let active = memory::active_memory().unwrap_or_default();
        let peak = memory::peak_memory().unwrap_or_default().max(active);
        let grown = peak.saturating_sub(self.base.replace(active));
        self.allocated.set(self.allocated.get() + grown as u64);
        self.peak.set(self.peak.get().max(peak));
        memory::reset_peak_memory().unwrap_or_default();
    }

    /// All counts.
    pub(crate) fn read(&self) -> Memory {
        self.look();
        Memory {
            active: self.base.get(),
            peak: self.peak.get(),
            cached: memory::cache_memory().unwrap_or_default(),
            allocated: self.allocated.get(),
        }
    }

    /// Begins a new peak.
    pub(crate) fn reset_peak(&self) {
        self.look();
        self.peak.set(self.base.get());
    }

    /// Gives cached memory back to the system.
    pub(crate) fn trim(&self) {
        memory::clear_cache().unwrap_or_default();
        self.look();
    }
}
