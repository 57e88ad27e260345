//! The pool under load: every part once, panics, nesting, several callers, sleeping workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

fn pool(threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(threads).unwrap(), Isa::Portable).unwrap()
}

#[test]
fn every_part_runs_once_on_any_number_of_threads() {
    for threads in 1..=4 {
        let pool = pool(threads);
        assert_eq!(pool.threads(), threads);
        for parts in (0..40).chain([1000]) {
            let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            pool.run(parts, |part, _| {
                counts[part].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads} {parts}");
        }
    }
}

#[test]
fn many_short_jobs_and_sleeping_workers() {
    let pool = pool(3);
    let total = AtomicUsize::new(0);
    for round in 0..3000 {
        pool.run(7, |part, _| {
            total.fetch_add(part, Ordering::Relaxed);
        });
        if round % 500 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    assert_eq!(total.load(Ordering::Relaxed), 3000 * 21);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    for threads in [1, 3] {
        let pool = pool(threads);
        for _ in 0..50 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(16, |part, _| assert_ne!(part, 5, "part five"));
            }));
            let payload = outcome.unwrap_err();
            assert!(payload.downcast_ref::<String>().unwrap().contains("part five"));
            let count = AtomicUsize::new(0);
            pool.run(16, |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 16);
        }
    }
}

#[test]
fn a_job_within_a_job_runs_where_it_is() {
    let pool = pool(2);
    let count = AtomicUsize::new(0);
    pool.run(4, |_, _| {
        pool.run(4, |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 16);
}

#[test]
fn several_callers_share_one_pool() {
    let pool = pool(2);
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(5, |_, scratch| {
                        scratch.lend::<u8>(64).fill(1);
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 4 * 200 * 5);
}

#[test]
fn a_caller_does_not_wait_for_workers_that_have_not_begun() {
    // Many more threads than cores: most workers never get to a job before it is done.
    let pool = pool(32);
    for _ in 0..200 {
        pool.run(2, |_, _| {});
    }
}

#[test]
fn there_is_a_core() {
    assert!(physical_cores().get() >= 1);
    assert!(physical_cores() <= thread::available_parallelism().unwrap());
}
