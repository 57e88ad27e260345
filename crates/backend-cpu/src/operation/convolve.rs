//! Short causal convolution of packed rows, each after its own tail.
//!
//! In f32 for each channel: the fused chain over ascending taps from 0, then the bias, then `y * sigmoid(y)`; rounded
//! once. A token's bits depend on its own row's last tokens alone.

use crate::device::{CpuDevice, no_memory};
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};
use crate::value::{Draft, Value};
use std::ops::Range;
use tandem_contracts::tensor::{Convolution, Recurred, Result, StateSpan, Tensor, shape};

pub(crate) fn convolve(
    device: &CpuDevice,
    x: &Tensor,
    rows: &[StateSpan<'_>],
    how: &Convolution<'_>,
) -> Result<Recurred> {
    device.own("convolve", &[x, how.weight])?;
    how.bias.map_or(Ok(()), |bias| device.own("convolve", &[bias]))?;
    rows.iter().try_for_each(|row| device.own("convolve", &[row.state]))?;
    let result = shape::convolve(x, rows, how)?;
    let contiguous = |x: &Tensor| device.contiguous("convolve", device.value("convolve", x)?);
    let (x, bias) = (contiguous(x)?, how.bias.map(contiguous).transpose()?);
    let tails = rows.iter().map(|row| contiguous(row.state)).collect::<Result<Vec<_>>>()?;
    let weight = device.value("convolve", how.weight)?;
    let mut states = Vec::with_capacity(rows.len());
    for tail in &tails {
        states.push(device.fresh("convolve", x.dtype, tail.layout.shape())?);
    }
    let mut outputs = device.fresh("convolve", x.dtype, &result)?;
    with_real!(x.dtype, T => {
        let call = Call::<T> {
            x: x.slice().unwrap_or_default(),
            tails: tails.iter().map(|tail| tail.slice().unwrap_or_default()).collect(),
            rows: rows.iter().map(|row| row.tokens.clone()).collect(),
            silu: how.silu,
            channels: result[1],
        };
        for (row, state) in states.iter_mut().enumerate() {
            call.keep(row, state.elements::<T>());
        }
        call.run(device, (weight, bias.as_ref()), &mut outputs)
    })?;
    Ok(Recurred {
        outputs: device.finish(outputs),
        states: states.into_iter().map(|state| device.finish(state)).collect(),
    })
}

/// Everything that the tokens of a call share.
struct Call<'a, T> {
    /// `[tokens, channels]`
    x: &'a [T],
    /// Of each row `[taps - 1, channels]`.
    tails: Vec<&'a [T]>,
    rows: Vec<Range<usize>>,
    silu: bool,
    channels: usize,
}

impl<T: Real> Call<'_, T> {
    /// The input at a place of a row's tail and tokens, `[channels]`.
    #[inline(always)]
    fn input(&self, row: usize, place: usize) -> &[T] {
        let (tail, channels) = (self.tails[row], self.channels);
        match (place * channels).checked_sub(tail.len()) {
            None => &tail[place * channels..][..channels],
            Some(after) => &self.x[self.rows[row].start * channels + after..][..channels],
        }
    }

    /// The tail that a row leaves.
    fn keep(&self, row: usize, state: &mut [T]) {
        let tokens = self.rows[row].len();
        for (place, state) in state.chunks_exact_mut(self.channels.max(1)).enumerate() {
            state.copy_from_slice(self.input(row, tokens + place));
        }
    }

    fn run(
        &self,
        device: &CpuDevice,
        (weight, bias): (&Value, Option<&Value>),
        outputs: &mut Draft,
    ) -> Result<()> {
        let ([tokens, channels], taps) =
            ([0, 1].map(|axis| outputs.layout.shape()[axis]), weight.layout.shape()[1]);
        // Taps beside each other for all channels, then the bias.
        let space = device.memory.take((taps + 1) * channels * size_of::<f32>());
        let mut space = space.map_err(|error| no_memory("convolve", error))?;
        let (turned, offsets) = space.of_mut::<f32>()[..(taps + 1) * channels].split_at_mut(taps * channels);
        let (from, strides) = (weight.read::<T>(), weight.layout.strides());
        for (index, turned) in turned.iter_mut().enumerate() {
            let (tap, channel) = (index / channels, index % channels);
            *turned = from[channel * strides[0] + tap * strides[1]].to_f32();
        }
        let bias = bias.and_then(Value::slice::<T>);
        for (to, from) in offsets.iter_mut().zip(bias.unwrap_or_default()) {
            *to = from.to_f32();
        }
        let (weight, bias) = (&*turned, bias.map(|_| &*offsets));
        let (isa, out) = (device.pool.isa(), Disjoint::new(outputs.elements::<T>()));
        device.spread(tokens, taps * channels, |range| {
            for token in range {
                let row = self.rows.partition_point(|row| row.end <= token);
                // SAFETY: tokens do not overlap, and each belongs to one part.
                let out = unsafe { out.range(token * channels..(token + 1) * channels) };
                let place = token - self.rows[row].start;
                dispatch(isa, Place { call: self, row, place, weight, bias, out });
            }
        });
        Ok(())
    }
}

/// All channels of one token.
struct Place<'a, T> {
    call: &'a Call<'a, T>,
    row: usize,
    /// Of the first tap, in the row's tail and tokens.
    place: usize,
    /// `[taps, channels]`
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [T],
}

impl<T: Real> Kernel for Place<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.out.len();
        for (block, out) in self.out.chunks_mut(LANES).enumerate() {
            let range = block * LANES..block * LANES + out.len();
            let mut sum = simd.splat(0.0);
            for (tap, weight) in self.weight.chunks_exact(channels).enumerate() {
                let x = &self.call.input(self.row, self.place + tap)[range.clone()];
                let weight = simd.load_part(&weight[range.clone()], 0.0);
                sum = simd.fma(T::load_part(simd, x), weight, sum);
            }
            if let Some(bias) = self.bias {
                sum = simd.add(sum, simd.load_part(&bias[range], 0.0));
            }
            if self.call.silu {
                sum = simd.mul(sum, math::sigmoid(simd, sum));
            }
            T::store_part(simd, out, sum);
        }
    }
}
