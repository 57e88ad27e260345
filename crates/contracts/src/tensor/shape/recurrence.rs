//! Rules of layers that carry a state.

use super::{require_dtype, require_float, require_rank, require_same_dtype, require_shape};
use crate::tensor::{Convolution, Dtype, Error, Result, Scan, StateSpan, Tensor};

/// Result of a short convolution: `[tokens, channels]`.
///
/// # Errors
/// Dtypes or shapes that do not fit, no taps, or spans that do not cover the tokens in order.
pub fn convolve(x: &Tensor, rows: &[StateSpan<'_>], how: &Convolution<'_>) -> Result<[usize; 2]> {
    require_float("convolve", x.dtype())?;
    require_rank("convolve", x.shape(), 2)?;
    let [tokens, channels] = [x.shape()[0], x.shape()[1]];
    require_same_dtype("convolve", x, how.weight)?;
    require_rank("convolve", how.weight.shape(), 2)?;
    let taps = how.weight.shape()[1];
    require_shape("convolve", "weight", how.weight.shape(), &[channels, taps])?;
    if let Some(bias) = how.bias {
        require_same_dtype("convolve", x, bias)?;
        require_shape("convolve", "bias", bias.shape(), &[channels])?;
    }
    let Some(tail) = taps.checked_sub(1) else {
        return Err(Error::shape("convolve", "needs at least one tap"));
    };
    spans("convolve", rows, tokens, (x.dtype(), &[tail, channels]))?;
    Ok([tokens, channels])
}

/// Result of a linear recurrence: `[tokens, value heads, value width]`.
///
/// # Errors
/// Dtypes or shapes that do not fit, value heads that do not share key heads, or spans that do not cover the tokens in
/// order.
pub fn scan(how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<[usize; 3]> {
    let Scan { queries, keys, values, decay, rate, .. } = how;
    require_float("scan", values.dtype())?;
    require_same_dtype("scan", values, queries)?;
    require_same_dtype("scan", values, keys)?;
    require_rank("scan", values.shape(), 3)?;
    let [tokens, heads, value_width] = [0, 1, 2].map(|axis| values.shape()[axis]);
    require_rank("scan", keys.shape(), 3)?;
    let [shared, key_width] = [1, 2].map(|axis| keys.shape()[axis]);
    for (what, x) in [("keys", keys), ("queries", queries)] {
        require_shape("scan", what, x.shape(), &[tokens, shared, key_width])?;
    }
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(Error::shape("scan", format!("{heads} value heads do not share key heads: {shared}")));
    }
    for (what, x) in [("decay", decay), ("rate", rate)] {
        require_dtype("scan", x, Dtype::F32)?;
        require_shape("scan", what, x.shape(), &[tokens, heads])?;
    }
    spans("scan", rows, tokens, (Dtype::F32, &[heads, value_width, key_width]))?;
    Ok([tokens, heads, value_width])
}

fn spans(
    operation: &'static str,
    rows: &[StateSpan<'_>],
    tokens: usize,
    (dtype, shape): (Dtype, &[usize]),
) -> Result<()> {
    let mut next = 0;
    for row in rows {
        if row.tokens.start != next || row.tokens.end < next || row.tokens.end > tokens {
            return Err(Error::index(operation, format!("spans must follow each other: {:?}", row.tokens)));
        }
        next = row.tokens.end;
        require_dtype(operation, row.state, dtype)?;
        require_shape(operation, "state", row.state.shape(), shape)?;
    }
    if next == tokens {
        return Ok(());
    }
    Err(Error::index(operation, format!("spans cover {next} tokens of: {tokens}")))
}
