//! Queries in f32, scaled, each padded with zeros to whole vectors.

use crate::device::{CpuDevice, no_memory};
use crate::memory::Block;
use crate::number::with_real;
use crate::operation::row::widen;
use crate::pool::Disjoint;
use crate::simd::LANES;
use tandem_contracts::tensor::{Result, Tensor};

/// `f32 [tokens, heads, padded width]`.
#[derive(Debug)]
pub(super) struct Queries {
    block: Block,
    heads: usize,
    padded: usize,
}

impl Queries {
    pub(super) fn new(device: &CpuDevice, q: &Tensor, scale: f32) -> Result<Self> {
        let source = device.value("attend", q)?;
        let &[tokens, heads, width] = source.layout.shape() else { unreachable!("the shape was checked") };
        let padded = width.next_multiple_of(LANES);
        let bytes = tokens * heads * padded * size_of::<f32>();
        let mut block = device.memory.take(bytes).map_err(|error| no_memory("attend", error))?;
        let strides = source.layout.strides();
        let cells = Disjoint::new(block.of_mut::<f32>());
        with_real!(source.dtype, T => {
            let from = source.read::<T>();
            device.spread(tokens * heads, padded, |range| {
                for vector in range {
                    // SAFETY: vectors do not overlap, and each belongs to one part.
                    let to = unsafe { cells.range(vector * padded..(vector + 1) * padded) };
                    let start = vector / heads * strides[0] + vector % heads * strides[1];
                    let (to, rest) = to.split_at_mut(width);
                    widen(&from[start..], strides[2], to);
                    to.iter_mut().for_each(|to| *to *= scale);
                    rest.fill(0.0);
                }
            });
        });
        Ok(Self { block, heads, padded })
    }

    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// One query, `[padded width]`.
    #[inline]
    pub(super) fn vector(&self, token: usize, head: usize) -> &[f32] {
        &self.block.of()[(token * self.heads + head) * self.padded..][..self.padded]
    }
}
