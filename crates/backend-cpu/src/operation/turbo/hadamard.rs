//! The orthonormal Walsh-Hadamard transform of heads.

use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, Simd, dispatch};
use tandem_contracts::tensor::fused::hadamard_norm;
use tandem_contracts::tensor::{Result, Tensor, shape};

pub(crate) fn hadamard(device: &CpuDevice, x: &Tensor) -> Result<Tensor> {
    let source = device.value("hadamard", x)?;
    let width = shape::hadamard(x)?;
    let source = device.contiguous("hadamard", source)?;
    let mut draft = device.fresh("hadamard", source.dtype, x.shape())?;
    let isa = device.pool.isa();
    with_real!(source.dtype, T => {
        let from = source.slice::<T>().unwrap_or_default();
        let to = Disjoint::new(draft.elements::<T>());
        device.spread(from.len() / width, width * (width.ilog2() as usize + 1), |range| {
            let range = range.start * width..range.end * width;
            // SAFETY: heads belong to one part each.
            let to = unsafe { to.range(range.clone()) };
            dispatch(isa, Heads { from: &from[range], width, to });
        });
    });
    Ok(device.finish(draft))
}

/// Heads that follow each other.
struct Heads<'a, T> {
    from: &'a [T],
    width: usize,
    to: &'a mut [T],
}

impl<T: Real> Kernel for Heads<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut head = vec![0.0; self.width];
        for (from, to) in self.from.chunks_exact(self.width).zip(self.to.chunks_exact_mut(self.width)) {
            for (head, from) in head.iter_mut().zip(from) {
                *head = from.to_f32();
            }
            transform(&mut head);
            for (to, head) in to.iter_mut().zip(&head) {
                *to = T::from_f32(*head);
            }
        }
    }
}

/// Transforms one head, as wide as a power of two. To be inlined into kernels, whose instructions it then uses.
#[inline(always)]
pub(crate) fn transform(head: &mut [f32]) {
    let mut stride = 1;
    while stride < head.len() {
        for pair in head.chunks_exact_mut(2 * stride) {
            let (a, b) = pair.split_at_mut(stride);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
    let norm = hadamard_norm(head.len());
    for x in head {
        *x *= norm;
    }
}
