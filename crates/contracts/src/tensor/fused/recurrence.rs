//! Bodies of the layers that carry a state: row by row, token by token.

use super::activate;
use crate::tensor::{
    Activation, Binary, Convolution, Device, Dtype, Error, Recurred, Reduce, Result, Rule, Scalar, Scan,
    StateSpan, Tensor, shape,
};
use std::ops::Range;

/// For each row `conv1d` over its tail and its tokens, then bias and SiLU of all of them.
///
/// # Errors
/// As [`shape::convolve`].
pub fn convolve(
    device: &Device,
    x: &Tensor,
    rows: &[StateSpan<'_>],
    how: &Convolution<'_>,
) -> Result<Recurred> {
    let [tokens, channels] = shape::convolve(x, rows, how)?;
    let taps = how.weight.shape()[1];
    let (mut outputs, mut states) = (Vec::new(), Vec::new());
    for row in rows {
        let own = device.slice(x, &[row.tokens.clone(), 0..channels])?;
        let joined = device.concat(&[row.state, &own], 0)?;
        let length = joined.shape()[0];
        // Taken, not cut: a view would keep the inputs of the whole step alive for as long as the state.
        let last = device.arange(narrow(length + 1 - taps)?, taps - 1)?;
        states.push(device.take(&joined, &last, 0)?);
        if !row.tokens.is_empty() {
            let joined = device.reshape(&joined, &[1, length, channels])?;
            let output = device.conv1d(&joined, how.weight)?;
            outputs.push(device.reshape(&output, &[row.tokens.len(), channels])?);
        }
    }
    let mut outputs = join(device, &outputs, x.dtype(), &[tokens, channels])?;
    if let Some(bias) = how.bias {
        outputs = device.binary(Binary::Add, outputs, bias)?;
    }
    if how.silu {
        outputs = activate(device, outputs, Activation::Silu)?;
    }
    Ok(Recurred { outputs, states })
}

/// The recurrence as it stands in [`Scan`].
///
/// # Errors
/// As [`shape::scan`].
pub fn scan(device: &Device, how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<Recurred> {
    let shape = shape::scan(how, rows)?;
    let (mut outputs, mut states) = (Vec::new(), Vec::new());
    for row in rows {
        let operands = Operands::new(device, how, &row.tokens)?;
        states.push(operands.run(device, row.state, &mut outputs)?);
    }
    let dtype = how.values.dtype();
    let outputs = join(device, &outputs, Dtype::F32, &shape)?;
    Ok(Recurred { outputs: device.cast(&outputs, dtype)?, states })
}

fn narrow(index: usize) -> Result<i32> {
    i32::try_from(index).map_err(|_| Error::index("convolve", format!("too many tokens: {index}")))
}

fn join(device: &Device, outputs: &[Tensor], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    match outputs {
        [] => device.full(Scalar::Float(0.0), dtype, shape),
        [one] => Ok(one.clone()),
        _ => device.concat(&outputs.iter().collect::<Vec<_>>(), 0),
    }
}

/// One row's operands in f32, value heads grouped by the key head that they read: `[tokens, key heads, group, value
/// width, key width]`, with extents of 1 where an operand has no such axis.
struct Operands {
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    decay: Tensor,
    rate: Tensor,
    rule: Rule,
    /// Key heads, value heads of each, widths of values and of keys.
    extents: [usize; 4],
}

impl Operands {
    fn new(device: &Device, how: &Scan<'_>, tokens: &Range<usize>) -> Result<Self> {
        let ([shared, key_width], [heads, value_width]) =
            ([1, 2].map(|axis| how.keys.shape()[axis]), [1, 2].map(|axis| how.values.shape()[axis]));
        let group = heads / shared;
        let own = |x: &Tensor, extents: [usize; 4]| {
            let mut ranges: Vec<_> = x.shape().iter().map(|&extent| 0..extent).collect();
            ranges[0] = tokens.clone();
            let own = device.cast(&device.slice(x, &ranges)?, Dtype::F32)?;
            device.reshape(&own, &[&[tokens.len()], &extents[..]].concat())
        };
        Ok(Self {
            queries: own(how.queries, [shared, 1, 1, key_width])?,
            keys: own(how.keys, [shared, 1, 1, key_width])?,
            values: own(how.values, [shared, group, value_width, 1])?,
            decay: own(how.decay, [shared, group, 1, 1])?,
            rate: own(how.rate, [shared, group, 1, 1])?,
            rule: how.rule,
            extents: [shared, group, value_width, key_width],
        })
    }

    /// Gives the state after the last token, and adds each token's output, `[1, value heads, value width]`.
    fn run(&self, device: &Device, state: &Tensor, outputs: &mut Vec<Tensor>) -> Result<Tensor> {
        let [shared, group, value_width, _] = self.extents;
        let times = |a: Tensor, b: &Tensor| device.binary(Binary::Multiply, a, b);
        let dot = |state: &Tensor, x: &Tensor| device.reduce(Reduce::Sum, &times(state.clone(), x)?, 3);
        let mut now = device.reshape(state, &self.extents)?;
        for token in 0..self.values.shape()[0] {
            let at = |x: &Tensor| {
                let mut ranges: Vec<_> = x.shape().iter().map(|&extent| 0..extent).collect();
                ranges[0] = token..token + 1;
                device.reshape(&device.slice(x, &ranges)?, &x.shape()[1..])
            };
            let (keys, mut change) = (at(&self.keys)?, at(&self.values)?);
            now = times(now, &at(&self.decay)?)?;
            if self.rule == Rule::Delta {
                change = device.binary(Binary::Subtract, change, &dot(&now, &keys)?)?;
            }
            let change = times(times(change, &at(&self.rate)?)?, &keys)?;
            now = device.binary(Binary::Add, now, &change)?;
            let output = dot(&now, &at(&self.queries)?)?;
            outputs.push(device.reshape(&output, &[1, shared * group, value_width])?);
        }
        device.reshape(&now, state.shape())
    }
}
