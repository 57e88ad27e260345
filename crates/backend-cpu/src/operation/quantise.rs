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
//! both steps of `scale * code + bias` are rounded to that dtype.

pub(crate) mod code;

use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
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
    device.spread(scales.len(), 4 * group, |range| {
        for index in range {
            // SAFETY: groups do not overlap, and each belongs to one part.
            let (codes, scale, bias) = unsafe {
                (
                    codes.range(index * words..(index + 1) * words),
                    scales.range(index..index + 1),
                    biases.range(index..index + 1),
                )
            };
            let affine = Line::of(&from[index * group..(index + 1) * group], format.bits);
            affine.codes(&from[index * group..(index + 1) * group], codes);
            (scale[0], bias[0]) = (T::from_f32(affine.scale), T::from_f32(affine.bias));
        }
    });
}

/// What stands for a group: `scale * code + bias`.
struct Line {
    bits: u8,
    scale: f32,
    bias: f32,
}

impl Line {
    fn of<T: Real>(group: &[T], bits: u8) -> Self {
        const SMALLEST: f32 = 1e-7;
        let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
        for x in group.iter().map(|x| x.to_f32()) {
            // Written so that NaN is passed over, as MLX does.
            least = if x < least { x } else { least };
            most = if x > most { x } else { most };
        }
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

    fn codes<T: Real>(&self, group: &[T], words: &mut [u32]) {
        let largest = Self::largest(self.bits);
        let codes = group.iter().map(|x| {
            let code = ((x.to_f32() - self.bias) / self.scale).round_ties_even();
            let code = if code > 0.0 { code } else { 0.0 };
            if code < largest { code as u32 } else { largest as u32 }
        });
        code::pack(self.bits, codes, words);
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
    device.spread(scales.len(), 2 * group, |range| {
        let mut unpacked = [0u8; 128];
        let unpacked = &mut unpacked[..group];
        for index in range {
            // SAFETY: groups do not overlap, and each belongs to one part.
            let to = unsafe { to.range(index * group..(index + 1) * group) };
            code::unpack(format.bits, &codes[index * words..], unpacked);
            code::apply(unpacked, scales[index], biases[index], to);
        }
    });
}
