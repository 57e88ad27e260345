//! Cache bytes that live rows may take, by projection.
//!
//! Invariant: the sum of living leases never exceeds the limit; a lease gives its bytes back in `Drop`.

use std::{cell::Cell, rc::Rc};

/// One budget for one device.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: Option<usize>,
    used: Rc<Cell<usize>>,
}

/// Why there was no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others hold the bytes now.
    Wait,
    /// The whole budget would not do.
    Never {
        /// The budget.
        limit: usize,
    },
}

impl Budget {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, used: Rc::default() }
    }

    /// Bytes held by leases.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Takes bytes until the lease is dropped.
    pub(crate) fn lease(&self, bytes: usize) -> Result<Lease, Refusal> {
        let total = self.used().saturating_add(bytes);
        match self.limit {
            Some(limit) if bytes > limit => return Err(Refusal::Never { limit }),
            Some(limit) if total > limit => return Err(Refusal::Wait),
            _ => self.used.set(total),
        }
        Ok(Lease { bytes, used: Rc::clone(&self.used) })
    }
}

/// Bytes that are taken.
#[derive(Debug)]
pub(crate) struct Lease {
    bytes: usize,
    used: Rc<Cell<usize>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.used.set(self.used.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_fill_the_budget_and_give_it_back() {
        let budget = Budget::new(Some(10));
        let first = budget.lease(6);
        assert!(first.is_ok());
        assert_eq!(budget.lease(5).err(), Some(Refusal::Wait));
        assert_eq!(budget.lease(11).err(), Some(Refusal::Never { limit: 10 }));
        let second = budget.lease(4);
        assert_eq!((second.is_ok(), budget.used()), (true, 10));
        drop(first);
        assert!(budget.lease(5).is_ok());
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn without_a_limit_everything_is_granted_and_counted() {
        let budget = Budget::new(None);
        let lease = budget.lease(usize::MAX);
        assert!(lease.is_ok() && budget.lease(1).is_ok());
    }
}
