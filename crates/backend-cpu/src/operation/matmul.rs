//! Products of two tensors.
//!
//! ```text
//! c[i, j] = fma(a[i, k], b[k, j], c)        k ascending from c = 0, in f32
//! ```
//!
//! for each element alone: vectors hold sixteen columns `j`. Both operands are packed first, `a` as it is and
//! `b` in panels of sixteen columns, so that strides and dtypes matter nowhere else. Products with weights
//! that stay the same go through prepared weights instead, which are packed once.

use crate::device::{CpuDevice, no_memory};
use crate::layout::{Axes, Walk};
use crate::memory::Block;
use crate::number::{Number, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use tandem_contracts::tensor::{Result, Tensor, shape};

/// Extents of one product.
#[derive(Clone, Copy)]
struct Extents {
    m: usize,
    k: usize,
    n: usize,
}

impl Extents {
    fn panels(self) -> usize {
        self.n.div_ceil(LANES)
    }
}

pub(crate) fn matmul(device: &CpuDevice, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    device.own("matmul", &[a, b])?;
    let shape = shape::matmul(a, b)?;
    let (a, b) = (device.value("matmul", a)?, device.value("matmul", b)?);
    let batch = &shape[..shape.len() - 2];
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let k = a.layout.shape().last().copied().unwrap_or_default();
    let extents = Extents { m, k, n };
    let operands = [a, b].map(|x| Operand::new(x, batch));
    let walk = Walk::new(batch, [&operands[0].batch, &operands[1].batch]);
    let mut draft = device.fresh("matmul", a.dtype, &shape)?;
    if draft.layout.elements() == 0 {
        return Ok(device.finish(draft));
    }
    let mut space = Space::new(device, extents)?;
    let mut product = 0;
    walk.visit(0..walk.runs(), |[x, y], inner| {
        for i in 0..inner.count {
            operands[0].pack_rows(x + i * inner.strides[0], extents, &mut space.rows);
            operands[1].pack_panels(y + i * inner.strides[1], extents, &mut space.panels);
            multiply(device, extents, &space, &mut draft, product);
            product += 1;
        }
    });
    Ok(device.finish(draft))
}

/// Packed operands of one product.
struct Space {
    /// `f32 [m, k]`
    rows: Block,
    /// `f32 [panels, k, LANES]`
    panels: Block,
}

impl Space {
    fn new(device: &CpuDevice, extents: Extents) -> Result<Self> {
        let take = |count: usize| {
            let bytes = count * size_of::<f32>();
            device.memory.take(bytes).map_err(|error| no_memory("matmul", error))
        };
        Ok(Self { rows: take(extents.m * extents.k)?, panels: take(extents.panels() * LANES * extents.k)? })
    }
}

/// One operand: its matrices' strides, and those of the axes before, broadcast.
struct Operand<'a> {
    value: &'a Value,
    batch: Axes,
    row: usize,
    column: usize,
}

impl<'a> Operand<'a> {
    fn new(value: &'a Value, batch: &[usize]) -> Self {
        let rank = value.layout.shape().len();
        let strides = value.layout.strides();
        let outer = value.layout.without(rank - 1).0.without(rank - 2).0;
        Self { value, batch: outer.strides_for(batch), row: strides[rank - 2], column: strides[rank - 1] }
    }

    fn pack_rows(&self, start: usize, extents: Extents, rows: &mut Block) {
        with_real!(self.value.dtype, T => {
            let from = self.value.read::<T>().get(start..).unwrap_or_default();
            let rows = rows.of_mut::<f32>().chunks_exact_mut(extents.k.max(1));
            for (i, to) in rows.take(extents.m).enumerate() {
                let from = from.get(i * self.row..).unwrap_or_default();
                super::row::widen(from, self.column, to);
            }
        });
    }

    fn pack_panels(&self, start: usize, extents: Extents, panels: &mut Block) {
        with_real!(self.value.dtype, T => {
            let from = self.value.read::<T>().get(start..).unwrap_or_default();
            let panels = panels.of_mut::<f32>().chunks_exact_mut((LANES * extents.k).max(1));
            for (panel, to) in panels.take(extents.panels()).enumerate() {
                let first = panel * LANES;
                let columns = LANES.min(extents.n - first);
                for (k, to) in to.chunks_exact_mut(LANES).enumerate() {
                    let from = &from[k * self.row + first * self.column..];
                    super::row::widen(from, self.column, &mut to[..columns]);
                    to[columns..].fill(0.0);
                }
            }
        });
    }
}

/// Computes one product of packed operands into matrix `product` of the draft.
fn multiply(device: &CpuDevice, extents: Extents, space: &Space, draft: &mut Draft, product: usize) {
    let Extents { m, k, n } = extents;
    let isa = device.pool.isa();
    let (rows, panels) = (&space.rows.of::<f32>()[..m * k], space.panels.of::<f32>());
    with_real!(draft.dtype, T => {
        let to = Disjoint::new(&mut draft.elements::<T>()[product * m * n..(product + 1) * m * n]);
        device.spread(extents.panels(), m * k, |range| {
            for panel in range {
                let columns = panel * LANES..n.min((panel + 1) * LANES);
                let panel = &panels[panel * LANES * k..(panel + 1) * LANES * k];
                let write = |row: usize, lanes: &[f32; LANES]| {
                    // SAFETY: each panel has its own columns of each row.
                    let to = unsafe { to.range(row * n + columns.start..row * n + columns.end) };
                    to.iter_mut().zip(lanes).for_each(|(to, x)| *to = <T as Number>::from_f32(*x));
                };
                dispatch(isa, Panel { rows, panel, extents, write });
            }
        });
    });
}

/// All rows with one panel of columns.
struct Panel<'a, W> {
    rows: &'a [f32],
    panel: &'a [f32],
    extents: Extents,
    write: W,
}

/// Rows computed together, so that one load of the panel serves several and their chains overlap.
const TOGETHER: usize = 4;

impl<W: Fn(usize, &[f32; LANES])> Kernel for Panel<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Extents { m, k, .. } = self.extents;
        let mut row = 0;
        while row < m {
            let count = TOGETHER.min(m - row);
            // Rows past the last are computed as the last one again and not written.
            let rows: [&[f32]; TOGETHER] =
                std::array::from_fn(|i| &self.rows[(row + i.min(count - 1)) * k..][..k]);
            let mut sums = [simd.splat(0.0); TOGETHER];
            for (k, panel) in self.panel.as_chunks::<LANES>().0.iter().enumerate() {
                let panel = simd.load(panel);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = simd.fma(simd.splat(row[k]), panel, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate().take(count) {
                let mut lanes = [0.0; LANES];
                simd.store(&mut lanes, sum);
                (self.write)(row + i, &lanes);
            }
            row += count;
        }
    }
}
