//! Affine quantisation: codes as MLX gives them, and their values.

use super::{
    Outcome,
    affine::{Codes, formats},
    behaviours,
    expect::{holds, near, same},
    golden::Golden,
    host::Host,
    tolerance::{roundings, unit},
};
use crate::tensor::{Affine, Device, Dtype};

behaviours!("quantisation":
    quantize_equals_mlx,
    quantize_reads_strided_operands,
    quantize_errs_by_half_a_step,
    dequantize_scales_codes,
    quantisation_of_nothing,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Codes, scales and biases bit for bit, every format in f32 and every width in 16-bit floats: ordinary groups,
/// constant ones, zeros, one-sided ranges, very small and very large values.
pub fn quantize_equals_mlx(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let x = Golden::QUANTIZE.get(&format!("{dtype:?}.x"))?.upload(device)?;
        for format in formats().into_iter().filter(|format| dtype == Dtype::F32 || format.group == 64) {
            let q = device.quantize(&x, format)?;
            holds("the format is kept", q.format == format)?;
            for (plane, got) in [("codes", &q.codes), ("scales", &q.scales), ("biases", &q.biases)] {
                let name = format!("{dtype:?}.{}.{}.{plane}", format.bits, format.group);
                same(&name, device, got, &Golden::QUANTIZE.get(&name)?)?;
            }
        }
    }
    Ok(())
}

/// A strided operand gives the codes of its dense copy; leading axes are kept.
pub fn quantize_reads_strided_operands(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let host = Host::sample(dtype, &[2, 3, 64], 70);
        let format = Affine { bits: 6, group: 32 };
        let dense = device.quantize(&host.upload(device)?, format)?;
        holds("codes", dense.codes.shape() == [2, 3, 12] && dense.codes.dtype() == Dtype::U32)?;
        holds("scales", dense.scales.shape() == [2, 3, 2] && dense.scales.dtype() == dtype)?;
        holds("biases", dense.biases.shape() == [2, 3, 2] && dense.biases.dtype() == dtype)?;
        for (form, x) in host.forms(device)? {
            let q = device.quantize(&x, format)?;
            for (a, b) in [(&q.codes, &dense.codes), (&q.scales, &dense.scales), (&q.biases, &dense.biases)] {
                same(format!("{dtype:?}, {form}"), device, a, &Host::download(device, b)?)?;
            }
        }
    }
    Ok(())
}

/// Values come back within half a step of their group, and a little where the stored scale and bias are rounded.
///
/// The scale may be stretched by up to 3/2 so that the end of the range falls on a code, and values at the other
/// end are clamped to it; both are bounded by one step of the range.
pub fn quantize_errs_by_half_a_step(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let host = Host::sample(dtype, &[3, 128], 71);
        for format in formats() {
            let q = device.quantize(&host.upload(device)?, format)?;
            let values = device.dequantize(&q)?;
            let group = usize::from(format.group);
            let bound = |i: usize| {
                let group = &host.values[i / group * group..(i / group + 1) * group];
                let range = group.iter().fold(f64::MIN, |a, &b| a.max(b))
                    - group.iter().fold(f64::MAX, |a, &b| a.min(b));
                let codes = 2f64.powi(format.bits.into()) - 1.0;
                // Rounded scale and bias each move a value by a rounding of up to the whole range.
                range / codes + 4.0 * unit(dtype) * 8.0
            };
            near(format!("{dtype:?} {format:?}"), device, &values, &host, bound)?;
        }
    }
    Ok(())
}

/// `scale * code + bias` for each format, in the dtype of the scales, over dense and strided planes: exactly as stated
/// where the device is invariant, else within two roundings, of the product and of the sum.
pub fn dequantize_scales_codes(device: &Device) -> Outcome {
    for format in formats() {
        for dtype in FLOATS {
            let planes = Codes::sample(format, dtype, &[3, 128], 72);
            let (expected, magnitudes) = (planes.rounded(), planes.magnitudes());
            let roundoff = if device.traits().batch_invariant { 0.0 } else { 3.0 };
            let bound = |i: usize| roundings(dtype, roundoff, magnitudes.values[i]);
            for (form, q) in planes.forms(device)? {
                near(
                    format!("{format:?} {dtype:?}, {form}"),
                    device,
                    &device.dequantize(&q)?,
                    &expected,
                    bound,
                )?;
            }
        }
    }
    let planes = Codes::sample(Affine { bits: 3, group: 32 }, Dtype::F32, &[2, 3, 2, 64], 73);
    let (expected, magnitudes) = (planes.values(), planes.magnitudes());
    let bound = |i: usize| roundings(Dtype::F32, 2.0, magnitudes.values[i]);
    near("four axes", device, &device.dequantize(&planes.upload(device)?)?, &expected, bound)
}

/// No rows, and no groups.
pub fn quantisation_of_nothing(device: &Device) -> Outcome {
    let format = Affine { bits: 4, group: 64 };
    for (shape, words, groups) in [([0, 64], [0, 8], [0, 1]), ([2, 0], [2, 0], [2, 0])] {
        let x = Host::sample(Dtype::F32, &shape, 74);
        let q = device.quantize(&x.upload(device)?, format)?;
        same("codes", device, &q.codes, &Host::raw(Dtype::U32, &words, vec![]))?;
        same("scales", device, &q.scales, &Host::raw(Dtype::F32, &groups, vec![]))?;
        same("values", device, &device.dequantize(&q)?, &x)?;
    }
    Ok(())
}
