//! Keys or values as rows of floats at even steps, whose bounds are checked once and not in every inner loop.

use crate::simd::{LANES, Simd};

/// `count` rows of `width` floats, a multiple of sixteen, the first at the first element.
///
/// Invariant: all of them lie within the elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    elements: &'a [f32],
    step: usize,
    count: usize,
    width: usize,
    /// Whether rows are read for the first time, so that it pays to ask for them in advance.
    cold: bool,
}

/// Rows that are asked for ahead of the one in work: about what a core gets through while memory answers.
const AHEAD: usize = 16;

impl<'a> Rows<'a> {
    /// # Panics
    /// The rows do not lie within the elements.
    #[inline(always)]
    pub(super) fn new(elements: &'a [f32], step: usize, count: usize, width: usize) -> Self {
        assert!(count > 0 && width.is_multiple_of(LANES), "rows are whole vectors");
        assert!((count - 1) * step + width <= elements.len(), "rows outside their plane");
        Self { elements, step, count, width, cold: false }
    }

    /// The same, said to be read for the first time or not.
    #[inline(always)]
    pub(super) fn cold(self, cold: bool) -> Self {
        Self { cold, ..self }
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Asks for the row that will be read some time after this one.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(&self, simd: S, row: usize) {
        if !self.cold {
            return;
        }
        // It may lie outside the elements: in the plane's next block, or nowhere.
        let start = self.elements.as_ptr().wrapping_add((row + AHEAD) * self.step);
        for vector in 0..self.width / LANES {
            simd.prefetch(start.wrapping_add(vector * LANES));
        }
    }

    /// Sixteen floats of a row.
    ///
    /// # Safety
    /// There is such a row, and it has as many vectors.
    #[inline(always)]
    pub(super) unsafe fn vector(&self, row: usize, vector: usize) -> &'a [f32; LANES] {
        debug_assert!(row < self.count && (vector + 1) * LANES <= self.width);
        // SAFETY: the row and its `width` floats lie within the elements (the invariant), the vector within those.
        unsafe { &*self.elements.as_ptr().add(row * self.step + vector * LANES).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_end_where_the_elements_end() {
        let elements: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let rows = Rows::new(&elements[4..], 32, 3, 32);
        // SAFETY: three rows of two vectors.
        assert_eq!(unsafe { rows.vector(2, 1) }[15], 99.0);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn rows_that_do_not_fit_are_refused() {
        Rows::new(&[0.0; 95], 32, 3, 32);
    }
}
