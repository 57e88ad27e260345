//! Buffers for tensors, prepared weights and kernels' working space.
//!
//! Every buffer starts at a multiple of 64 bytes (a cache line and the widest vector). Large ones are mapped at
//! multiples of 2 MiB and advised to use huge pages, because a weight read once per token would otherwise spend
//! its time in page walks; middling ones lie in arenas of such pages. Buffers of temporary values are recycled by
//! size class. Weights, which live as long as the model, take exactly what they need, side by side in arenas of
//! their own, and go back to the system with the last of an arena.
//!
//! Invariants:
//! - the bytes of a [`Block`] are always initialised: fresh ones are zero, recycled ones hold old values;
//! - a block belongs to one owner; its [`Memory`] only counts it and takes it back in `Drop`;
//! - `live` counts the capacity of blocks in use, `cached` of those kept for reuse, never both.

mod arena;
mod mapping;

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arena::Arenas;
use half::{bf16, f16};

pub use mapping::OutOfMemory;

/// Alignment in bytes of every block.
pub const ALIGNMENT: usize = 64;

/// Bytes of an arena; what is not used of it is never touched and takes no memory.
const ARENA: usize = 32 << 20;

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

/// The bytes of numbers, to write.
pub(crate) fn bytes_mut<T: Element>(xs: &mut [T]) -> &mut [u8] {
    // SAFETY: the elements have no padding, any bytes are valid ones, and the slice is exclusively borrowed.
    unsafe { std::slice::from_raw_parts_mut(xs.as_mut_ptr().cast(), size_of_val(xs)) }
}

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
    /// Buffers kept for reuse, by capacity.
    free: BTreeMap<usize, Vec<Raw>>,
    /// Where middling buffers lie.
    arenas: Arenas,
    arena: Option<Arena>,
    usage: Usage,
    limit: usize,
}

/// Where the next long-lived block goes.
#[derive(Debug)]
struct Arena {
    mapping: Arc<Mapping>,
    used: usize,
}

/// Bytes without an owner: `capacity` of them at `start`.
#[derive(Debug)]
struct Raw {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: `Raw` is the unique handle of its bytes, and plain bytes may be used from any thread.
unsafe impl Send for Raw {}
// SAFETY: a shared `Raw` gives nothing but its address away.
unsafe impl Sync for Raw {}

/// An allocation of the system's, which goes back to it.
#[derive(Debug)]
struct Mapping(Raw);

impl Mapping {
    fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self(Raw { start: mapping::allocate(capacity)?, capacity }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` came from `allocate(capacity)` and this is its only handle.
        unsafe { mapping::release(self.0.start, self.0.capacity) }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_cache(DEFAULT_CACHE)
    }
}

impl Memory {
    /// A memory that keeps at most `limit` bytes of freed buffers for reuse.
    pub fn with_cache(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: BTreeMap::new(),
            arenas: Arenas::default(),
            arena: None,
            usage: Usage::default(),
            limit,
        })))
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
            None => state.allocate(capacity)?,
        };
        state.count(capacity);
        drop(state);
        Ok(Block { start: raw.start, bytes, capacity, home: self.clone(), holder: Holder::Recycled })
    }

    /// A zeroed block of `bytes` bytes for something that lives long, such as weights: no rounding to a size
    /// class, beside others of its kind, and given back to the system with them.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when the system has none left.
    pub fn keep(&self, bytes: usize) -> Result<Block, OutOfMemory> {
        let capacity = bytes.max(1).next_multiple_of(ALIGNMENT);
        let mut state = self.state();
        let (start, mapping) = state.place(capacity)?;
        state.count(capacity);
        drop(state);
        Ok(Block { start, bytes, capacity, home: self.clone(), holder: Holder::Kept(mapping) })
    }

    /// What is in use and kept now.
    pub fn usage(&self) -> Usage {
        self.state().usage
    }

    /// Gives every kept buffer back to the system.
    pub fn trim(&self) {
        self.state().trim();
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

    /// Space for a temporary value. How it was made depends on the capacity alone.
    fn allocate(&mut self, capacity: usize) -> Result<Raw, OutOfMemory> {
        match arena::holds(capacity) {
            true => self.arenas.take(capacity),
            false => Ok(Raw { start: mapping::allocate(capacity)?, capacity }),
        }
    }

    /// Undoes [`State::allocate`].
    fn release(&mut self, raw: Raw) {
        match arena::holds(raw.capacity) {
            true => self.arenas.give(&raw),
            false => drop(Mapping(raw)),
        }
    }

    /// Gives every kept buffer back.
    fn trim(&mut self) {
        self.usage.cached = 0;
        for raw in std::mem::take(&mut self.free).into_values().flatten() {
            self.release(raw);
        }
    }

    /// Space for a long-lived block: in the arena, or by itself when it is large.
    fn place(&mut self, capacity: usize) -> Result<(NonNull<u8>, Arc<Mapping>), OutOfMemory> {
        if capacity > ARENA / 2 {
            let mapping = Mapping::new(capacity)?;
            return Ok((mapping.0.start, Arc::new(mapping)));
        }
        if self.arena.as_ref().is_none_or(|arena| arena.used + capacity > ARENA) {
            self.arena = Some(Arena { mapping: Arc::new(Mapping::new(ARENA)?), used: 0 });
        }
        let Some(arena) = &mut self.arena else { return Err(OutOfMemory { bytes: capacity }) };
        // SAFETY: `used + capacity` is at most the arena's size.
        let start = unsafe { arena.mapping.0.start.add(arena.used) };
        arena.used += capacity;
        Ok((start, Arc::clone(&arena.mapping)))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.trim();
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
    start: NonNull<u8>,
    bytes: usize,
    capacity: usize,
    home: Memory,
    holder: Holder,
}

/// What keeps a block's bytes allocated.
#[derive(Debug)]
enum Holder {
    /// The block itself, until it is handed to its memory.
    Recycled,
    /// Held for its `Drop` alone: an allocation shared with other long-lived blocks.
    Kept(#[expect(dead_code, reason = "held for its drop")] Arc<Mapping>),
}

// SAFETY: the block is the only handle of its bytes, which any thread may use.
unsafe impl Send for Block {}
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
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<T>(), self.bytes / size_of::<T>()) }
    }

    /// Its bytes as numbers of one kind, to write; bytes after the last whole one are left out.
    pub fn of_mut<T: Element>(&mut self) -> &mut [T] {
        let count = self.bytes / size_of::<T>();
        // SAFETY: as in `of`, and exclusive as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast::<T>(), count) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.home.state();
        state.usage.live -= self.capacity;
        if matches!(self.holder, Holder::Recycled) {
            let raw = Raw { start: self.start, capacity: self.capacity };
            if state.usage.cached + self.capacity <= state.limit {
                state.usage.cached += self.capacity;
                state.free.entry(self.capacity).or_default().push(raw);
            } else {
                state.release(raw);
            }
        }
        // An arena that holds no other block than this one is not filled any further.
        if matches!(self.holder, Holder::Kept(_))
            && state.arena.as_ref().is_some_and(|arena| Arc::strong_count(&arena.mapping) == 2)
        {
            state.arena = None;
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
            assert_eq!(block.start.as_ptr() as usize % ALIGNMENT, 0);
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
        let start = block.start;
        drop(block);
        assert_eq!(memory.usage(), Usage { live: 0, peak: 1024, cached: 1024 });
        let again = memory.take(990).unwrap();
        assert_eq!(again.start, start);
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
