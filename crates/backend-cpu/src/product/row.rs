//! Rows of a weight, dequantised: what looks embeddings up.
//!
//! A weight of codes is rounded once, `fma(scale, code, bias)`.

use super::error::check_length;
use super::format::{Affine, Format, LANES, Number};
use super::{ErrorKind, Prepared, ProductError};
use crate::isa::Isa;
use crate::pool::{Disjoint, Pool};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows of a part: fewer are not worth another thread.
const ROWS: usize = 16;

impl Prepared {
    /// The weights of some outputs of the first expert, dequantised: `out[rows, K]`.
    ///
    /// # Errors
    ///
    /// No such row; a slice of the wrong length.
    pub fn look_up(&self, pool: &Pool, rows: &[usize], out: &mut [f32]) -> Result<(), ProductError> {
        check_length("rows", rows.len() * self.width, out.len())?;
        if let Some(&index) = rows.iter().find(|&&row| row >= self.rows) {
            return Err(ErrorKind::Index { what: "row", index, count: self.rows }.into());
        }
        let (isa, width) = (pool.isa(), self.width);
        let out = Disjoint::new(out);
        pool.run(rows.len().div_ceil(ROWS), |part, _| {
            for (i, &row) in rows.iter().enumerate().skip(part * ROWS).take(ROWS) {
                // SAFETY: each row of the output belongs to one part.
                self.row(isa, row, unsafe { out.range(i * width..(i + 1) * width) });
            }
        });
        Ok(())
    }

    /// One of the rows that there are.
    fn row(&self, isa: Isa, row: usize, out: &mut [f32]) {
        let own = |segment: &&super::Segment| (segment.first..segment.first + segment.rows).contains(&row);
        let Some(segment) = self.segments.iter().find(own) else {
            unreachable!("segments cover the outputs")
        };
        let (tile, lane) = ((row - segment.first) / LANES, (row - segment.first) % LANES);
        let tile = &segment.expert(0)[tile * segment.tile_bytes..][..segment.tile_bytes];
        match segment.format {
            Format::Affine(affine) => dispatch(isa, Coded { affine, tile, lane, out }),
            Format::Dense(number) => dense(number, tile, lane, out),
        }
    }
}

fn dense(number: Number, tile: &[u8], lane: usize, out: &mut [f32]) {
    for (input, weight) in out.iter_mut().enumerate() {
        *weight = number.read(tile, input * LANES + lane);
    }
}

/// One row of a tile of codes.
struct Coded<'a> {
    affine: Affine,
    tile: &'a [u8],
    lane: usize,
    out: &'a mut [f32],
}

impl Kernel for Coded<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { affine, tile, lane, out } = self;
        let blocks = tile.chunks_exact(affine.block_bytes());
        for (block, out) in blocks.zip(out.chunks_exact_mut(affine.group)) {
            let (scales, biases) = block[affine.code_bytes()..].split_at(affine.scale_bytes());
            let [scale, bias] = [scales, biases].map(|factors| affine.number.read(factors, lane));
            let (scale, bias) = (simd.splat(scale), simd.splat(bias));
            for (first, out) in (0..).step_by(LANES).zip(out.as_chunks_mut::<LANES>().0) {
                let mut codes = [0; LANES];
                for (i, code) in codes.iter_mut().enumerate() {
                    *code = affine.code(block, lane, first + i);
                }
                simd.store(out, simd.fma(scale, simd.load_u8(&codes), bias));
            }
        }
    }
}
