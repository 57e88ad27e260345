//! Linear products over prepared weights: `y[T, N] = x[T, K] * W[N, K]^T`, in f32.
//!
//! A [`Prepared`] weight is laid out once, at load, and is the only copy: the same bytes serve one row, a few rows
//! and many, and give single rows back for the lookup of embeddings. Weights that share their input (queries,
//! keys and values; gate and up) are joined by rows into one; experts are stacked.
//!
//! There are two arithmetics, each of which gives an output the same bits whatever the number of rows in the
//! call, their order, the threads, and the instruction set:
//! - *exact* (`product/exact.rs`): f32 on dequantised weights, summed in ascending order of inputs;
//! - *fast* (`product/fast.rs`): activations quantised to twelve bits by groups (`product/quantised.rs`), exact integer
//!   products, summed in f32 in ascending order of groups. Dense weights have no codes and stay with exact.
//!
//! Invariants: segments cover the outputs in order; all have the weight's width and experts.

mod error;
mod exact;
mod fast;
mod format;
mod gather;
mod output;
mod part;
mod plan;
mod quantised;
mod row;
mod segment;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::memory::Memory;
use crate::pool::ahead::Link;
use crate::pool::{Disjoint, Pool, Scratch};
use error::check_length;
pub use error::{ErrorKind, ProductError};
use exact::Exact;
use fast::Fast;
use format::{Format, LANES};
pub use gather::Route;
use output::Output;
pub use part::{Part, Values, Weight};
use plan::{Lane, Plan};
use quantised::PARTS;
pub use quantised::Quantised;
use segment::{Segment, Source, alike};
use smallvec::SmallVec;

/// A weight of shape `[experts, rows, width]`, ready for products.
#[derive(Debug)]
pub struct Prepared {
    experts: usize,
    rows: usize,
    width: usize,
    segments: Vec<Segment>,
    /// See [`Prepared::groups`].
    groups: Vec<usize>,
    memory: Memory,
    /// Its place among the weights of a step; none for experts, of which nobody knows which come next.
    link: Option<Arc<Link>>,
}

/// Rows of activations that meet one expert.
#[derive(Clone, Copy, Debug)]
struct Batch<'a> {
    expert: usize,
    rows: usize,
    /// `[rows, width]`; may be empty where `quantised` suffices.
    x: &'a [f32],
    /// For each group size of the weight, or none for an exact product.
    quantised: &'a [Quantised],
    /// First row of the output.
    first: usize,
}

impl Prepared {
    /// Prepares weights joined by rows: the outputs of the first part, then those of the second, and so on.
    ///
    /// # Errors
    ///
    /// No part or parts of different widths; unknown bits or group size; a slice of the wrong length; no memory.
    pub fn new(pool: &Pool, memory: &Memory, parts: &[Part<'_>]) -> Result<Self, ProductError> {
        Self::stacked(pool, memory, 1, parts)
    }

    /// Prepares `experts` weights of one shape; each part's slices hold its rows of all experts, one expert after
    /// the other.
    ///
    /// # Errors
    ///
    /// As [`Prepared::new`].
    pub fn stacked(
        pool: &Pool,
        memory: &Memory,
        experts: usize,
        parts: &[Part<'_>],
    ) -> Result<Self, ProductError> {
        let width = parts.first().ok_or(ErrorKind::Parts)?.width;
        if parts.iter().any(|part| part.width != width) {
            return Err(ErrorKind::Parts.into());
        }
        parts.iter().try_for_each(|part| part.check(experts))?;
        let mut segments = Vec::new();
        let mut rows = 0;
        for parts in parts.chunk_by(alike) {
            let segment = Segment::pack(pool, memory, Source { parts, width, experts }, rows)?;
            rows += segment.rows;
            segments.push(segment);
        }
        let link = (experts == 1).then(|| Link::new(segments.iter().map(|segment| segment.expert(0))));
        let mut groups: Vec<usize> = segments.iter().filter_map(Segment::group).collect();
        groups.sort_unstable();
        groups.dedup();
        Ok(Self { experts, rows, width, segments, groups, memory: memory.clone(), link })
    }

    /// Weights stacked in it.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(Segment::bytes).sum()
    }

    /// The group sizes in which a fast product wants its activations quantised, each once.
    pub fn groups(&self) -> &[usize] {
        &self.groups
    }

    /// Whether some rows are dense, so that a fast product needs the activations themselves too.
    pub fn has_dense(&self) -> bool {
        self.segments.iter().any(|segment| segment.group().is_none())
    }

    /// `out[rows, N] = x[rows, K] * W^T` in exact arithmetic, on the first expert.
    ///
    /// # Errors
    ///
    /// A slice of the wrong length; no memory.
    pub fn exact(&self, pool: &Pool, x: &[f32], rows: usize, out: &mut [f32]) -> Result<(), ProductError> {
        check_length("activations", rows * self.width, x.len())?;
        self.multiply(pool, &[Batch { expert: 0, rows, x, quantised: &[], first: 0 }], out)
    }

    /// `out[rows, N] = x[rows, K] * W^T` in fast arithmetic, on the first expert. A row with an infinity or a NaN
    /// gives NaN in every affine output.
    ///
    /// # Errors
    ///
    /// A slice of the wrong length; no memory.
    pub fn fast(&self, pool: &Pool, x: &[f32], rows: usize, out: &mut [f32]) -> Result<(), ProductError> {
        let quantised = self.quantise(pool, x, rows)?;
        self.multiply(pool, &[Batch { expert: 0, rows, x, quantised: &quantised, first: 0 }], out)
    }

    /// As [`Prepared::fast`], on activations that are quantised already, of the same rows in each of
    /// [`Prepared::groups`]. `x` is read only if [`Prepared::has_dense`] and may be empty otherwise.
    ///
    /// # Errors
    ///
    /// No activations or none in one of the group sizes; a slice of the wrong length; no memory.
    pub fn fast_quantised(
        &self,
        pool: &Pool,
        x: &[f32],
        quantised: &[Quantised],
        out: &mut [f32],
    ) -> Result<(), ProductError> {
        let rows = quantised.first().ok_or(ErrorKind::Unquantised(0))?.rows();
        self.multiply(pool, &[Batch { expert: 0, rows, x, quantised, first: 0 }], out)
    }

    /// As [`Prepared::fast_quantised`], but adds each whole product to what `out` holds: `out + product`.
    ///
    /// # Errors
    ///
    /// As [`Prepared::fast_quantised`].
    pub fn fast_onto(
        &self,
        pool: &Pool,
        x: &[f32],
        quantised: &[Quantised],
        out: &mut [f32],
    ) -> Result<(), ProductError> {
        let rows = quantised.first().ok_or(ErrorKind::Unquantised(0))?.rows();
        check_length("output", rows * self.rows, out.len())?;
        let mut products = self.memory.take(size_of_val(out))?;
        let products = Disjoint::new(products.of_mut::<f32>());
        let out = Disjoint::new(out);
        let batch = Batch { expert: 0, rows, x, quantised, first: 0 };
        self.multiply_then(pool, &[batch], products, |piece, tiles| {
            let columns = piece.columns(tiles);
            for row in piece.rows.clone() {
                let cells = row * self.rows + columns.start..row * self.rows + columns.end;
                // SAFETY: the piece's tiles and rows are this part's alone, in both matrices.
                let (out, products) = unsafe { (out.range(cells.clone()), products.range(cells)) };
                out.iter_mut().zip(products).for_each(|(out, product)| *out += *product);
            }
        })
    }

    /// Quantises `x[rows, K]` in every group size that a fast product needs.
    ///
    /// # Errors
    ///
    /// A slice of the wrong length; no memory.
    pub fn quantise(
        &self,
        pool: &Pool,
        x: &[f32],
        rows: usize,
    ) -> Result<SmallVec<[Quantised; 1]>, ProductError> {
        check_length("activations", rows * self.width, x.len())?;
        let quantise = |&group: &usize| {
            let mut quantised = Quantised::new(&self.memory, rows, self.width, group)?;
            quantised.fill(pool, x)?;
            Ok(quantised)
        };
        self.groups.iter().map(quantise).collect()
    }

    /// The same of rows that are made on the way, once for each group size; see [`Quantised::fill_with`].
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn quantise_made(
        &self,
        pool: &Pool,
        rows: usize,
        make: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<SmallVec<[Quantised; 1]>, ProductError> {
        let quantise = |&group: &usize| {
            let mut quantised = Quantised::new(&self.memory, rows, self.width, group)?;
            quantised.fill_with(pool, &make);
            Ok(quantised)
        };
        self.groups.iter().map(quantise).collect()
    }

    /// Computes batches whose rows of the output do not overlap and cover it.
    fn multiply(&self, pool: &Pool, batches: &[Batch<'_>], out: &mut [f32]) -> Result<(), ProductError> {
        self.multiply_then(pool, batches, Disjoint::new(out), |_, _| {})
    }

    /// The same; `then` is called with each piece and those of its tiles that are complete, on the thread that computed
    /// them.
    fn multiply_then(
        &self,
        pool: &Pool,
        batches: &[Batch<'_>],
        cells: Disjoint<'_, f32>,
        then: impl Fn(&Piece<'_>, Range<usize>) + Sync,
    ) -> Result<(), ProductError> {
        let rows = batches.iter().map(|batch| batch.rows).sum::<usize>();
        check_length("output", rows * self.rows, cells.len())?;
        let mut pieces = SmallVec::new();
        for batch in batches {
            self.pieces(batch, cells, &mut pieces)?;
        }
        let lane = |(index, piece): (usize, &Piece<'_>)| {
            let segment = piece.segment;
            let cost = plan::cost(segment.tile_bytes, self.width, piece.rows.len());
            Lane { index, tiles: segment.tiles, together: piece.together(), cost }
        };
        if let Some(link) = &self.link {
            pool.meet(link);
        }
        let plan = Plan::new(pool, pieces.iter().enumerate().map(lane));
        pool.run(plan.parts(), |part, scratch| {
            for (index, tiles) in plan.part(part) {
                // SAFETY: the plan gives each tile of each piece to one part, and pieces have rows and columns of
                // the output to themselves.
                unsafe { pieces[index].run(pool, tiles.clone(), scratch) };
                then(&pieces[index], tiles);
            }
        });
        Ok(())
    }

    /// Cuts a batch into pieces, one for each segment and run of rows, in the order in which they are best
    /// computed: all tiles for one run of rows, whose activations then stay in the cache.
    fn pieces<'a>(
        &'a self,
        batch: &Batch<'a>,
        cells: Disjoint<'a, f32>,
        pieces: &mut SmallVec<[Piece<'a>; 2]>,
    ) -> Result<(), ProductError> {
        for start in (0..batch.rows).step_by(self.run_of_rows(batch)) {
            let rows = start..batch.rows.min(start + self.run_of_rows(batch));
            for segment in &self.segments {
                let output = Output {
                    cells,
                    stride: self.rows,
                    first: segment.first,
                    columns: segment.rows,
                    row: batch.first,
                };
                let operation = self.operation(batch, segment, output)?;
                pieces.push(Piece { segment, operation, rows: rows.clone() });
            }
        }
        Ok(())
    }

    fn operation<'a>(
        &self,
        batch: &Batch<'a>,
        segment: &'a Segment,
        output: Output<'a>,
    ) -> Result<Operation<'a>, ProductError> {
        let expert = batch.expert;
        if let (Format::Affine(affine), false) = (segment.format, batch.quantised.is_empty()) {
            let fits = |input: &&Quantised| input.group() == affine.group;
            let input = batch.quantised.iter().find(fits).ok_or(ErrorKind::Unquantised(affine.group))?;
            check_length("quantised activations", batch.rows * self.width, input.rows() * input.width())?;
            return Ok(Operation::Fast(Fast { affine, segment, expert, input, output }));
        }
        check_length("activations", batch.rows * self.width, batch.x.len())?;
        Ok(Operation::Exact(Exact { segment, expert, width: self.width, x: batch.x, output }))
    }

    /// Rows computed for all tiles before the next rows: as many as keep the activations (fast) or the sums
    /// (exact) in the second cache, and a multiple of the rows that kernels take at once.
    fn run_of_rows(&self, batch: &Batch<'_>) -> usize {
        const CODES: usize = 1 << 20;
        const EXACT: usize = 96;
        if batch.quantised.is_empty() {
            EXACT
        } else {
            (CODES / (PARTS * self.width).max(1) / 16 * 16).clamp(EXACT, 1024)
        }
    }
}

/// A segment's product for a run of rows.
#[derive(Clone, Debug)]
struct Piece<'a> {
    segment: &'a Segment,
    operation: Operation<'a>,
    rows: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Operation<'a> {
    Exact(Exact<'a>),
    Fast(Fast<'a>),
}

impl Piece<'_> {
    /// Tiles that a kernel takes at once.
    fn together(&self) -> usize {
        match self.operation {
            Operation::Exact(_) => exact::TILES,
            Operation::Fast(fast) => fast::together(fast.affine.code, self.rows.len()),
        }
    }

    /// Columns of the output that some tiles are.
    fn columns(&self, tiles: Range<usize>) -> Range<usize> {
        let (first, rows) = (self.segment.first, self.segment.rows);
        first + tiles.start * LANES..first + rows.min(tiles.end * LANES)
    }

    /// Computes some tiles.
    ///
    /// # Safety
    ///
    /// Nobody else uses these tiles' cells of the output meanwhile.
    unsafe fn run(&self, pool: &Pool, tiles: Range<usize>, scratch: &mut Scratch) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.operation {
                Operation::Exact(exact) => exact.run(pool.isa(), tiles, self.rows.clone(), scratch),
                Operation::Fast(fast) => fast.run(pool.isa(), tiles, self.rows.clone(), scratch),
            }
        }
    }
}
