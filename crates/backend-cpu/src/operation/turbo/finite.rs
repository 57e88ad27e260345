//! Whether all elements of each head are finite.

use crate::device::CpuDevice;
use crate::number::{Real, Truth, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use tandem_contracts::tensor::{Dtype, Result, Tensor, shape};

pub(crate) fn finite(device: &CpuDevice, x: &Tensor) -> Result<Tensor> {
    let source = device.value("finite", x)?;
    let shape = shape::finite(x)?;
    let source = device.contiguous("finite", source)?;
    let mut draft = device.fresh("finite", Dtype::Bool, &shape)?;
    let width = x.shape()[shape.len()];
    let (isa, to) = (device.pool.isa(), Disjoint::new(draft.elements::<Truth>()));
    with_real!(source.dtype, T => {
        let from = source.slice::<T>().unwrap_or_default();
        device.spread(to.len(), width, |range| {
            // SAFETY: heads belong to one part each.
            let to = unsafe { to.range(range.clone()) };
            dispatch(isa, Heads { from: &from[range.start * width..range.end * width], width, to });
        });
    });
    Ok(device.finish(draft))
}

/// Heads that follow each other.
struct Heads<'a, T> {
    from: &'a [T],
    width: usize,
    to: &'a mut [Truth],
}

impl<T: Real> Kernel for Heads<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, to) in self.to.iter_mut().enumerate() {
            let head = &self.from[index * self.width..(index + 1) * self.width];
            let (vectors, rest) = head.as_chunks::<LANES>();
            let mut all = rest.is_empty() || is_finite(simd, T::load_part(simd, rest));
            for vector in vectors {
                all &= is_finite(simd, T::load(simd, vector));
            }
            *to = Truth::from(all);
        }
    }
}

/// An infinity less itself is NaN.
#[inline(always)]
fn is_finite<S: Simd>(simd: S, x: S::Lanes) -> bool {
    !simd.any(simd.is_nan(simd.sub(x, x)))
}
