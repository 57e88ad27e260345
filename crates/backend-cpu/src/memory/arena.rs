//! Middling buffers side by side in arenas of huge pages.
//!
//! A cache of keys and values is many buffers of some hundred kilobytes, each read once per token. By themselves
//! they lie on small pages, whose walks take as long as the reading; in arenas they do not.
//!
//! Invariants: a range is free or lent, never both; neighbouring free ranges are one; an arena without a lent range
//! goes back to the system.

use super::mapping::OutOfMemory;
use super::{ARENA, Mapping, Raw};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Least capacity of a buffer that goes into an arena.
const LEAST: usize = 64 << 10;

/// Arenas are cut at multiples of this.
const CUT: usize = 4 << 10;

/// Whether a buffer of this capacity is kept in an arena.
pub(super) fn holds(capacity: usize) -> bool {
    (LEAST..=ARENA / 2).contains(&capacity)
}

/// All arenas of a memory.
#[derive(Debug, Default)]
pub(super) struct Arenas(Vec<Arena>);

#[derive(Debug)]
struct Arena {
    mapping: Mapping,
    /// Lengths of free ranges by where they begin.
    free: BTreeMap<usize, usize>,
}

impl Arenas {
    /// A range of `capacity` bytes with zeros or old values, for which [`holds`] is true.
    pub(super) fn take(&mut self, capacity: usize) -> Result<Raw, OutOfMemory> {
        let length = capacity.next_multiple_of(CUT);
        let start = match self.0.iter_mut().find_map(|arena| arena.take(length)) {
            Some(start) => start,
            None => {
                let mut arena = Arena::new()?;
                let start = arena.take(length).ok_or(OutOfMemory { bytes: capacity })?;
                self.0.push(arena);
                start
            }
        };
        Ok(Raw { start, capacity })
    }

    /// Takes a range back that [`Arenas::take`] gave.
    pub(super) fn give(&mut self, raw: &Raw) {
        let length = raw.capacity.next_multiple_of(CUT);
        let index = self.0.iter().position(|arena| arena.offset(raw.start).is_some());
        let Some(index) = index else { return };
        self.0[index].give(raw.start, length);
        if self.0[index].free.get(&0) == Some(&ARENA) {
            self.0.swap_remove(index);
        }
    }
}

impl Arena {
    fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { mapping: Mapping::new(ARENA)?, free: BTreeMap::from([(0, ARENA)]) })
    }

    /// Where in the arena an address lies.
    fn offset(&self, start: NonNull<u8>) -> Option<usize> {
        let offset = start.as_ptr().addr().checked_sub(self.mapping.0.start.as_ptr().addr());
        offset.filter(|offset| *offset < ARENA)
    }

    /// The first free range that is long enough.
    fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
        let (&offset, &free) = self.free.iter().find(|(_, free)| **free >= length)?;
        self.free.remove(&offset);
        if free > length {
            self.free.insert(offset + length, free - length);
        }
        // SAFETY: free ranges lie within the mapping.
        Some(unsafe { self.mapping.0.start.add(offset) })
    }

    fn give(&mut self, start: NonNull<u8>, length: usize) {
        let Some(mut offset) = self.offset(start) else { return };
        let mut length = length;
        if let Some(after) = self.free.remove(&(offset + length)) {
            length += after;
        }
        if let Some((&before, &free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            (offset, length) = (before, length + free);
        }
        self.free.insert(offset, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_given_back_and_joined() {
        let mut arenas = Arenas::default();
        let ranges: Vec<Raw> = (0..4).map(|_| arenas.take(100 << 10).unwrap()).collect();
        let at = |raw: &Raw| raw.start.as_ptr().addr() - ranges[0].start.as_ptr().addr();
        assert_eq!(ranges.iter().map(at).collect::<Vec<_>>(), [0, 100 << 10, 200 << 10, 300 << 10]);
        arenas.give(&ranges[1]);
        arenas.give(&ranges[2]);
        // The two holes are one, and the first that is long enough is taken.
        let long = arenas.take(200 << 10).unwrap();
        assert_eq!(at(&long), 100 << 10);
        for range in [&ranges[3], &ranges[0], &long] {
            assert_eq!(arenas.0.len(), 1);
            arenas.give(range);
        }
        assert_eq!(arenas.0.len(), 0);
    }

    #[test]
    fn what_does_not_fit_opens_another_arena() {
        let mut arenas = Arenas::default();
        let ranges: Vec<Raw> = (0..3).map(|_| arenas.take(ARENA / 2).unwrap()).collect();
        assert_eq!(arenas.0.len(), 2);
        arenas.give(&ranges[0]);
        arenas.give(&ranges[2]);
        assert_eq!(arenas.0.len(), 1);
        arenas.give(&ranges[1]);
        assert_eq!(arenas.0.len(), 0);
    }
}
