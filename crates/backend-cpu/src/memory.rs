//! Buffers for tensors, prepared weights and kernels' working space.
//!
//! Every buffer starts at a multiple of 64 bytes (a cache line and the widest vector). Large ones are mapped at
//! multiples of 2 MiB and advised to use huge pages, because a weight read once per token would otherwise spend
//! its time in page walks. Buffers of temporary values are recycled by size class; weights, which live as long
//! as the model, take exactly what they need and go straight back to the system.
//!
//! Invariants:
//! - the bytes of a [`Block`] are always initialised: fresh ones are zero, recycled ones hold old values;
//! - a block belongs to one owner; its [`Memory`] only counts it and takes it back in `Drop`;
//! - `live` counts the capacity of blocks in use, `cached` of those kept for reuse, never both.

mod mapping;

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};

pub use mapping::OutOfMemory;

/// Alignment in bytes of every block.
pub const ALIGNMENT: usize = 64;

/// Bytes of freed buffers that a [`Memory`] keeps for reuse unless told otherwise.
const DEFAULT_CACHE: usize = 256 << 20;

/// A plain number that a block's bytes may be read as.
///
/// # Safety
///
/// Every bit pattern is a valid value, there is no padding, and the alignment divides [`ALIGNMENT`].
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($element:ty),*) => { $(
        // SAFETY: a primitive number (or a transparent wrapper of `u16`) of at most 8 bytes: no padding, no
        // invalid bit pattern, alignment at most 8.
        unsafe impl Element for $element {}
    )* };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, f16, bf16);

/// Bytes in use and kept, as capacities (what was taken from the system).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in blocks that somebody owns.
    pub live: usize,
    /// Most bytes that were live at once.
    pub peak: usize,
    /// Bytes kept for reuse.
    pub cached: usize,
}

/// Where blocks come from. Cheap to clone; clones share one cache and one count.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: BTreeMap<usize, Vec<Raw>>,
    usage: Usage,
    limit: usize,
}

/// An allocation without an owner: `capacity` bytes at `start`.
#[derive(Debug)]
struct Raw {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: `Raw` is the unique handle of its allocation, and plain bytes may be used from any thread.
unsafe impl Send for Raw {}

impl Default for Memory {
    fn default() -> Self {
        Self::with_cache(DEFAULT_CACHE)
    }
}

impl Memory {
    /// A memory that keeps at most `limit` bytes of freed buffers for reuse.
    pub fn with_cache(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: BTreeMap::new(), usage: Usage::default(), limit })))
    }

    /// A block of `bytes` bytes for a temporary value, recycled when one of its class is free. Its contents
    /// are zeros or old values.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when the system has none left.
    pub fn take(&self, bytes: usize) -> Result<Block, OutOfMemory> {
        let capacity = size_class(bytes);
        let mut state = self.state();
        let recycled = state.free.get_mut(&capacity).and_then(Vec::pop);
        if recycled.is_some() {
            state.usage.cached -= capacity;
        }
        let raw = match recycled {
            Some(raw) => raw,
            None => Raw { start: mapping::allocate(capacity)?, capacity },
        };
        state.count(capacity);
        drop(state);
        Ok(Block { raw, bytes, home: self.clone(), recycled: true })
    }

    /// A zeroed block of `bytes` bytes for something that lives long, such as weights: no rounding to a size
    /// class, and given back to the system when dropped.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when the system has none left.
    pub fn keep(&self, bytes: usize) -> Result<Block, OutOfMemory> {
        let capacity = bytes.max(1).next_multiple_of(ALIGNMENT);
        let raw = Raw { start: mapping::allocate(capacity)?, capacity };
        self.state().count(capacity);
        Ok(Block { raw, bytes, home: self.clone(), recycled: false })
    }

    /// What is in use and kept now.
    pub fn usage(&self) -> Usage {
        self.state().usage
    }

    /// Gives every kept buffer back to the system.
    pub fn trim(&self) {
        let mut state = self.state();
        state.usage.cached = 0;
        state.free.clear();
    }

    /// Counts [`Usage::peak`] afresh from what is live now.
    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.usage.peak = state.usage.live;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, capacity: usize) {
        self.usage.live += capacity;
        self.usage.peak = self.usage.peak.max(self.usage.live);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: `start` came from `allocate(capacity)` and this is its only handle.
        unsafe { mapping::release(self.start, self.capacity) }
    }
}

/// Four classes for each power of two, so that at most a fifth of a buffer is unused; multiples of 64 bytes.
fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGNMENT);
    let step = (bytes.next_power_of_two() / 8).max(ALIGNMENT);
    bytes.next_multiple_of(step)
}

/// A buffer of initialised bytes that starts at a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub struct Block {
    raw: Raw,
    bytes: usize,
    home: Memory,
    recycled: bool,
}

// SAFETY: shared access to a block only reads plain bytes; writing takes `&mut`.
unsafe impl Sync for Block {}

impl Block {
    /// Its length in bytes, as asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its bytes as numbers of one kind; bytes after the last whole one are left out.
    pub fn of<T: Element>(&self) -> &[T] {
        // SAFETY: the bytes are initialised, aligned to `ALIGNMENT`, shared as `self` is, and any bit pattern
        // is a valid `T`.
        unsafe {
            std::slice::from_raw_parts(self.raw.start.as_ptr().cast::<T>(), self.bytes / size_of::<T>())
        }
    }

    /// Its bytes as numbers of one kind, to write; bytes after the last whole one are left out.
    pub fn of_mut<T: Element>(&mut self) -> &mut [T] {
        let count = self.bytes / size_of::<T>();
        // SAFETY: as in `of`, and exclusive as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.raw.start.as_ptr().cast::<T>(), count) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let raw = Raw { start: self.raw.start, capacity: self.raw.capacity };
        let mut state = self.home.state();
        state.usage.live -= raw.capacity;
        // The field `raw` is dropped after this body, so the allocation that stays in the cache must be
        // taken out of it: an empty one (`capacity` 0) releases nothing.
        self.raw.capacity = 0;
        if self.recycled && state.usage.cached + raw.capacity <= state.limit {
            state.usage.cached += raw.capacity;
            state.free.entry(raw.capacity).or_default().push(raw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_zeroed_and_counted() {
        let memory = Memory::default();
        for bytes in [0, 1, 63, 64, 1000, 3 << 20] {
            let block = memory.take(bytes).unwrap();
            assert_eq!(block.len(), bytes);
            assert_eq!(block.raw.start.as_ptr() as usize % ALIGNMENT, 0);
            assert!(block.of::<u8>().iter().all(|byte| *byte == 0));
            memory.trim();
        }
        assert_eq!(memory.usage().live, 0);
        assert!(memory.usage().peak >= 3 << 20);
    }

    #[test]
    fn a_dropped_block_is_used_again() {
        let memory = Memory::default();
        let mut block = memory.take(1000).unwrap();
        block.of_mut::<f32>()[7] = 1.5;
        let start = block.raw.start;
        drop(block);
        assert_eq!(memory.usage(), Usage { live: 0, peak: 1024, cached: 1024 });
        let again = memory.take(990).unwrap();
        assert_eq!(again.raw.start, start);
        assert_eq!(again.of::<f32>()[7], 1.5);
        assert_eq!(memory.usage().cached, 0);
    }

    #[test]
    fn the_cache_has_a_limit_and_can_be_emptied() {
        let memory = Memory::with_cache(2048);
        let blocks: Vec<Block> = (0..4).map(|_| memory.take(1024).unwrap()).collect();
        drop(blocks);
        assert_eq!(memory.usage().cached, 2048);
        memory.trim();
        assert_eq!(memory.usage().cached, 0);
    }

    #[test]
    fn long_lived_blocks_are_exact_and_not_kept() {
        let memory = Memory::default();
        let block = memory.keep(5 << 20).unwrap();
        assert_eq!(memory.usage().live, 5 << 20);
        drop(block);
        assert_eq!(memory.usage(), Usage { live: 0, peak: 5 << 20, cached: 0 });
    }

    #[test]
    fn classes_waste_at_most_a_fifth() {
        for bytes in (512..100_000).step_by(37) {
            let class = size_class(bytes);
            assert!(class >= bytes && (class - bytes) * 5 <= class + 5 * ALIGNMENT, "{bytes}: {class}");
            assert_eq!(size_class(class), class);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(Memory::default().take(isize::MAX as usize - 100).is_err());
    }
}
