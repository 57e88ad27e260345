//! Weights that come next, fetched into a core's second cache while the core has little to read.
//!
//! A model reads its weights in the same order at every step, most of them from memory or a cache that all cores
//! share, and between its products the way there lies idle: while one thread prepares the next operation and the
//! others wait. The [`Order`] learns which weight follows which; a [`Cursor`] walks ahead of the last product and says
//! what to ask for, of each weight the share whose products its thread will run. Attention and products ask for nothing
//! beside their own operands: that made them wait longer than it saved.
//!
//! Asking is a hint to the processor. It changes no result, and a wrong guess costs bandwidth that nobody used.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// A weight in the order. Ranges of addresses, which are only asked for, never read.
#[derive(Debug, Default)]
pub(crate) struct Link {
    ranges: Vec<Range<usize>>,
    next: Mutex<Weak<Self>>,
}

impl Link {
    /// A weight that lies in these slices, whose products are run in this order.
    pub(crate) fn new<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Arc<Self> {
        let ranges = slices.map(|bytes| {
            let start = bytes.as_ptr().addr();
            start..start + bytes.len()
        });
        Arc::new(Self { ranges: ranges.collect(), next: Mutex::default() })
    }

    fn bytes(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// One piece of the bytes from `offset` on, in the order of the ranges.
    fn piece(&self, offset: usize) -> Range<usize> {
        let mut offset = offset;
        for range in &self.ranges {
            if offset < range.len() {
                return range.start + offset..range.end;
            }
            offset -= range.len();
        }
        0..0
    }
}

/// Which weight follows which.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Mutex<Weak<Link>>,
    /// Products so far, so that cursors need not ask for the last in vain.
    products: AtomicU64,
}

impl Order {
    /// A product with this weight begins.
    pub(crate) fn meet(&self, link: &Arc<Link>) {
        let mut last = lock(&self.last);
        if let Some(before) = last.upgrade() {
            let mut next = lock(&before.next);
            if next.as_ptr() != Arc::as_ptr(link) {
                *next = Arc::downgrade(link);
            }
        }
        *last = Arc::downgrade(link);
        drop(last);
        self.products.fetch_add(1, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How far one thread has asked.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// None for a thread without a share.
    order: Option<Arc<Order>>,
    /// Its number, and that of all.
    share: [usize; 2],
    /// Most bytes that may lie ahead.
    most: usize,
    products: u64,
    /// The weight of the last product that was seen.
    last: Option<Arc<Link>>,
    /// Weights after it that were asked for, the last of them perhaps in part.
    asked: VecDeque<Arc<Link>>,
    /// Bytes of the last one's share.
    offset: usize,
    /// Bytes of all of them.
    ahead: usize,
}

impl Cursor {
    /// Of thread `thread` of `threads`.
    pub(super) fn new(order: &Arc<Order>, thread: usize, threads: usize) -> Self {
        let most = second_cache() / 2;
        Self { order: Some(Arc::clone(order)), share: [thread, threads], most, ..Self::default() }
    }

    /// The next bytes to ask for, up to `count`; none where nothing is known, or enough lies ahead.
    pub(super) fn next(&mut self, count: usize) -> Fetch {
        self.catch_up();
        if self.ahead >= self.most {
            return Fetch::NONE;
        }
        let share = match self.asked.back() {
            Some(link) if self.offset < self.bytes(link).len() => self.bytes(link),
            _ => {
                let Some(next) = self.following() else { return Fetch::NONE };
                let share = self.bytes(&next);
                self.asked.push_back(next);
                self.offset = 0;
                share
            }
        };
        let Some(link) = self.asked.back() else { return Fetch::NONE };
        let piece = link.piece(share.start + self.offset);
        let count = count.min(piece.len()).min(share.len() - self.offset);
        self.offset += count;
        self.ahead += count;
        Fetch { start: std::ptr::without_provenance(piece.start), lines: count.div_ceil(LINE) }
    }

    /// The weight after those that were asked for, unless that would be the first again.
    fn following(&self) -> Option<Arc<Link>> {
        let last = self.last.as_ref()?;
        let next = lock(&self.asked.back().unwrap_or(last).next).upgrade()?;
        let known = Arc::ptr_eq(&next, last) || self.asked.iter().any(|link| Arc::ptr_eq(&next, link));
        (!known).then_some(next)
    }

    /// Passes over what was asked for and has had its product meanwhile.
    fn catch_up(&mut self) {
        let Some(order) = &self.order else { return };
        let products = order.products.load(Ordering::Acquire);
        if products == self.products {
            return;
        }
        let last = lock(&order.last).upgrade();
        self.products = products;
        let found =
            self.asked.iter().position(|link| last.as_ref().is_some_and(|last| Arc::ptr_eq(link, last)));
        for _ in 0..found.map_or(self.asked.len(), |index| index + 1) {
            let Some(link) = self.asked.pop_front() else { break };
            let asked = if self.asked.is_empty() { self.offset } else { self.bytes(&link).len() };
            self.ahead -= asked;
        }
        self.last = last;
    }

    /// The thread's share of a weight's bytes.
    fn bytes(&self, link: &Link) -> Range<usize> {
        let [share, shares] = self.share;
        let bound = |share: usize| link.bytes() / LINE * share / shares * LINE;
        bound(share)..bound(share + 1)
    }
}

/// Lines to ask for. They need not be there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    start: *const u8,
    lines: usize,
}

impl Fetch {
    /// Nothing.
    pub(super) const NONE: Self = Self { start: std::ptr::null(), lines: 0 };

    pub(super) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Asks for all of them.
    pub(super) fn ask(&self) {
        (0..self.lines).for_each(|line| fetch(self.start.wrapping_add(line * LINE)));
    }
}

/// Asks for a line, to be put into the second cache.
#[inline(always)]
fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Bytes of a core's second cache, from leaf 0x8000_0006 of `cpuid`; 0, so that nothing is asked for, where that is
/// not known.
fn second_cache() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        const LEAF: u32 = 0x8000_0006;
        if __cpuid(0x8000_0000).eax >= LEAF {
            return (__cpuid(LEAF).ecx as usize >> 16) << 10;
        }
    }
    0
}

#[cfg(test)]
mod tests;
