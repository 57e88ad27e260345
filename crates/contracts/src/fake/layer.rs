//! Norms, rotary positions and convolution; computed in f32 and rounded once.

use super::value::Value;

pub(super) fn rms_norm(x: &Value, weight: Option<&Value>, epsilon: f32) -> Value {
    normalise(x, |row| {
        let factor = 1.0 / (mean(row.iter().map(|x| x * x), row.len()) + epsilon).sqrt();
        row.iter()
            .enumerate()
            .map(|(i, x)| x * factor * weight.map_or(1.0, |weight| weight.float(i)))
            .collect()
    })
}

pub(super) fn layer_norm(x: &Value, weight: Option<&Value>, bias: Option<&Value>, epsilon: f32) -> Value {
    normalise(x, |row| {
        let centre = mean(row.iter().copied(), row.len());
        let variance = mean(row.iter().map(|x| (x - centre) * (x - centre)), row.len());
        let factor = 1.0 / (variance + epsilon).sqrt();
        let scaled = |(i, x): (usize, &f32)| {
            (x - centre) * factor * weight.map_or(1.0, |weight| weight.float(i))
                + bias.map_or(0.0, |bias| bias.float(i))
        };
        row.iter().enumerate().map(scaled).collect()
    })
}

fn mean(values: impl Iterator<Item = f32>, count: usize) -> f32 {
    values.fold(0.0, |sum, x| sum + x) / count as f32
}

fn normalise(x: &Value, row: impl Fn(&[f32]) -> Vec<f32>) -> Value {
    let width = x.shape.last().copied().unwrap_or(0).max(1);
    let values = x.floats();
    Value::from_floats(x.dtype, &x.shape, values.chunks(width).flat_map(row))
}

/// Rotation of the first `2 * frequencies` elements of each head.
pub(super) fn rope(
    mut x: Value,
    frequencies: &Value,
    positions: &Value,
    interleaved: bool,
    scale: f32,
) -> Value {
    let [tokens, heads, width] = [0, 1, 2].map(|i| x.shape[i]);
    let pairs = frequencies.elements();
    for (token, head, pair) in
        (0..tokens).flat_map(|t| (0..heads).flat_map(move |h| (0..pairs).map(move |p| (t, h, p))))
    {
        let first = (token * heads + head) * width;
        let (i, j) = if interleaved {
            (first + 2 * pair, first + 2 * pair + 1)
        } else {
            (first + pair, first + pair + pairs)
        };
        let (sine, cosine) = (positions.integer(token) as f32 * frequencies.float(pair)).sin_cos();
        let (a, b) = (x.float(i), x.float(j));
        x.set_float(i, (a * cosine - b * sine) * scale);
        x.set_float(j, (a * sine + b * cosine) * scale);
    }
    x
}

pub(super) fn conv1d(x: &Value, weight: &Value, shape: &[usize]) -> Value {
    let (length, taps, channels) = (x.shape[1], weight.shape[1], shape[2]);
    let sum = |flat: usize| {
        let (row, at, channel) = (flat / channels / shape[1], flat / channels % shape[1], flat % channels);
        (0..taps).fold(0.0, |sum, tap| {
            let x = x.float((row * length + at + tap) * channels + channel);
            sum + x * weight.float(channel * taps + tap)
        })
    };
    Value::from_floats(x.dtype, shape, (0..shape.iter().product()).map(sum))
}
