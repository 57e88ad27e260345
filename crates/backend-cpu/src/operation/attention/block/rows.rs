//! Keys or values as rows at even steps, whose bounds are checked once and not in every inner loop.

use crate::number::Real;
use crate::pool::ahead::LINE;
use crate::simd::{LANES, Simd};

/// Rows of whole vectors.
pub(super) trait Rows: Copy {
    /// Whether two neighbouring vectors are cheaper as their even and their odd elements.
    const DEALT: bool = false;

    /// Two vectors from `vector` on: their even elements, then their odd ones.
    ///
    /// # Safety
    /// As [`Rows::vector`], for both.
    #[inline(always)]
    unsafe fn dealt<S: Simd>(&self, simd: S, row: usize, vector: usize) -> [S::Lanes; 2] {
        // SAFETY: the caller's.
        let (a, b) = unsafe { (self.vector(simd, row, vector), self.vector(simd, row, vector + 1)) };
        simd.deal(a, b)
    }

    /// How many there are.
    fn count(&self) -> usize;

    /// Sixteen elements of a row.
    ///
    /// # Safety
    /// There is such a row, and it has as many vectors.
    unsafe fn vector<S: Simd>(&self, simd: S, row: usize, vector: usize) -> S::Lanes;
}

/// `count` rows of `width` floats, a multiple of sixteen, the first at the first element.
///
/// Invariant: all of them lie within the elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatRows<'a, T> {
    elements: &'a [T],
    step: usize,
    count: usize,
    width: usize,
}

impl<'a, T: Real> FloatRows<'a, T> {
    /// # Panics
    /// The rows do not lie within the elements.
    #[inline(always)]
    pub(super) fn new(elements: &'a [T], step: usize, count: usize, width: usize) -> Self {
        assert!(count > 0 && width.is_multiple_of(LANES), "rows are whole vectors");
        assert!((count - 1) * step + width <= elements.len(), "rows outside their plane");
        Self { elements, step, count, width }
    }
}

impl<T: Real> Rows for FloatRows<'_, T> {
    const DEALT: bool = T::DEALT;

    #[inline(always)]
    unsafe fn dealt<S: Simd>(&self, simd: S, row: usize, vector: usize) -> [S::Lanes; 2] {
        debug_assert!(row < self.count && (vector + 2) * LANES <= self.width);
        // SAFETY: the row and its `width` floats lie within the elements (the invariant), both vectors within those.
        let two = unsafe { &*self.elements.as_ptr().add(row * self.step + vector * LANES).cast() };
        T::load_dealt(simd, two)
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    unsafe fn vector<S: Simd>(&self, simd: S, row: usize, vector: usize) -> S::Lanes {
        debug_assert!(row < self.count && (vector + 1) * LANES <= self.width);
        // SAFETY: the row and its `width` floats lie within the elements (the invariant), the vector within those.
        T::load(simd, unsafe { &*self.elements.as_ptr().add(row * self.step + vector * LANES).cast() })
    }
}

/// Rows that will be read soon. Each is asked for when its like is read, so that memory works while the core does.
#[derive(Clone, Copy, Debug)]
pub(in crate::operation::attention) struct Soon {
    start: *const u8,
    /// In bytes.
    step: usize,
    lines: usize,
}

impl Soon {
    /// Nothing.
    pub(in crate::operation::attention) const NONE: Self =
        Self { start: std::ptr::null(), step: 0, lines: 0 };

    /// Rows of `width` elements at even steps from the first element on. There may be fewer than are asked for.
    #[inline(always)]
    pub(in crate::operation::attention) fn new<T>(elements: &[T], step: usize, width: usize) -> Self {
        let lines = (width * size_of::<T>()).div_ceil(LINE);
        Self { start: elements.as_ptr().cast(), step: step * size_of::<T>(), lines }
    }

    /// Asks for one of the rows, which may lie anywhere.
    #[inline(always)]
    pub(super) fn ask<S: Simd>(&self, simd: S, row: usize) {
        let start = self.start.wrapping_add(row * self.step);
        for line in 0..self.lines {
            simd.prefetch(start.wrapping_add(line * LINE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last float of the last of three rows of two vectors.
    struct Last<'a>(FloatRows<'a, f32>);

    impl crate::simd::Kernel for Last<'_> {
        type Output = f32;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> f32 {
            let mut lanes = [0.0; LANES];
            // SAFETY: there are three rows of two vectors.
            simd.store(&mut lanes, unsafe { self.0.vector(simd, 2, 1) });
            lanes[15]
        }
    }

    #[test]
    fn rows_may_end_where_the_elements_end() {
        let elements: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let rows = FloatRows::new(&elements[4..], 32, 3, 32);
        assert_eq!(crate::simd::dispatch(crate::isa::Isa::detected(), Last(rows)), 99.0);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn rows_that_do_not_fit_are_refused() {
        FloatRows::new(&[0.0; 95], 32, 3, 32);
    }

    #[test]
    fn rows_that_are_asked_for_span_whole_lines() {
        let soon = Soon::new(&[0u16; 100], 50, 40);
        assert_eq!((soon.step, soon.lines), (100, 2));
        struct Ask;
        impl crate::simd::Kernel for Ask {
            type Output = ();
            fn run<S: Simd>(self, simd: S) {
                Soon::NONE.ask(simd, 7);
            }
        }
        crate::simd::dispatch(crate::isa::Isa::detected(), Ask);
    }
}
