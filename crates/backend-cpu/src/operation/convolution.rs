//! Depthwise correlation: each channel with its own taps, summed in ascending order of taps, in f32.

use crate::device::{CpuDevice, no_memory};
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use tandem_contracts::tensor::{Result, Tensor, shape};

pub(crate) fn conv1d(device: &CpuDevice, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    device.own("conv1d", &[x, weight])?;
    let result = shape::conv1d(x, weight)?;
    let x = device.contiguous("conv1d", device.value("conv1d", x)?)?;
    let weight = device.value("conv1d", weight)?;
    let mut draft = device.fresh("conv1d", x.dtype, &result)?;
    with_real!(x.dtype, T => correlate::<T>(device, &x, weight, &mut draft))?;
    Ok(device.finish(draft))
}

fn correlate<T: Real>(device: &CpuDevice, x: &Value, weight: &Value, draft: &mut Draft) -> Result<()> {
    let [rows, positions, channels] = [0, 1, 2].map(|axis| draft.layout.shape()[axis]);
    let (length, taps) = (x.layout.shape()[1], weight.layout.shape()[1]);
    // Taps beside each other for all channels.
    let space = device.memory.take(taps * channels * size_of::<f32>());
    let mut space = space.map_err(|error| no_memory("conv1d", error))?;
    let turned = space.of_mut::<f32>();
    let (from, strides) = (weight.read::<T>(), weight.layout.strides());
    for (index, turned) in turned.iter_mut().enumerate() {
        let (tap, channel) = (index / channels, index % channels);
        *turned = from[channel * strides[0] + tap * strides[1]].to_f32();
    }
    let turned = &*turned;
    let from = x.slice::<T>().unwrap_or_default();
    let (isa, to) = (device.pool.isa(), Disjoint::new(draft.elements::<T>()));
    device.spread(rows * positions, taps * channels, |range| {
        for place in range {
            let first = (place / positions * length + place % positions) * channels;
            let x = &from[first..first + taps * channels];
            // SAFETY: places do not overlap, and each belongs to one part.
            let out = unsafe { to.range(place * channels..(place + 1) * channels) };
            dispatch(isa, Place { x, weight: turned, out });
        }
    });
    Ok(())
}

/// All channels of one position.
struct Place<'a, T> {
    /// `[taps, channels]`
    x: &'a [T],
    /// `[taps, channels]`
    weight: &'a [f32],
    out: &'a mut [T],
}

impl<T: Real> Kernel for Place<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.out.len();
        for (block, out) in self.out.chunks_mut(LANES).enumerate() {
            let mut sum = simd.splat(0.0);
            let taps = self.x.chunks_exact(channels).zip(self.weight.chunks_exact(channels));
            for (x, weight) in taps {
                let range = block * LANES..block * LANES + out.len();
                let x = T::load_part(simd, &x[range.clone()]);
                sum = simd.fma(x, simd.load_part(&weight[range], 0.0), sum);
            }
            T::store_part(simd, out, sum);
        }
    }
}
