//! Whether every element of each token is finite.

use crate::device::CpuDevice;
use crate::number::{Real, Truth, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::Value;
use tandem_contracts::tensor::{Dtype, Result, Tensor, shape};

pub(crate) fn finite(device: &CpuDevice, before: Option<Tensor>, xs: &[&Tensor]) -> Result<Tensor> {
    device.own("finite", xs)?;
    let tokens = shape::finite(before.as_ref(), xs)?;
    let mut draft = match before {
        Some(before) => device.take_contiguous("finite", before)?,
        None => {
            let mut draft = device.fresh("finite", Dtype::Bool, &[tokens])?;
            draft.elements::<Truth>().fill(Truth::from(true));
            draft
        }
    };
    for x in xs {
        let source = device.contiguous("finite", device.value("finite", x)?)?;
        if x.elements() > 0 {
            mark(device, &source, draft.elements::<Truth>());
        }
    }
    Ok(device.finish(draft))
}

/// Takes the flags of tokens away of which an element is not finite.
fn mark(device: &CpuDevice, source: &Value, flags: &mut [Truth]) {
    let width = source.layout.elements() / flags.len();
    let (isa, flags) = (device.pool.isa(), Disjoint::new(flags));
    with_real!(source.dtype, T => {
        let from = source.slice::<T>().unwrap_or_default();
        device.spread(flags.len(), width, |range| {
            // SAFETY: tokens belong to one part each.
            let to = unsafe { flags.range(range.clone()) };
            dispatch(isa, Tokens { from: &from[range.start * width..range.end * width], width, to });
        });
    });
}

/// Tokens that follow each other.
struct Tokens<'a, T> {
    from: &'a [T],
    width: usize,
    to: &'a mut [Truth],
}

impl<T: Real> Kernel for Tokens<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, to) in self.to.iter_mut().enumerate() {
            let token = &self.from[index * self.width..(index + 1) * self.width];
            let (vectors, rest) = token.as_chunks::<LANES>();
            // An infinity times 0 is NaN, and NaN stays.
            let zero = simd.splat(0.0);
            let mut strange = simd.mul(T::load_part(simd, rest), zero);
            for vector in vectors {
                strange = simd.fma(T::load(simd, vector), zero, strange);
            }
            if simd.any(simd.is_nan(strange)) {
                *to = Truth::from(false);
            }
        }
    }
}
