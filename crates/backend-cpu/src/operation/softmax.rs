//! Softmax along an axis.
//!
//! ```text
//! m = max x        e = exp(x - m)        y = e * (1 / sum e)
//! ```
//!
//! in f32, with the sum in the order of [`fold`]: one arithmetic for each row, whatever stands beside it.

use super::row::{Rows, widen};
use crate::device::CpuDevice;
use crate::number::{Number, with_real};
use crate::pool::Disjoint;
use crate::simd::fold::{self, Plain, Sums};
use crate::simd::{Kernel, LANES, Simd, dispatch, math};
use tandem_contracts::tensor::{Result, Tensor, shape};

pub(crate) fn softmax(device: &CpuDevice, x: &Tensor, axis: usize) -> Result<Tensor> {
    let source = device.value("softmax", x)?;
    shape::along("softmax", x, axis, true)?;
    let rows = Rows::new(source, axis, x.shape());
    let mut draft = device.fresh("softmax", source.dtype, x.shape())?;
    let isa = device.pool.isa();
    with_real!(source.dtype, T => {
        let from = source.read::<T>();
        let to = Disjoint::new(draft.elements::<T>());
        rows.each(&device.pool, 4 * rows.extent, |row, scratch| {
            let own = scratch.lend::<f32>(rows.extent);
            widen(&from[row.from..], rows.steps[0], own);
            dispatch(isa, InPlace { row: own });
            if rows.steps[1] == 1 {
                // SAFETY: each element of the result belongs to one row.
                let to = unsafe { to.range(row.to..row.to + rows.extent) };
                to.iter_mut().zip(own).for_each(|(to, x)| *to = Number::from_f32(*x));
                return;
            }
            for (k, x) in own.iter().enumerate() {
                let place = row.to + k * rows.steps[1];
                // SAFETY: as above.
                unsafe { to.range(place..place + 1)[0] = Number::from_f32(*x) };
            }
        });
    });
    Ok(device.finish(draft))
}

/// Replaces a row by its softmax.
struct InPlace<'a> {
    row: &'a mut [f32],
}

impl Kernel for InPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let most = simd.splat(fold::largest(simd, self.row));
        let mut sums = Sums::new(simd);
        let (vectors, rest) = self.row.as_chunks_mut::<LANES>();
        let count = vectors.len();
        for (index, vector) in vectors.iter_mut().enumerate() {
            let power = math::exp(simd, simd.sub(simd.load(vector), most));
            simd.store(vector, power);
            sums.take(simd, index, &Plain, power);
        }
        if !rest.is_empty() {
            let power = math::exp(simd, simd.sub(simd.load_part(rest, 0.0), most));
            simd.store_part(rest, power);
            sums.take(simd, count, &Plain, simd.load_part(rest, 0.0));
        }
        let share = simd.splat(1.0 / sums.total(simd));
        let (vectors, rest) = self.row.as_chunks_mut::<LANES>();
        for vector in vectors {
            let x = simd.load(vector);
            simd.store(vector, simd.mul(x, share));
        }
        let x = simd.load_part(rest, 0.0);
        simd.store_part(rest, simd.mul(x, share));
    }
}
