//! Affine codes, as MLX's `quantize` gives them bit for bit.
//!
//! For each group, in f32, with `n` the largest code:
//!
//! ```text
//! scale = max((max - min) / n, 1e-7), negated unless |min| > |max|
//! edge  = min if |min| > |max|, else max
//! q0    = round(edge / scale)
//! if q0 is not 0:  scale = edge / q0, bias = edge;   else bias = 0
//! code  = clamp(round((x - bias) / scale), 0, n)
//! ```
//!
//! Rounding is to nearest, halves to even. Scale and bias are then rounded to the dtype of `x`. Backwards,
//! `fma(scale, code, bias)` is rounded to that dtype.

pub(crate) mod code;

use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use tandem_contracts::tensor::{Affine, Dtype, Quantized, Result, Tensor, shape};

pub(crate) fn quantize(device: &CpuDevice, x: &Tensor, format: Affine) -> Result<Quantized> {
    device.own("quantize", &[x])?;
    let (codes, scales) = shape::quantize(x, format)?;
    let x = device.contiguous("quantize", device.value("quantize", x)?)?;
    let mut codes = device.fresh("quantize", Dtype::U32, &codes)?;
    let mut biases = device.fresh("quantize", x.dtype, &scales)?;
    let mut scales = device.fresh("quantize", x.dtype, &scales)?;
    with_real!(x.dtype, T => {
        let from = x.slice::<T>().unwrap_or_default();
        groups(device, format, from, [&mut codes, &mut scales, &mut biases]);
    });
    let [codes, scales, biases] = [codes, scales, biases].map(|draft| device.finish(draft));
    Ok(Quantized { codes, scales, biases, format })
}

fn groups<T: Real>(device: &CpuDevice, format: Affine, from: &[T], planes: [&mut Draft; 3]) {
    let (group, words) = (usize::from(format.group), format.words(usize::from(format.group)));
    let [codes, scales, biases] = planes;
    let (codes, scales, biases) = (
        Disjoint::new(codes.elements::<u32>()),
        Disjoint::new(scales.elements::<T>()),
        Disjoint::new(biases.elements::<T>()),
    );
    let isa = device.pool.isa();
    device.spread(scales.len(), 4 * group, |range| {
        let from = &from[range.start * group..range.end * group];
        // SAFETY: groups do not overlap, and each belongs to one part.
        let (codes, scales, biases) = unsafe {
            let codes = codes.range(range.start * words..range.end * words);
            (codes, scales.range(range.clone()), biases.range(range))
        };
        dispatch(isa, Encode { format, from, codes, scales, biases });
    });
}

/// Encodes groups that follow each other.
struct Encode<'a, T> {
    format: Affine,
    from: &'a [T],
    codes: &'a mut [u32],
    scales: &'a mut [T],
    biases: &'a mut [T],
}

impl<T: Real> Kernel for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (group, bits) = (usize::from(self.format.group), self.format.bits);
        let words = self.format.words(group);
        let groups = self.from.chunks_exact(group).zip(self.codes.chunks_exact_mut(words));
        for (index, (from, codes)) in groups.enumerate() {
            let from = from.as_chunks::<LANES>().0;
            let line = Line::of(simd, from, bits);
            line.codes(simd, from, codes);
            (self.scales[index], self.biases[index]) = (T::from_f32(line.scale), T::from_f32(line.bias));
        }
    }
}

/// What stands for a group: `scale * code + bias`.
struct Line {
    bits: u8,
    scale: f32,
    bias: f32,
}

impl Line {
    #[inline(always)]
    fn of<S: Simd, T: Real>(simd: S, group: &[[T; LANES]], bits: u8) -> Self {
        const SMALLEST: f32 = 1e-7;
        // Of the negative elements the largest is the least.
        let none = simd.splat(f32::NEG_INFINITY);
        let (mut least, mut most) = (none, none);
        for x in group {
            let x = T::load(simd, x);
            // In this order NaN is passed over, as MLX does.
            least = simd.max(simd.sub(simd.splat(0.0), x), least);
            most = simd.max(x, most);
        }
        let (least, most) = (-simd.largest(least), simd.largest(most));
        let below = least.abs() > most.abs();
        let size = (most - least) / Self::largest(bits);
        let size = if size < SMALLEST { SMALLEST } else { size };
        let (scale, edge) = if below { (size, least) } else { (-size, most) };
        let steps = (edge / scale).round_ties_even();
        if steps == 0.0 {
            Self { bits, scale, bias: 0.0 }
        } else {
            Self { bits, scale: edge / steps, bias: edge }
        }
    }

    fn largest(bits: u8) -> f32 {
        f32::from((1u16 << bits) - 1)
    }

    #[inline(always)]
    fn codes<S: Simd, T: Real>(&self, simd: S, group: &[[T; LANES]], words: &mut [u32]) {
        let (scale, bias) = (simd.splat(self.scale), simd.splat(self.bias));
        let (zero, largest) = (simd.splat(0.0), simd.splat(Self::largest(self.bits)));
        let mut codes = [0.0; 128];
        let mut whole = [0; 128];
        for (x, codes) in group.iter().zip(codes.as_chunks_mut::<LANES>().0) {
            let code = simd.round(simd.div(simd.sub(T::load(simd, x), bias), scale));
            // NaN becomes 0.
            simd.store(codes, simd.min(simd.max(code, zero), largest));
        }
        let whole = &mut whole[..group.len() * LANES];
        whole.iter_mut().zip(&codes).for_each(|(whole, &code)| *whole = code as u32);
        code::pack(self.bits, whole, words);
    }
}

pub(crate) fn dequantize(device: &CpuDevice, q: &Quantized) -> Result<Tensor> {
    device.own("dequantize", &[&q.codes, &q.scales, &q.biases])?;
    let shape = shape::dequantize(q)?;
    let planes = [&q.codes, &q.scales, &q.biases].map(|plane| {
        device.value("dequantize", plane).and_then(|plane| device.contiguous("dequantize", plane))
    });
    let [codes, scales, biases] = planes;
    let (codes, scales, biases) = (codes?, scales?, biases?);
    let mut draft = device.fresh("dequantize", scales.dtype, &shape)?;
    with_real!(scales.dtype, T => values::<T>(device, q.format, [&codes, &scales, &biases], &mut draft));
    Ok(device.finish(draft))
}

fn values<T: Real>(device: &CpuDevice, format: Affine, planes: [&Value; 3], draft: &mut Draft) {
    let (group, words) = (usize::from(format.group), format.words(usize::from(format.group)));
    let [codes, scales, biases] = planes;
    let codes = codes.slice::<u32>().unwrap_or_default();
    let (scales, biases) = (scales.slice::<T>().unwrap_or_default(), biases.slice::<T>().unwrap_or_default());
    let to = Disjoint::new(draft.elements::<T>());
    let isa = device.pool.isa();
    device.spread(scales.len(), 2 * group, |range| {
        // SAFETY: groups do not overlap, and each belongs to one part.
        let to = unsafe { to.range(range.start * group..range.end * group) };
        let codes = &codes[range.start * words..range.end * words];
        let (scales, biases) = (&scales[range.clone()], &biases[range]);
        dispatch(isa, Decode { format, codes, scales, biases, to });
    });
}

/// Decodes groups that follow each other.
struct Decode<'a, T> {
    format: Affine,
    codes: &'a [u32],
    scales: &'a [T],
    biases: &'a [T],
    to: &'a mut [T],
}

impl<T: Real> Kernel for Decode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let group = usize::from(self.format.group);
        let words = self.format.words(group);
        let mut unpacked = [0u8; 128];
        for (index, to) in self.to.chunks_exact_mut(group).enumerate() {
            code::unpack(self.format.bits, &self.codes[index * words..], &mut unpacked[..group]);
            let (scale, bias) =
                (simd.splat(self.scales[index].to_f32()), simd.splat(self.biases[index].to_f32()));
            for (to, codes) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(unpacked.as_chunks::<LANES>().0) {
                T::store(simd, to, simd.fma(scale, simd.load_u8(codes), bias));
            }
        }
    }
}
