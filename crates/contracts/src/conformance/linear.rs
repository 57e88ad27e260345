//! Products with prepared weights.
//!
//! `Exact` is held to the exact product of the dequantised weight, with the bound of an f32 accumulation; `Fast` to
//! the error that int8 activations may make: with one scale for a row or less, `max|x| / 127`, each activation
//! errs by up to half of it, so an output by up to `max|x| / 254` times the sum of the weights' magnitudes.

use super::{
    Outcome,
    affine::{Codes, formats},
    behaviours,
    expect::{holds, near, same},
    golden::Golden,
    host::Host,
    indexing::refused_or,
    tolerance::{accumulated, roundings, unit},
};
use crate::tensor::{Affine, Device, Dtype, Linear, Precision, Weight};

behaviours!("linear":
    prepared_weights_describe_themselves,
    dense_weights,
    affine_weights,
    many_tokens,
    affine_equals_mlx,
    joined_parts_of_mixed_form,
    prepared_from_strided_weights,
    no_tokens,
    gathered_experts,
    embedded_rows,
    wild_ids_are_refused_or_clamped,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// A weight on the host: what its product should be, and how exactly.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// `[outputs, inputs]`, exact.
    values: Host,
    /// What roundings of a weight's dequantisation are relative to.
    magnitudes: Host,
    /// Unit roundoff of those roundings: that of the scales, which a device may round dequantised values to.
    roundoff: f64,
}

impl Matrix {
    fn dense(weight: &Host) -> Self {
        Self { values: weight.clone(), magnitudes: weight.map(f64::abs), roundoff: 0.0 }
    }

    pub(super) fn affine(weight: &Codes) -> Self {
        // Two roundings: of the product and of the sum.
        Self {
            values: weight.values(),
            magnitudes: weight.magnitudes(),
            roundoff: 2.0 * unit(weight.scales.dtype),
        }
    }

    /// Parts under each other.
    fn join(parts: &[Self]) -> Self {
        let stack = |plane: fn(&Self) -> &Host| {
            let values: Vec<f64> = parts.iter().flat_map(|part| plane(part).values.clone()).collect();
            let inputs = parts[0].values.shape[1];
            Host::raw(Dtype::F32, &[values.len() / inputs, inputs], values)
        };
        let roundoff = parts.iter().map(|part| part.roundoff).fold(0.0, f64::max);
        Self { values: stack(|part| &part.values), magnitudes: stack(|part| &part.magnitudes), roundoff }
    }

    fn expert(values: &Host, expert: usize) -> Self {
        let [_, outputs, inputs] = values.shape[..] else { panic!("a stack has three axes") };
        let one = values.boxed(&[expert, 0, 0], &[1, outputs, inputs]);
        Self::dense(&Host::raw(values.dtype, &[outputs, inputs], one.values))
    }

    /// Product with one row and its bound, for each output.
    fn times(&self, row: &[f64], dtype: Dtype, precision: Precision) -> Vec<(f64, f64)> {
        let inputs = row.len();
        let largest = row.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let output = |output: usize| {
            let weights = &self.values.values[output * inputs..(output + 1) * inputs];
            let sizes = &self.magnitudes.values[output * inputs..(output + 1) * inputs];
            let value: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
            let magnitude: f64 = row.iter().zip(sizes).map(|(x, w)| (x * w).abs()).sum();
            let exact = accumulated(dtype, inputs + 2, magnitude, value) + self.roundoff * magnitude;
            let rounded: f64 = match precision {
                Precision::Exact => 0.0,
                // A tenth more, for the rounding of the scale itself.
                Precision::Fast => 1.1 * largest / 254.0 * weights.iter().map(|w| w.abs()).sum::<f64>(),
            };
            (value, exact + rounded)
        };
        (0..self.values.shape[0]).map(output).collect()
    }
}

/// Expected product of every row, with bounds.
pub(super) fn product(x: &Host, weight: &Matrix, precision: Precision) -> (Host, Vec<f64>) {
    let inputs = weight.values.shape[1];
    let rows = x.values.chunks(inputs).map(|row| weight.times(row, x.dtype, precision));
    let (values, bounds): (Vec<f64>, Vec<f64>) = rows.flatten().unzip();
    (Host::raw(x.dtype, &[x.shape[0], weight.values.shape[0]], values), bounds)
}

fn check(device: &Device, x: &Host, prepared: &Linear, weight: &Matrix, place: &str) -> Outcome {
    for &precision in device.traits().precisions {
        let (expected, bounds) = product(x, weight, precision);
        for (form, operand) in x.forms(device)? {
            let place = format!("{place}, x {:?} {:?} {form}, {precision:?}", x.dtype, x.shape);
            near(place, device, &device.linear(&operand, prepared, precision)?, &expected, |i| bounds[i])?;
        }
    }
    Ok(())
}

/// Outputs, inputs, experts, device, and bytes that are at least those of the codes.
pub fn prepared_weights_describe_themselves(device: &Device) -> Outcome {
    let dense = Weight::Dense(Host::sample(Dtype::F32, &[3, 64], 80).upload(device)?);
    let affine = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[5, 64], 81).weight(device)?;
    let prepared = device.prepare_linear(&[dense, affine])?;
    let shape = (prepared.outputs(), prepared.inputs(), prepared.experts());
    holds("a joined matrix", shape == (8, 64, 1) && prepared.device() == device.id())?;
    holds("bytes", prepared.bytes() >= 3 * 64 * 4 + 5 * 64 / 2)?;
    let stack = Weight::Dense(Host::sample(Dtype::F32, &[4, 3, 32], 82).upload(device)?);
    let prepared = device.prepare_linear(&[stack])?;
    holds("a stack", (prepared.outputs(), prepared.inputs(), prepared.experts()) == (3, 32, 4))
}

/// Dense weights of each dtype with activations of each dtype; one token and several, odd sizes.
pub fn dense_weights(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for [outputs, inputs] in [[1, 1], [7, 33], [19, 64]] {
            let weight = Host::sample(dtype, &[outputs, inputs], 83);
            let prepared = device.prepare_linear(&[Weight::Dense(weight.upload(device)?)])?;
            for x_dtype in FLOATS {
                for tokens in [1, 5] {
                    let x = Host::sample(x_dtype, &[tokens, inputs], 84);
                    check(device, &x, &prepared, &Matrix::dense(&weight), &format!("{dtype:?} weight"))?;
                }
            }
        }
    }
    Ok(())
}

/// Every width of code and every group; every width with scales of each dtype; outputs that fill no block.
pub fn affine_weights(device: &Device) -> Outcome {
    for format in formats() {
        for dtype in FLOATS.into_iter().filter(|&dtype| dtype == Dtype::F32 || format.group == 64) {
            let weight = Codes::sample(format, dtype, &[11, 256], 85);
            let prepared = device.prepare_linear(&[weight.weight(device)?])?;
            let matrix = Matrix::affine(&weight);
            for tokens in [1, 3] {
                let x = Host::sample(Dtype::F32, &[tokens, 256], 86);
                check(device, &x, &prepared, &matrix, &format!("{format:?} {dtype:?}"))?;
            }
        }
    }
    let weight = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[5, 64], 87);
    let prepared = device.prepare_linear(&[weight.weight(device)?])?;
    for dtype in [Dtype::F16, Dtype::Bf16] {
        check(device, &Host::sample(dtype, &[2, 64], 88), &prepared, &Matrix::affine(&weight), "narrow x")?;
    }
    Ok(())
}

/// More tokens and outputs than a tile of any kernel holds, with remainders.
pub fn many_tokens(device: &Device) -> Outcome {
    for (bits, group, dtype) in [(4, 32, Dtype::F32), (8, 64, Dtype::F16), (3, 128, Dtype::Bf16)] {
        let weight = Codes::sample(Affine { bits, group }, dtype, &[50, 256], 108);
        let prepared = device.prepare_linear(&[weight.weight(device)?])?;
        let x = Host::sample(Dtype::F32, &[67, 256], 109);
        check(device, &x, &prepared, &Matrix::affine(&weight), &format!("{bits} bits"))?;
    }
    let weight = Host::sample(Dtype::F32, &[50, 131], 110);
    let prepared = device.prepare_linear(&[Weight::Dense(weight.upload(device)?)])?;
    check(device, &Host::sample(Dtype::F32, &[67, 131], 111), &prepared, &Matrix::dense(&weight), "dense")
}

/// MLX's own quantised product, so that both mean the same by the format.
pub fn affine_equals_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::LAYERS.get(&format!("linear.{name}"));
    let weight = Codes {
        codes: get("codes")?,
        scales: get("scales")?,
        biases: get("biases")?,
        format: Affine { bits: 5, group: 32 },
    };
    let prepared = device.prepare_linear(&[weight.weight(device)?])?;
    let x = get("x")?;
    let (_, bounds) = product(&x, &Matrix::affine(&weight), Precision::Exact);
    let expected = get("y")?;
    // Twice: MLX's sum errs as well.
    let exact = device.linear(&x.upload(device)?, &prepared, Precision::Exact)?;
    near("the golden product", device, &exact, &expected, |i| 2.0 * bounds[i])
}

/// Dense and affine parts of several formats joined by their outputs give the products of each, in order.
pub fn joined_parts_of_mixed_form(device: &Device) -> Outcome {
    let inputs = 128;
    let first = Codes::sample(Affine { bits: 4, group: 64 }, Dtype::F32, &[6, inputs], 89);
    let second = Host::sample(Dtype::F16, &[3, inputs], 90);
    let third = Codes::sample(Affine { bits: 8, group: 32 }, Dtype::F16, &[5, inputs], 91);
    let fourth = Codes::sample(Affine { bits: 4, group: 64 }, Dtype::F32, &[4, inputs], 92);
    let parts = [
        first.weight(device)?,
        Weight::Dense(second.upload(device)?),
        third.weight(device)?,
        fourth.weight(device)?,
    ];
    let all =
        [Matrix::affine(&first), Matrix::dense(&second), Matrix::affine(&third), Matrix::affine(&fourth)];
    for chosen in [&[0, 1, 2, 3][..], &[0, 3], &[1, 1], &[2, 0, 2]] {
        let weights: Vec<Weight> = chosen.iter().map(|&i| parts[i].clone()).collect();
        let matrices: Vec<Matrix> = chosen.iter().map(|&i| all[i].clone()).collect();
        let prepared = device.prepare_linear(&weights)?;
        let x = Host::sample(Dtype::F32, &[3, inputs], 93);
        check(device, &x, &prepared, &Matrix::join(&matrices), &format!("parts {chosen:?}"))?;
    }
    Ok(())
}

/// Views of larger or transposed tensors are laid out by their elements, not their memory.
pub fn prepared_from_strided_weights(device: &Device) -> Outcome {
    let weight = Host::sample(Dtype::F32, &[5, 64], 94);
    let x = Host::sample(Dtype::F32, &[2, 64], 95);
    for (form, view) in weight.forms(device)? {
        let prepared = device.prepare_linear(&[Weight::Dense(view)])?;
        check(device, &x, &prepared, &Matrix::dense(&weight), form)?;
    }
    let codes = Codes::sample(Affine { bits: 6, group: 32 }, Dtype::F32, &[5, 64], 96);
    for (form, view) in codes.forms(device)? {
        let prepared = device.prepare_linear(&[Weight::Affine(view)])?;
        check(device, &x, &prepared, &Matrix::affine(&codes), form)?;
    }
    Ok(())
}

/// An empty call gives an empty result, in every precision.
pub fn no_tokens(device: &Device) -> Outcome {
    let weight = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[5, 64], 97).weight(device)?;
    let prepared = device.prepare_linear(&[weight])?;
    let x = Host::sample(Dtype::F32, &[0, 64], 98).upload(device)?;
    let nothing = Host::raw(Dtype::F32, &[0, 5], vec![]);
    let choice = device.upload_i32(&[], &[0, 2])?;
    for &precision in device.traits().precisions {
        same("linear", device, &device.linear(&x, &prepared, precision)?, &nothing)?;
        let gathered = device.gather_linear(&x, &prepared, &choice, precision)?;
        same("gather_linear", device, &gathered, &Host::raw(Dtype::F32, &[0, 2, 5], vec![]))?;
    }
    let ids = device.upload_i32(&[], &[0])?;
    let rows = Host::raw(device.traits().compute_dtype, &[0, 64], vec![]);
    same("embed", device, &device.embed(&prepared, &ids)?, &rows)
}

/// Each row with its own experts, some twice: dense and affine stacks, and both joined by the outputs of each expert.
pub fn gathered_experts(device: &Device) -> Outcome {
    let (experts, inputs) = (4, 64);
    let dense = Host::sample(Dtype::F32, &[experts, 5, inputs], 99);
    let codes = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[experts, 3, inputs], 100);
    let values = codes.values();
    let joined = Host::build(Dtype::F32, &[experts, 8, inputs], |index| match index[1] {
        output @ 0..3 => values.at(&[index[0], output, index[2]]),
        output => dense.at(&[index[0], output - 3, index[2]]),
    });
    let (dense_part, affine_part) = (Weight::Dense(dense.upload(device)?), codes.weight(device)?);
    let stacks = [
        ("dense", vec![dense_part.clone()], dense),
        ("affine", vec![affine_part.clone()], values),
        ("joined", vec![affine_part, dense_part], joined),
    ];
    let x = Host::sample(Dtype::F32, &[3, inputs], 101);
    let choice = Host::raw(Dtype::I32, &[3, 2], vec![0.0, 3.0, 2.0, 2.0, 1.0, 0.0]);
    for (name, parts, values) in stacks {
        let (prepared, outputs) = (device.prepare_linear(&parts)?, values.shape[1]);
        for &precision in device.traits().precisions {
            let pick = |i: usize| {
                let row = &x.values[i / 2 * inputs..(i / 2 + 1) * inputs];
                Matrix::expert(&values, choice.values[i] as usize).times(row, x.dtype, precision)
            };
            let (expected, bounds): (Vec<f64>, Vec<f64>) = (0..6).flat_map(pick).unzip();
            let expected = Host::raw(Dtype::F32, &[3, 2, outputs], expected);
            for ((form, x), (_, choice)) in x.forms(device)?.into_iter().zip(choice.forms(device)?) {
                let result = device.gather_linear(&x, &prepared, &choice, precision)?;
                // Codes err by two roundings of f32 more than the bound of dense weights counts.
                near(format!("{name}, {form}, {precision:?}"), device, &result, &expected, |i| {
                    2.0 * bounds[i]
                })?;
            }
        }
    }
    Ok(())
}

/// Rows of dense and affine weights, and of joined ones, in the compute dtype.
pub fn embedded_rows(device: &Device) -> Outcome {
    let compute = device.traits().compute_dtype;
    let format = Affine { bits: 8, group: 32 };
    let ids = Host::raw(Dtype::I32, &[6], vec![0.0, 8.0, 3.0, 3.0, 7.0, 4.0]);
    for dtype in FLOATS {
        let dense = Host::sample(dtype, &[4, 64], 102);
        let codes = Codes::sample(format, dtype, &[5, 64], 103);
        let joined = Matrix::join(&[Matrix::dense(&dense), Matrix::affine(&codes)]);
        let prepared =
            device.prepare_linear(&[Weight::Dense(dense.upload(device)?), codes.weight(device)?])?;
        let row = |plane: &Host, i: usize| plane.at(&[ids.values[i / 64] as usize, i % 64]);
        let expected = Host::build(compute, &[6, 64], |index| row(&joined.values, index[0] * 64 + index[1]));
        let bound = |i: usize| {
            let size = row(&joined.magnitudes, i);
            // The affine rows may round twice in the dtype of the scales.
            2.0 * unit(dtype) * size * f64::from(ids.values[i / 64] >= 4.0) + roundings(compute, 2.0, size)
        };
        for (form, ids) in ids.forms(device)? {
            near(format!("{dtype:?}, {form}"), device, &device.embed(&prepared, &ids)?, &expected, bound)?;
        }
    }
    Ok(())
}

/// Ids and experts out of range: an `Index` error now or at evaluation, or the nearest one there is.
pub fn wild_ids_are_refused_or_clamped(device: &Device) -> Outcome {
    let rows = Host::build(Dtype::F32, &[3, 32], |index| (index[0] * 32 + index[1]) as f64);
    let prepared = device.prepare_linear(&[Weight::Dense(rows.upload(device)?)])?;
    let stack = Host::build(Dtype::F32, &[3, 1, 32], |index| index[0] as f64);
    let experts = device.prepare_linear(&[Weight::Dense(stack.upload(device)?)])?;
    let ones = Host::build(Dtype::F32, &[1, 32], |_| 1.0).upload(device)?;
    for (wild, nearest) in [(3, 2), (-1, 0), (1 << 28, 2), (i32::MIN, 0)] {
        let ids = device.upload_i32(&[wild], &[1])?;
        let row = Host::build(device.traits().compute_dtype, &[1, 32], |index| rows.at(&[nearest, index[1]]));
        refused_or(format!("embed {wild}"), device, device.embed(&prepared, &ids), &row)?;
        let choice = device.upload_i32(&[wild], &[1, 1])?;
        let sum = Host::build(Dtype::F32, &[1, 1, 1], |_| 32.0 * nearest as f64);
        let result = device.gather_linear(&ones, &experts, &choice, Precision::Exact);
        refused_or(format!("gather_linear {wild}"), device, result, &sum)?;
    }
    Ok(())
}
