//! A slice that the parts of one job fill together.

use std::marker::PhantomData;
use std::ops::Range;

/// Exclusive access to a slice, shared by the parts of a job that each write a range of their own.
#[derive(Clone, Copy, Debug)]
pub struct Disjoint<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever asks for a range promises that nobody else uses it; `T: Send` lets another thread write it.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above; sharing the handle gives access to nothing without that promise.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// The handle to a slice.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// Elements of the whole slice.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where a range of the slice begins, for those who write only some of its elements. What they write is theirs
    /// to keep disjoint.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the slice.
    pub fn pointer(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.length, "a range outside the slice");
        // SAFETY: within the slice that `new` borrowed.
        unsafe { self.start.add(range.start) }
    }

    /// A range of the slice, to write.
    ///
    /// # Safety
    ///
    /// While the returned slice lives, nobody else uses an element of this range.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the slice.
    #[allow(clippy::mut_from_ref, reason = "that is what it is for: the caller promises disjoint ranges")]
    pub unsafe fn range(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a range outside the slice");
        // SAFETY: within the slice that `new` borrowed exclusively for `'a`; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_their_ranges() {
        let mut cells = [0; 10];
        let shared = Disjoint::new(&mut cells);
        assert_eq!(shared.len(), 10);
        // SAFETY: the two ranges do not overlap.
        let (left, right) = unsafe { (shared.range(0..4), shared.range(4..10)) };
        left.fill(1);
        right.fill(2);
        assert_eq!(cells, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn a_range_beyond_the_end_is_refused() {
        let mut cells = [0; 4];
        // SAFETY: nobody else uses the cells.
        unsafe { Disjoint::new(&mut cells).range(2..5) };
    }
}
