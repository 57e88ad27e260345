//! What one thread has of its own: working space, and how far it has asked for what comes next.

use std::fmt;

use super::ahead::Cursor;
use crate::memory::{Block, Element, Memory};

/// A huge page, so that the kernels' panels do not wait for page walks. Only what is used takes memory.
const LEAST: usize = 2 << 20;

/// Working space that a thread keeps between parts. Starts at a multiple of 64 bytes and only grows.
#[derive(Default)]
pub struct Scratch {
    block: Option<Block>,
    cursor: Cursor,
}

impl Scratch {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self { block: None, cursor }
    }

    pub(super) fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    /// `count` numbers with arbitrary values.
    ///
    /// # Panics
    ///
    /// When the system has no memory left: a kernel in the middle of its work has no other way out, and the pool
    /// hands the panic to its caller.
    pub fn lend<T: Element>(&mut self, count: usize) -> &mut [T] {
        let bytes = count * size_of::<T>();
        if self.block.as_ref().is_none_or(|block| block.len() < bytes) {
            self.block = None;
            match Memory::with_cache(0).take(bytes.next_power_of_two().max(LEAST)) {
                Ok(block) => self.block = Some(block),
                Err(error) => panic!("working space: {error}"),
            }
        }
        self.block.as_mut().map_or(&mut [], |block| &mut block.of_mut()[..count])
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Scratch({} bytes)", self.block.as_ref().map_or(0, Block::len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_grows_and_is_kept() {
        let mut scratch = Scratch::default();
        scratch.lend::<u8>(10).fill(7);
        assert_eq!(scratch.lend::<u8>(5), [7; 5]);
        assert_eq!(scratch.lend::<f32>(1000).len(), 1000);
        assert_eq!(format!("{scratch:?}"), "Scratch(2097152 bytes)");
        assert_eq!(scratch.lend::<u64>(0).len(), 0);
    }
}
