//! Where a product's results go.

#[cfg(target_arch = "x86_64")]
use std::ops::Range;

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

/// The cells of one tile and some rows.
#[derive(Clone, Copy, Debug)]
#[cfg(target_arch = "x86_64")]
pub(super) struct Cells {
    /// The first row's first cell.
    pub(super) start: *mut f32,
    /// From one row to the next.
    pub(super) stride: usize,
    /// Columns: sixteen, or fewer in a last tile.
    pub(super) columns: usize,
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

    /// The cells of some rows and one tile.
    ///
    /// # Panics
    ///
    /// When they do not lie within the matrix.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn cells(&self, rows: Range<usize>, tile: usize) -> Cells {
        let column = tile * LANES;
        let columns = LANES.min(self.columns - column);
        let first = (self.row + rows.start) * self.stride + self.first + column;
        let last = first + (rows.len().max(1) - 1) * self.stride;
        Cells { start: self.cells.pointer(first..last + columns), stride: self.stride, columns }
    }
}
