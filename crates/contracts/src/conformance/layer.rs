//! Norms, rotary positions and convolution.

use super::{
    Outcome, behaviours,
    expect::{near, same},
    golden::Golden,
    host::{Host, with},
    tolerance::{accumulated, roundings, unit},
};
use crate::tensor::{Device, Dtype, Rope};

behaviours!("layer":
    rms_norm_of_rows,
    layer_norm_of_rows,
    norms_equal_mlx,
    rope_turns_halves_and_pairs,
    rope_equals_mlx,
    rope_of_nothing_keeps_values,
    conv1d_correlates_each_channel,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const SHAPES: [&[usize]; 5] = [&[3, 40], &[2, 3, 7], &[0, 8], &[1, 1], &[65]];

/// Mean of squares over the last axis, with and without a weight. The sum errs by its length, the root halves that.
pub fn rms_norm_of_rows(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 110);
            let width = shape[shape.len() - 1];
            let weight = Host::sample(dtype, &[width], 111);
            for (weight, epsilon) in [(None, 1e-5), (Some(&weight), 1e-6), (Some(&weight), 0.5)] {
                let scaled = |index: &[usize]| {
                    let row: Vec<f64> =
                        (0..width).map(|i| host.at(&with(index, shape.len() - 1, i))).collect();
                    let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
                    let i = index[shape.len() - 1];
                    row[i] / (mean + f64::from(epsilon)).sqrt()
                        * weight.map_or(1.0, |weight| weight.values[i])
                };
                let expected = Host::build(dtype, shape, scaled);
                let bound = |i: usize| roundings(dtype, width as f64 / 2.0 + 10.0, expected.values[i]);
                let uploaded = weight.map(|weight| weight.upload(device)).transpose()?;
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} weight {}, {form}", weight.is_some());
                    near(place, device, &device.rms_norm(&x, uploaded.as_ref(), epsilon)?, &expected, bound)?;
                }
            }
        }
    }
    Ok(())
}

/// Mean and variance over the last axis, with every choice of weight and bias. The mean errs relative to the row's
/// largest element, which the division by the deviation may magnify.
pub fn layer_norm_of_rows(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for shape in SHAPES {
            let host = Host::sample(dtype, shape, 112);
            let width = shape[shape.len() - 1];
            let [weight, bias] = [113, 114].map(|seed| Host::sample(dtype, &[width], seed));
            for (weight, bias) in
                [(None, None), (Some(&weight), None), (None, Some(&bias)), (Some(&weight), Some(&bias))]
            {
                let mut bounds = Vec::new();
                let expected = Host::build(dtype, shape, |index| {
                    let row: Vec<f64> =
                        (0..width).map(|i| host.at(&with(index, shape.len() - 1, i))).collect();
                    let mean = row.iter().sum::<f64>() / width as f64;
                    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
                    let i = index[shape.len() - 1];
                    let factor = weight.map_or(1.0, |weight| weight.values[i]) / (variance + 1e-5).sqrt();
                    let offset = bias.map_or(0.0, |bias| bias.values[i]);
                    let largest = row.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
                    let size = ((row[i] - mean) * factor).abs() + offset.abs();
                    let count = width as f64 + 10.0;
                    bounds.push(
                        roundings(dtype, count, size) + count * unit(Dtype::F32) * largest * factor.abs(),
                    );
                    (row[i] - mean) * factor + offset
                });
                let uploaded = [weight, bias].map(|x| x.map(|x| x.upload(device)).transpose());
                let [weight, bias] = uploaded;
                let (weight, bias) = (weight?, bias?);
                for (form, x) in host.forms(device)? {
                    let place = format!("{dtype:?} {shape:?} {weight:?} {bias:?}, {form}");
                    let result = device.layer_norm(&x, weight.as_ref(), bias.as_ref(), 1e-5)?;
                    near(place, device, &result, &expected, |i| bounds[i])?;
                }
            }
        }
    }
    Ok(())
}

/// MLX's norms, so that both put the epsilon in the same place.
pub fn norms_equal_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::LAYERS.get(&format!("norm.{name}"));
    let [x, weight, bias] =
        ["x", "weight", "bias"].map(|name| get(name).and_then(|host| host.upload(device)));
    let (x, weight, bias) = (x?, weight?, bias?);
    // Both err.
    let bound = |i: usize, expected: &Host| 2.0 * roundings(Dtype::F32, 60.0, expected.values[i].abs() + 1.0);
    let expected = get("rms")?;
    near("rms_norm", device, &device.rms_norm(&x, Some(&weight), 1e-5)?, &expected, |i| bound(i, &expected))?;
    let expected = get("layer")?;
    let result = device.layer_norm(&x, Some(&weight), Some(&bias), 1e-5)?;
    near("layer_norm", device, &result, &expected, |i| bound(i, &expected))
}

/// Where the partner of a rotated element is, and its pair's frequency.
fn partner(i: usize, pairs: usize, interleaved: bool) -> (usize, usize, f64) {
    if interleaved {
        (i ^ 1, i / 2, if i.is_multiple_of(2) { -1.0 } else { 1.0 })
    } else if i < pairs {
        (i + pairs, i, -1.0)
    } else {
        (i - pairs, i - pairs, 1.0)
    }
}

/// The rotation, and the bound of each element: the angle errs by up to 4 units of its own size (a reciprocal, its
/// inverse, the product), sine and cosine by a few more.
fn turned(x: &Host, frequencies: &Host, positions: &Host, interleaved: bool, scale: f64) -> (Host, Vec<f64>) {
    let pairs = frequencies.values.len();
    let mut bounds = Vec::new();
    let host = Host::build(x.dtype, &x.shape, |index| {
        let [token, head, i] = index[..] else { panic!("heads have three axes") };
        let own = x.at(index);
        if i >= 2 * pairs {
            bounds.push(0.0);
            return own;
        }
        let (other, pair, sign) = partner(i, pairs, interleaved);
        let other = x.at(&[token, head, other]);
        let angle = positions.values[token] * frequencies.values[pair];
        let size = (own.abs() + other.abs()) * scale;
        bounds.push(roundings(x.dtype, 16.0, size) + 4.0 * unit(Dtype::F32) * angle.abs() * size);
        (own * angle.cos() + sign * other * angle.sin()) * scale
    });
    (host, bounds)
}

/// Both pairings, whole and partial heads, several heads, positions in any order, and a scale; elements beyond the
/// rotated ones are unchanged.
pub fn rope_turns_halves_and_pairs(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for ([tokens, heads, width], pairs) in
            [([5, 3, 8], 4), ([5, 2, 11], 3), ([1, 1, 2], 1), ([0, 2, 4], 2)]
        {
            let x = Host::sample(dtype, &[tokens, heads, width], 115);
            let frequencies = Host::build(Dtype::F32, &[pairs], |index| 0.3f64.powi(index[0] as i32));
            let frequencies = frequencies.rounded(Dtype::F32);
            let positions = Host::build(Dtype::I32, &[tokens], |index| [7.0, 0.0, 901.0, 8.0, 7.0][index[0]]);
            let uploaded = positions.upload(device)?;
            for (interleaved, scale) in [(false, 1.0), (true, 1.0), (false, 1.25), (true, 0.5)] {
                let rope = Rope { frequencies: frequencies.upload(device)?, interleaved, scale };
                let (expected, bounds) = turned(&x, &frequencies, &positions, interleaved, scale.into());
                for (form, x) in x.forms(device)? {
                    let place = format!("{dtype:?} [{tokens}, {heads}, {width}] pairs {interleaved}, {form}");
                    near(place, device, &device.rope(x, &rope, &uploaded)?, &expected, |i| bounds[i])?;
                }
            }
        }
    }
    Ok(())
}

/// MLX's rotation with 12 of 16 elements rotated, at positions 7, 8 and 9.
pub fn rope_equals_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::LAYERS.get(&format!("rope.{name}"));
    let x = get("x")?;
    let frequencies = get("periods")?.map(|period| 1.0 / period).rounded(Dtype::F32);
    let positions = device.upload_i32(&[7, 8, 9], &[3])?;
    for (name, interleaved) in [("halves", false), ("interleaved", true)] {
        let rope = Rope { frequencies: frequencies.upload(device)?, interleaved, scale: 1.0 };
        let result = device.rope(x.upload(device)?, &rope, &positions)?;
        near(name, device, &result, &get(name)?, |_| 64.0 * unit(Dtype::F32) * 9.0)?;
    }
    Ok(())
}

/// At position 0 nothing turns; with no frequencies nothing does anywhere.
pub fn rope_of_nothing_keeps_values(device: &Device) -> Outcome {
    let x = Host::sample(Dtype::F32, &[2, 2, 6], 116);
    let frequencies = device.upload_f32(&[1.0, 0.1], &[2])?;
    let rope = Rope { frequencies, interleaved: false, scale: 1.0 };
    let origin = device.upload_i32(&[0, 0], &[2])?;
    same("position 0", device, &device.rope(x.upload(device)?, &rope, &origin)?, &x)?;
    let rope = Rope { frequencies: device.upload_f32(&[], &[0])?, interleaved: true, scale: 3.0 };
    let anywhere = device.upload_i32(&[5, 6], &[2])?;
    same("no frequencies", device, &device.rope(x.upload(device)?, &rope, &anywhere)?, &x)
}

/// Each channel with its own taps, one tap and as many as there are positions, dense and strided.
pub fn conv1d_correlates_each_channel(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for (shape, taps) in [([2, 9, 5], 4), ([1, 4, 3], 4), ([3, 2, 1], 1), ([0, 5, 2], 3)] {
            let [rows, length, channels] = shape;
            let (x, weight) = (Host::sample(dtype, &shape, 117), Host::sample(dtype, &[channels, taps], 118));
            let to = [rows, length - taps + 1, channels];
            let term = |index: &[usize], tap: usize| {
                x.at(&[index[0], index[1] + tap, index[2]]) * weight.at(&[index[2], tap])
            };
            let expected = Host::build(dtype, &to, |index| (0..taps).map(|tap| term(index, tap)).sum());
            let sizes = Host::build(dtype, &to, |index| (0..taps).map(|tap| term(index, tap).abs()).sum());
            let bound = |i: usize| accumulated(dtype, taps, sizes.values[i], expected.values[i]);
            for ((form, x), (_, weight)) in x.forms(device)?.into_iter().zip(weight.forms(device)?) {
                let place = format!("{dtype:?} {shape:?} {taps} taps, {form}");
                near(place, device, &device.conv1d(&x, &weight)?, &expected, bound)?;
            }
        }
    }
    Ok(())
}
