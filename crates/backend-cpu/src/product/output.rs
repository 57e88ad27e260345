//! Where a product's results go.

use super::format::LANES;
use crate::pool::Disjoint;

/// The columns of one segment in a row-major matrix that many parts of a job fill, each its own tiles and rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'a> {
    pub(super) cells: Disjoint<'a, f32>,
    /// Columns of the matrix.
    pub(super) stride: usize,
    /// The segment's first column.
    pub(super) first: usize,
    /// The segment's columns.
    pub(super) columns: usize,
    /// The matrix's row for row 0 of the product.
    pub(super) row: usize,
}

impl<'a> Output<'a> {
    /// The cells of one row and tile: sixteen, or fewer in a last tile.
    ///
    /// # Safety
    ///
    /// Nobody else uses these cells meanwhile.
    pub(super) unsafe fn lanes(&self, row: usize, tile: usize) -> &'a mut [f32] {
        let column = tile * LANES;
        let start = (self.row + row) * self.stride + self.first + column;
        // SAFETY: the caller's promise.
        unsafe { self.cells.range(start..start + LANES.min(self.columns - column)) }
    }
}
