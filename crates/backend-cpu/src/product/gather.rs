//! Products of rows with experts of their own.

use super::error::{ErrorKind, ProductError, check_length};
use super::{Batch, Prepared};
use crate::pool::Pool;
use smallvec::SmallVec;

/// One product: a row of the activations with an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Row of the activations.
    pub row: usize,
    /// Expert of the weight.
    pub expert: usize,
}

impl Prepared {
    /// `out[i] = x[routes[i].row] * W[routes[i].expert]^T` in exact arithmetic: `x` is `[rows, K]`, `out`
    /// `[routes, N]`. Rows of one expert are computed together.
    ///
    /// # Errors
    ///
    /// No such row or expert; a slice of the wrong length; no memory.
    pub fn gather_exact(
        &self,
        pool: &Pool,
        x: &[f32],
        routes: &[Route],
        out: &mut [f32],
    ) -> Result<(), ProductError> {
        self.gather(pool, x, routes, out, false)
    }

    /// As [`Prepared::gather_exact`], in fast arithmetic.
    ///
    /// # Errors
    ///
    /// As [`Prepared::gather_exact`].
    pub fn gather_fast(
        &self,
        pool: &Pool,
        x: &[f32],
        routes: &[Route],
        out: &mut [f32],
    ) -> Result<(), ProductError> {
        self.gather(pool, x, routes, out, true)
    }

    fn gather(
        &self,
        pool: &Pool,
        x: &[f32],
        routes: &[Route],
        out: &mut [f32],
        fast: bool,
    ) -> Result<(), ProductError> {
        check_length("output", routes.len() * self.rows, out.len())?;
        let order = self.order(x, routes)?;
        let mut sorted = self.memory.take(routes.len() * self.width * size_of::<f32>())?;
        let sorted = sorted.of_mut::<f32>();
        for (row, route) in sorted.chunks_exact_mut(self.width.max(1)).zip(&order) {
            row.copy_from_slice(&x[routes[*route].row * self.width..][..self.width]);
        }
        let sorted = &*sorted;
        let runs: Vec<&[usize]> =
            order.chunk_by(|left, right| routes[*left].expert == routes[*right].expert).collect();
        let mut quantised = Vec::new();
        let mut first = 0;
        for run in &runs {
            let x = &sorted[first * self.width..][..run.len() * self.width];
            quantised.push(if fast { self.quantise(pool, x, run.len())? } else { SmallVec::new() });
            first += run.len();
        }
        let mut batches = Vec::new();
        let mut first = 0;
        for (run, quantised) in runs.iter().zip(&quantised) {
            let (expert, rows) = (routes[run[0]].expert, run.len());
            let x = &sorted[first * self.width..][..rows * self.width];
            batches.push(Batch { expert, rows, x, quantised, first });
            first += rows;
        }
        let mut results = self.memory.take(std::mem::size_of_val(out))?;
        self.multiply(pool, &batches, results.of_mut())?;
        for (result, route) in results.of::<f32>().chunks_exact(self.rows.max(1)).zip(&order) {
            out[route * self.rows..][..self.rows].copy_from_slice(result);
        }
        Ok(())
    }

    /// The routes' indices, those of one expert together and in their order.
    fn order(&self, x: &[f32], routes: &[Route]) -> Result<Vec<usize>, ProductError> {
        let rows = x.len() / self.width.max(1);
        check_length("activations", rows * self.width, x.len())?;
        for route in routes {
            if route.row >= rows {
                return Err(ErrorKind::Index { what: "row", index: route.row, count: rows }.into());
            }
            if route.expert >= self.experts {
                let (index, count) = (route.expert, self.experts);
                return Err(ErrorKind::Index { what: "expert", index, count }.into());
            }
        }
        let mut order: Vec<usize> = (0..routes.len()).collect();
        order.sort_by_key(|route| routes[*route].expert);
        Ok(order)
    }
}
