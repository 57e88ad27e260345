//! Responses that are kept, so that others continue them.
//!
//! Invariants: what is kept never exceeds its bytes, the oldest goes first; nothing lives longer than its hour, counted
//! from when it was put in; one that is too large for the store is not kept.

use axum::body::Bytes;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a response is kept.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Most bytes of all.
const LIMIT: usize = 32 << 20;

/// What counts of a kept response beside its texts.
const OVERHEAD: usize = size_of::<Kept>();

/// One kept response.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: String,
    /// The object, as it went out in JSON.
    pub(super) object: Bytes,
    /// All items up to its end, as a JSON list.
    pub(super) items: Arc<str>,
}

/// The kept responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<Shelf>>);

/// What is kept, the oldest first.
#[derive(Debug, Default)]
struct Shelf {
    kept: VecDeque<(Instant, Kept)>,
    bytes: usize,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.id.len() + self.object.len() + self.items.len() + OVERHEAD
    }
}

impl Store {
    /// What is there at this moment.
    fn shelf(&self, now: Instant) -> MutexGuard<'_, Shelf> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while shelf.kept.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= LIFETIME) {
            shelf.remove(0);
        }
        shelf
    }

    /// Keeps a response.
    pub(super) fn keep(&self, kept: Kept, now: Instant) {
        let bytes = kept.bytes();
        let mut shelf = self.shelf(now);
        if bytes > LIMIT {
            return;
        }
        while shelf.bytes + bytes > LIMIT {
            shelf.remove(0);
        }
        shelf.bytes += bytes;
        shelf.kept.push_back((now, kept));
    }

    /// A kept response.
    pub(super) fn find(&self, id: &str, now: Instant) -> Option<Kept> {
        self.shelf(now).kept.iter().map(|(_, kept)| kept).find(|kept| kept.id == id).cloned()
    }

    /// Forgets a response. Returns whether it was there.
    pub(super) fn forget(&self, id: &str, now: Instant) -> bool {
        let mut shelf = self.shelf(now);
        let found = shelf.kept.iter().position(|(_, kept)| kept.id == id);
        found.is_some_and(|index| shelf.remove(index))
    }
}

impl Shelf {
    fn remove(&mut self, index: usize) -> bool {
        let removed = self.kept.remove(index);
        self.bytes -= removed.as_ref().map_or(0, |(_, kept)| kept.bytes());
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(id: usize, bytes: usize) -> Kept {
        Kept { id: id.to_string(), object: "{}".into(), items: "x".repeat(bytes).into() }
    }

    #[test]
    fn what_is_kept_is_found_for_an_hour_or_until_it_is_forgotten() {
        let (store, start) = (Store::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        store.keep(kept(1, 1), start);
        store.keep(kept(2, 1), after(60));
        let there = |id: &str, seconds| store.find(id, after(seconds)).is_some();
        assert_eq!((there("1", 3599), there("2", 3599), there("3", 3599)), (true, true, false));
        assert_eq!((there("1", 3600), there("2", 3600)), (false, true));
        assert_eq!((store.forget("2", after(3600)), store.forget("2", after(3600))), (true, false));
        assert_eq!(store.shelf(start).bytes, 0);
    }

    #[test]
    fn the_oldest_makes_room_and_what_is_too_large_is_not_kept() {
        let (store, now) = (Store::default(), Instant::now());
        for id in 1..=3 {
            store.keep(kept(id, LIMIT / 3 - 1000), now);
        }
        store.keep(kept(4, LIMIT), now);
        let there = |id: &str| store.find(id, now).is_some();
        assert!(there("1") && there("2") && there("3") && !there("4"));
        store.keep(kept(5, LIMIT / 2), now);
        assert_eq!((there("1"), there("2"), there("3"), there("5")), (false, false, true, true));
    }

    proptest! {
        #[test]
        fn bytes_are_what_is_there_and_never_too_many(steps in prop::collection::vec((0_usize..8, 0_usize..LIMIT / 2, 0_u64..2000), 1..40)) {
            let (store, mut now) = (Store::default(), Instant::now());
            for (id, bytes, wait) in steps {
                now += Duration::from_secs(wait);
                store.keep(kept(id, bytes), now);
                store.forget(&(id / 2).to_string(), now);
                let shelf = store.shelf(now);
                let sum: usize = shelf.kept.iter().map(|(_, kept)| kept.bytes()).sum();
                prop_assert_eq!(shelf.bytes, sum);
                prop_assert!(sum <= LIMIT);
            }
        }
    }
}
