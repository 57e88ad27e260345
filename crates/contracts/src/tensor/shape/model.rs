//! Rules of norms, rotary positions, convolution and attention.

use super::{last, require_dtype, require_float, require_rank, require_same_dtype, require_shape};
use crate::tensor::{Attend, Dtype, Error, ErrorKind, KvWrite, Plane, Result, Rope, RowSpan, Run, Tensor};

/// Checks a norm over the last axis and its optional weight and bias, each `[width]` of the dtype of `x`.
///
/// # Errors
/// Dtypes or shapes that do not fit, or an epsilon that is negative or not finite.
pub fn norm(
    operation: &'static str,
    x: &Tensor,
    parameters: &[Option<&Tensor>],
    epsilon: f32,
) -> Result<usize> {
    require_float(operation, x.dtype())?;
    let width = last(operation, x.shape())?;
    for parameter in parameters.iter().flatten() {
        require_same_dtype(operation, x, parameter)?;
        require_shape(operation, "weight", parameter.shape(), &[width])?;
    }
    if epsilon >= 0.0 && epsilon.is_finite() {
        return Ok(width);
    }
    Err(Error::index(operation, format!("epsilon must be finite and not negative, got: {epsilon}")))
}

/// Checks a rotation of `[tokens, heads, width]` by `i32 [tokens]` positions; gives the number of rotated elements.
///
/// # Errors
/// Dtypes or shapes that do not fit, or more rotated elements than the head has.
pub fn rope(x: &Tensor, rope: &Rope, positions: &Tensor) -> Result<usize> {
    require_float("rope", x.dtype())?;
    require_rank("rope", x.shape(), 3)?;
    require_dtype("rope", positions, Dtype::I32)?;
    require_shape("rope", "positions", positions.shape(), &x.shape()[..1])?;
    require_dtype("rope", &rope.frequencies, Dtype::F32)?;
    require_rank("rope", rope.frequencies.shape(), 1)?;
    let rotated = 2 * rope.frequencies.shape()[0];
    if rotated <= x.shape()[2] {
        return Ok(rotated);
    }
    Err(Error::shape("rope", format!("heads are {} wide, to be rotated: {rotated}", x.shape()[2])))
}

/// Result of a depthwise convolution without padding: `[rows, length, channels]` and `[channels, taps]` give
/// `[rows, length - taps + 1, channels]`.
///
/// # Errors
/// Dtypes or shapes that do not fit, or fewer positions than taps.
pub fn conv1d(x: &Tensor, weight: &Tensor) -> Result<[usize; 3]> {
    require_float("conv1d", x.dtype())?;
    require_same_dtype("conv1d", x, weight)?;
    require_rank("conv1d", x.shape(), 3)?;
    require_rank("conv1d", weight.shape(), 2)?;
    let ([rows, length, channels], taps) = ([x.shape()[0], x.shape()[1], x.shape()[2]], weight.shape()[1]);
    require_shape("conv1d", "weight", weight.shape(), &[channels, taps])?;
    if taps == 0 || length < taps {
        return Err(Error::shape("conv1d", format!("{length} positions are too few for taps: {taps}")));
    }
    Ok([rows, length - taps + 1, channels])
}

/// Checks writes of `[tokens, heads, width]` into a plane `[rows, heads, columns, width]`; floats may be written into a
/// plane of others.
///
/// # Errors
/// Dtypes or shapes that do not fit, or a write outside the plane or the tokens.
pub fn kv_append(plane: &Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<()> {
    if !(plane.dtype().is_float() && tokens.dtype().is_float()) {
        require_same_dtype("kv_append", plane, tokens)?;
    }
    require_rank("kv_append", plane.shape(), 4)?;
    require_rank("kv_append", tokens.shape(), 3)?;
    let [rows, heads, columns, width] = [0, 1, 2, 3].map(|i| plane.shape()[i]);
    require_shape("kv_append", "tokens", &tokens.shape()[1..], &[heads, width])?;
    for write in writes {
        let fits = write.row < rows
            && write.tokens.start <= write.tokens.end
            && write.tokens.end <= tokens.shape()[0]
            && write.column.checked_add(write.tokens.len()).is_some_and(|end| end <= columns);
        if !fits {
            return Err(Error::index(
                "kv_append",
                format!("outside the plane {:?}: {write:?}", plane.shape()),
            ));
        }
    }
    Ok(())
}

/// Result of attention: queries `[tokens, heads, key width]` give `[tokens, heads, value width]`.
///
/// # Errors
/// Dtypes or shapes that do not fit, spans that are out of order, or runs that overlap, lie outside their plane or do
/// not hold every query's own position (so that each query sees at least itself).
pub fn attend(q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<[usize; 3]> {
    require_float("attend", q.dtype())?;
    require_rank("attend", q.shape(), 3)?;
    let [tokens, heads, width] = [0, 1, 2].map(|i| q.shape()[i]);
    if let Some(sinks) = how.sinks {
        require_dtype("attend", sinks, Dtype::F32)?;
        require_shape("attend", "sinks", sinks.shape(), &[heads])?;
    }
    if how.window == Some(0) {
        return Err(Error::index("attend", "a window must hold the query itself, got: 0"));
    }
    if how.keep > 0 && how.window.is_none_or(|window| how.keep >= window) {
        let message = format!("a window of {:?} cannot keep first positions: {}", how.window, how.keep);
        return Err(Error::index("attend", message));
    }
    let mut value_width = None;
    let mut next = 0;
    for row in rows {
        if row.queries.start != next || row.queries.end < next || row.queries.end > tokens {
            return Err(Error::index("attend", format!("spans must follow each other: {:?}", row.queries)));
        }
        next = row.queries.end;
        if matches!(row.keys, Plane::TurboValues(_)) || matches!(row.values, Plane::TurboKeys(_)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "attend",
                "TurboQuant's values are no keys, nor keys values",
            ));
        }
        let keys = plane("attend", &row.keys, heads)?;
        let values = plane("attend", &row.values, heads)?;
        if keys[3] != width || keys[..3] != values[..3] || value_width.is_some_and(|known| known != values[3])
        {
            return Err(Error::shape(
                "attend",
                format!("planes do not fit queries of {width}: {keys:?}, {values:?}"),
            ));
        }
        value_width = Some(values[3]);
        runs(row, keys)?;
    }
    if next != tokens {
        return Err(Error::index("attend", format!("spans cover {next} queries of: {tokens}")));
    }
    Ok([tokens, heads, value_width.unwrap_or(width)])
}

fn plane(operation: &'static str, plane: &Plane<'_>, heads: usize) -> Result<[usize; 4]> {
    let (plane, width) = match plane {
        Plane::Plain(plane) => {
            require_float(operation, plane.dtype())?;
            (*plane, None)
        }
        Plane::Affine(plane) => (&plane.scales, Some(super::affine(plane)?)),
        Plane::TurboKeys(plane) => (&plane.scales, Some(super::turbo_keys(operation, plane)?)),
        Plane::TurboValues(plane) => (&plane.scales, Some(super::turbo_values(operation, plane)?)),
    };
    require_rank(operation, plane.shape(), 4)?;
    let [rows, shared, columns, extent] = [0, 1, 2, 3].map(|i| plane.shape()[i]);
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(Error::shape(operation, format!("{heads} query heads do not share key heads: {shared}")));
    }
    Ok([rows, shared, columns, width.unwrap_or(extent)])
}

fn runs(row: &RowSpan<'_>, [rows, _, columns, _]: [usize; 4]) -> Result<()> {
    let mut end = 0;
    for run in row.runs {
        let fits = run.row < rows
            && run.positions.start >= end
            && run.positions.start < run.positions.end
            && run.column.checked_add(run.positions.len()).is_some_and(|end| end <= columns);
        if !fits {
            return Err(Error::index(
                "attend",
                format!("run is empty, out of order or outside its plane: {run:?}"),
            ));
        }
        end = run.positions.end;
    }
    let own = row.position..row.position.saturating_add(row.queries.len());
    let held = |run: &Run| run.positions.end.min(own.end).saturating_sub(run.positions.start.max(own.start));
    if row.runs.iter().map(held).sum::<usize>() == row.queries.len() {
        return Ok(());
    }
    Err(Error::index("attend", format!("runs do not hold the queries' own positions: {own:?}")))
}
