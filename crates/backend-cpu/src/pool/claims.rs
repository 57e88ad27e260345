//! Which thread runs which part.
//!
//! Each thread has a share of its own, the same for the same number of parts: what it read for them once may still be
//! in its caches, and what it will read for them can be fetched before (see [`super::ahead`]). It takes its own share
//! from the front. When nothing is left of that it takes from the ends of the others'.

use std::sync::atomic::{AtomicU64, Ordering};

/// One share for each thread.
#[derive(Debug)]
pub(super) struct Claims(Box<[Share]>);

/// Parts that nobody has taken, on a cache line that nothing else shares: the first in the lower half, one past the
/// last in the upper.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Share(AtomicU64);

impl Claims {
    /// The most parts that can be dealt.
    pub(super) const MOST: usize = u32::MAX as usize;

    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Share::default()).collect())
    }

    /// Deals `0..parts`, at most [`Claims::MOST`], while nobody claims.
    pub(super) fn deal(&self, parts: usize) {
        for (thread, share) in self.0.iter().enumerate() {
            let [first, end] = [thread, thread + 1].map(|thread| (parts * thread / self.0.len()) as u64);
            share.0.store(first | end << 32, Ordering::Relaxed);
        }
    }

    /// A part for this thread; none when all are taken.
    pub(super) fn claim(&self, thread: usize) -> Option<usize> {
        let (before, own) = self.0.split_at(thread);
        own[0]
            .take(End::First)
            .or_else(|| own[1..].iter().chain(before).find_map(|share| share.take(End::Last)))
    }

    /// Takes all parts away.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|share| share.0.store(0, Ordering::Relaxed));
    }
}

/// Where a share is taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Share {
    fn take(&self, end: End) -> Option<usize> {
        const FIRST: u64 = u32::MAX as u64;
        let rest = |word: u64| match end {
            _ if word & FIRST >= word >> 32 => None,
            End::First => Some(word + 1),
            End::Last => Some(word - (1 << 32)),
        };
        let word = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).ok()?;
        Some(if end == End::First { word & FIRST } else { (word >> 32) - 1 } as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parts_come_from_the_front_and_those_of_others_from_the_end() {
        let claims = Claims::new(3);
        assert_eq!(claims.claim(1), None);
        claims.deal(7);
        // Shares are 0..2, 2..4 and 4..7.
        let taken: Vec<_> = [1, 1, 1, 1, 1, 1, 0, 0].into_iter().map(|thread| claims.claim(thread)).collect();
        assert_eq!(taken, [Some(2), Some(3), Some(6), Some(5), Some(4), Some(1), Some(0), None]);
        claims.deal(Claims::MOST);
        assert_eq!((claims.claim(0), claims.claim(2)), (Some(0), Some(Claims::MOST / 3 * 2)));
        claims.clear();
        assert_eq!(claims.claim(0), None);
    }
}
