//! Which blocks of a pool are free, and how often each is used.
//!
//! Invariant: a block is free, or it is used by as many tables as it is counted.

/// Blocks by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    uses: Vec<usize>,
    /// The last one is taken first.
    free: Vec<usize>,
}

impl Ledger {
    /// Blocks that there are.
    pub(super) fn blocks(&self) -> usize {
        self.uses.len()
    }

    /// Blocks that nobody uses.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Adds free blocks, which are taken after those that are free already, the lowest first.
    pub(super) fn grow(&mut self, blocks: usize) {
        let added = self.uses.len()..blocks.max(self.uses.len());
        self.uses.resize(added.end, 0);
        self.free.splice(..0, added.rev());
    }

    /// A free block, which has one user now: the one that was freed last.
    pub(super) fn take(&mut self) -> Option<usize> {
        let block = self.free.pop()?;
        self.uses[block] = 1;
        Some(block)
    }

    /// Adds a user.
    pub(super) fn share(&mut self, block: usize) {
        self.uses[block] += 1;
    }

    /// How many use it.
    pub(super) fn users(&self, block: usize) -> usize {
        self.uses[block]
    }

    /// Takes a user away; nobody's block is free.
    pub(super) fn release(&mut self, block: usize) {
        self.uses[block] -= 1;
        if self.uses[block] == 0 {
            self.free.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_blocks_are_taken_first_and_freed_ones_again() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take(), None);
        ledger.grow(3);
        assert_eq!([ledger.take(), ledger.take()], [Some(0), Some(1)]);
        ledger.release(0);
        ledger.grow(5);
        assert_eq!((ledger.blocks(), ledger.free()), (5, 4));
        let taken: Vec<_> = std::iter::from_fn(|| ledger.take()).collect();
        assert_eq!(taken, [0, 2, 3, 4]);
        ledger.grow(2);
        assert_eq!(ledger.blocks(), 5, "a pool never shrinks");
    }

    #[test]
    fn a_block_is_free_when_its_last_user_is_gone() {
        let mut ledger = Ledger::default();
        ledger.grow(1);
        assert_eq!(ledger.take(), Some(0));
        ledger.share(0);
        assert_eq!(ledger.users(0), 2);
        ledger.release(0);
        assert_eq!((ledger.users(0), ledger.take()), (1, None));
        ledger.release(0);
        assert_eq!(ledger.take(), Some(0));
    }
}
