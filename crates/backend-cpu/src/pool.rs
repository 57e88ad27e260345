//! A small pool of threads for work that lasts microseconds.
//!
//! A decoded token is some hundred matrix products of 2 to 20 microseconds each, so handing one out must cost
//! less than a microsecond: idle workers spin for a moment, and only then sleep. [`Pool::run`] splits a job into
//! numbered parts which the workers and the caller claim one after the other.
//!
//! Invariants:
//! - the caller works too and never waits for a worker that has not begun: when a busy machine gives a worker no
//!   core, the others do its share;
//! - a job's closure outlives its use: workers enter a job through the gate, which the caller closes and then
//!   waits until all who entered have left;
//! - which thread runs a part never changes its result (parts get scratch space, not thread numbers);
//! - a panic in a part stops the claiming of parts and is raised again in the caller; the pool stays usable.

pub(crate) mod ahead;
mod claims;
mod disjoint;
mod gate;
mod scratch;
mod wait;

use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use crate::isa::Isa;
use ahead::{Cursor, Link, Order};
use claims::Claims;
pub use disjoint::Disjoint;
use gate::{Gate, Generation};
pub use scratch::Scratch;

/// What a part runs: its number and working space whose contents are arbitrary.
type Task<'a> = dyn Fn(usize, &mut Scratch) + Sync + 'a;

/// Threads that work on one job at a time, and the instruction set that kernels use on them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a job; the calling thread's scratch space.
    caller: Mutex<Scratch>,
    isa: Isa,
}

/// A job as the workers see it. The lifetime is erased; the gate keeps it honest.
#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
}

#[derive(Debug)]
struct Shared {
    gate: Gate,
    claims: Claims,
    order: Arc<Order>,
    job: JobCell,
    failure: Mutex<Option<Box<dyn Any + Send>>>,
    parked: Vec<AtomicBool>,
    stop: AtomicBool,
}

#[derive(Default)]
struct JobCell(UnsafeCell<Option<Job>>);

// SAFETY: the cell is written only by the holder of the pool's lock while the gate is closed and nobody is
// inside, and read only by that holder and by workers inside the gate. The task it points to is `Sync`.
unsafe impl Sync for JobCell {}
// SAFETY: as above.
unsafe impl Send for JobCell {}

impl std::fmt::Debug for JobCell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JobCell")
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] counted as one, whose kernels use `isa` or the
    /// best lesser one that the machine has.
    ///
    /// # Errors
    ///
    /// The system's, when it refuses to start a thread.
    pub fn new(threads: NonZeroUsize, isa: Isa) -> io::Result<Self> {
        let helpers = threads.get() - 1;
        let shared = Arc::new(Shared {
            gate: Gate::default(),
            claims: Claims::new(threads.get()),
            order: Arc::default(),
            job: JobCell::default(),
            failure: Mutex::new(None),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
        });
        let isa = isa.limited();
        let cursor = |thread| Cursor::new(&shared.order, thread, threads.get());
        let caller = Mutex::new(Scratch::new(cursor(0)));
        let scratches: Vec<Scratch> = (1..threads.get()).map(|thread| Scratch::new(cursor(thread))).collect();
        let mut pool = Self { shared, workers: Vec::new(), caller, isa };
        for (index, scratch) in scratches.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("tandem-cpu-{}", index + 1));
            pool.workers.push(worker.spawn(move || shared.work(index, scratch))?);
        }
        Ok(pool)
    }

    /// Threads, the caller counted.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Learns that a product with this weight begins; see [`ahead`].
    pub(crate) fn meet(&self, link: &Arc<Link>) {
        self.shared.order.meet(link);
    }

    /// The instruction set that kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `task` once for each part `0..parts`, in any order and on any of the pool's threads, and returns when
    /// all are done. Inside a part, and while another thread's job runs, everything runs on the calling thread.
    ///
    /// # Panics
    ///
    /// When a part panics; parts not yet claimed are then left out.
    pub fn run(&self, parts: usize, task: impl Fn(usize, &mut Scratch) + Sync) {
        let mut scratch = match self.caller.try_lock() {
            Ok(scratch) => scratch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let mut scratch = Scratch::default();
                return (0..parts).for_each(|part| task(part, &mut scratch));
            }
        };
        if parts <= 1 || parts > Claims::MOST || self.workers.is_empty() {
            return (0..parts).for_each(|part| task(part, &mut scratch));
        }
        let failure = self.share(parts, &task, &mut scratch);
        drop(scratch);
        if let Some(payload) = failure {
            resume_unwind(payload);
        }
    }

    /// Opens the gate on a job, works on it, and closes it when nobody is inside. Called with the lock held.
    fn share(&self, parts: usize, task: &Task<'_>, scratch: &mut Scratch) -> Option<Box<dyn Any + Send>> {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; `close` below returns when no worker can use the task any more.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        let job = Job { task };
        // SAFETY: the lock is held, the gate is closed and nobody is inside, so nobody reads the cell.
        unsafe { *shared.job.0.get() = Some(job) };
        shared.claims.deal(parts);
        shared.gate.open();
        self.wake(parts - 1);
        shared.attend(job, 0, scratch);
        shared.gate.close();
        shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Wakes up to `wanted` sleeping workers.
    fn wake(&self, wanted: usize) {
        let parked = self.shared.parked.iter().zip(&self.workers);
        for (flag, worker) in parked.filter(|(flag, _)| flag.load(Ordering::SeqCst)).take(wanted) {
            flag.store(false, Ordering::SeqCst);
            worker.thread().unpark();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake(usize::MAX);
        for worker in self.workers.drain(..) {
            // A worker's own panics were caught; there is nothing to report here.
            drop(worker.join());
        }
    }
}

impl Shared {
    /// The life of a worker, the one behind thread `index + 1`: wait for a job, enter, work, leave.
    fn work(&self, index: usize, mut scratch: Scratch) {
        let mut last = Generation::default();
        while let Some(generation) = self.next_job(index, last, scratch.cursor()) {
            last = generation;
            if self.gate.enter(generation) {
                // SAFETY: this thread is inside the gate, so the cell holds the job and stays as it is.
                if let Some(job) = unsafe { *self.job.0.get() } {
                    self.attend(job, index + 1, &mut scratch);
                }
                self.gate.leave();
            }
        }
    }

    /// Claims and runs parts until none is left. A panic is kept for the caller.
    fn attend(&self, job: Job, thread: usize, scratch: &mut Scratch) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller of `run` keeps the task alive until the gate is closed and empty; this thread
            // is that caller or inside.
            let task = unsafe { &*job.task };
            while let Some(part) = self.claims.claim(thread) {
                task(part, scratch);
            }
        }));
        if let Err(payload) = outcome {
            self.claims.clear();
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }

    /// Waits for a job newer than `last`: asking for what it will read, then spinning, then yielding, then asleep.
    /// `None` when the pool is dropped.
    fn next_job(&self, index: usize, last: Generation, cursor: &mut Cursor) -> Option<Generation> {
        /// Bytes asked for between two looks at the gate.
        const PIECE: usize = 1 << 10;
        let mut patience = wait::Patience::default();
        loop {
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            if let Some(generation) = self.gate.opened_since(last) {
                return Some(generation);
            }
            let fetch = cursor.next(PIECE);
            fetch.ask();
            if !fetch.is_empty() || patience.wait() {
                continue;
            }
            self.sleep(index, last);
            patience = wait::Patience::default();
        }
    }

    /// Sleeps until woken. The flag is raised before the gate is looked at once more, and the caller opens the
    /// gate before it looks at the flag (all sequentially consistent), so one of the two sees the other.
    fn sleep(&self, index: usize, last: Generation) {
        let parked = &self.parked[index];
        parked.store(true, Ordering::SeqCst);
        if self.gate.opened_since(last).is_some() || self.stop.load(Ordering::SeqCst) {
            parked.store(false, Ordering::SeqCst);
            return;
        }
        while parked.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// The number of physical cores that this process may use, at least one: what a pool should take by default,
/// because two threads on one core share its vector units.
pub fn physical_cores() -> NonZeroUsize {
    let usable = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let cores = usable.get().div_ceil(wait::threads_per_core());
    NonZeroUsize::new(cores).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests;
