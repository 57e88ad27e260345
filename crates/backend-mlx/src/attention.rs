//! Attention over row spans.
//!
//! Attention runs row by row: the row's live columns are cut out of its planes run by run and handed to MLX's fused
//! kernel, with no mask where every query sees every key, with MLX's causal mode where the queries are the last
//! positions and no window hides a key, and with a boolean mask otherwise. Columns that no query sees are not cut
//! out. Scores with a soft cap, and TurboQuant's codes, have no fused
//! kernel; they take the port's own body.
//!
//! MLX's fused kernels for the GPU keep scores in f32. On a CPU there are none, and scores would be rounded to the
//! queries' dtype, so that operands become f32 there.

use crate::{
    device::Mlx,
    error::Outcome,
    product::{parameters, planes},
    raw,
    value::{narrow, native},
};
use mlx_rs::{Array, Stream, fast, fast::ScaledDotProductAttentionMask as SdpaMask, ops};
use std::ops::Range;
use tandem_contracts::tensor::{Attend, Dtype, Plane, Result, RowSpan, Run, Tensor, fused, shape};

pub(crate) fn attend(mlx: &Mlx, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
    let shape = shape::attend(q, rows, how)?.to_vec();
    if how.soft_cap.is_some() {
        return fused::attend(&mlx.handle(), q, rows, how);
    }
    let queries = mlx.array("attend", q)?;
    let sinks = how.sinks.map(|sinks| mlx.array("attend", sinks)).transpose()?;
    let read = rows
        .iter()
        .filter(|row| !row.queries.is_empty())
        .map(|row| {
            let (keys, values) = (stored(mlx, &row.keys)?, stored(mlx, &row.values)?);
            Ok(keys.zip(values).map(|(keys, values)| Row { row, live: Live::new(row, how), keys, values }))
        })
        .collect::<Result<Option<Vec<_>>>>()?;
    let Some(rows) = read else { return fused::attend(&mlx.handle(), q, rows, how) };
    let scores = if mlx.prefers_f32() { Dtype::F32 } else { q.dtype() };
    mlx.build("attend", (shape, q.dtype()), |stream| {
        let queries = queries.as_dtype(native(scores))?;
        // MLX takes sinks of no wider a type than its result.
        let sinks = sinks.map(|sinks| sinks.as_dtype(native(scores))).transpose()?;
        let attend = |row: &Row<'_>| row.attend(&queries, how, sinks.as_ref(), stream);
        let outputs = rows.iter().map(attend).collect::<Outcome<Vec<_>>>()?;
        let joined = match &outputs[..] {
            [one] => one.clone(),
            _ => ops::concatenate(&outputs, 0)?,
        };
        joined.as_dtype(native(q.dtype()))
    })
}

/// One row with queries.
struct Row<'a> {
    row: &'a RowSpan<'a>,
    live: Live,
    keys: Stored<'a>,
    values: Stored<'a>,
}

impl Row<'_> {
    /// `[queries, heads, value width]`.
    fn attend(&self, q: &Array, how: &Attend<'_>, sinks: Option<&Array>, stream: &Stream) -> Outcome<Array> {
        let Range { start, end } = self.row.queries;
        let (heads, width) = (q.dim(1), q.dim(2));
        let own = raw::slice(q, &[narrow(start), 0, 0], &[narrow(end), heads, width], stream)?;
        let own = own.transpose_axes(&[1, 0, 2])?.expand_dims(0)?;
        let keys = self.keys.live(&self.live.runs, stream)?;
        let values = self.values.live(&self.live.runs, stream)?;
        let seen = match &self.live.sight {
            Sight::Marked(seen) => Some(Array::from_slice(seen, &[narrow(end - start), keys.dim(2)])),
            Sight::All | Sight::Causal => None,
        };
        let mask = match (&self.live.sight, &seen) {
            (Sight::Causal, _) => Some(SdpaMask::Causal),
            (_, seen) => seen.as_ref().map(SdpaMask::Array),
        };
        let output = fast::scaled_dot_product_attention(own, keys, values, how.scale, mask, sinks)?;
        output.squeeze_axes(&[0])?.transpose_axes(&[1, 0, 2])
    }
}

/// Keys or values as they are stored.
enum Stored<'a> {
    Plain(&'a Array),
    Affine { planes: [&'a Array; 3], group: i32, bits: i32 },
}

/// None for codes that MLX does not know.
fn stored<'a>(mlx: &Mlx, plane: &Plane<'a>) -> Result<Option<Stored<'a>>> {
    match plane {
        Plane::Plain(plane) => Ok(Some(Stored::Plain(mlx.array("attend", plane)?))),
        Plane::Affine(plane) => {
            let (group, bits) = parameters(plane.format);
            Ok(Some(Stored::Affine { planes: planes(mlx, "attend", plane)?, group, bits }))
        }
        Plane::TurboKeys(_) | Plane::TurboValues(_) => Ok(None),
    }
}

impl Stored<'_> {
    /// The live columns in order of position: `[1, heads, columns, width]`.
    fn live(&self, runs: &[Run], stream: &Stream) -> Outcome<Array> {
        let cut = |plane: &Array| {
            let pieces = runs.iter().map(|run| columns(plane, run, stream)).collect::<Outcome<Vec<_>>>()?;
            match &pieces[..] {
                [one] => Ok(one.clone()),
                _ => ops::concatenate(&pieces, 2),
            }
        };
        match self {
            Self::Plain(plane) => cut(plane),
            Self::Affine { planes: [codes, scales, biases], group, bits } => {
                ops::dequantize(cut(codes)?, cut(scales)?, &cut(biases)?, *group, *bits)
            }
        }
    }
}

fn columns(plane: &Array, run: &Run, stream: &Stream) -> Outcome<Array> {
    let (row, first, last) = (narrow(run.row), narrow(run.column), narrow(run.column + run.positions.len()));
    raw::slice(plane, &[row, 0, first, 0], &[row + 1, plane.dim(1), last, plane.dim(3)], stream)
}

/// What a row's queries look at.
struct Live {
    /// Runs, cut down to the positions that some query sees.
    runs: Vec<Run>,
    sight: Sight,
}

/// Which of the live keys each query sees.
#[derive(Debug, PartialEq, Eq)]
enum Sight {
    /// All.
    All,
    /// Query `i` of `n` all but the last `n - 1 - i`.
    Causal,
    /// Those marked, row-major `[queries, keys]`.
    Marked(Vec<bool>),
}

impl Live {
    fn new(row: &RowSpan<'_>, how: &Attend<'_>) -> Self {
        let end = row.runs.last().map_or(0, |run| run.positions.end);
        let own = row.position..row.position + row.queries.len();
        // Both ends of what is visible ascend with the position.
        let (first, last) = (how.visible(own.start, end), how.visible(own.end - 1, end));
        let runs: Vec<Run> = row.runs.iter().filter_map(|run| clip(run, &(first.start..last.end))).collect();
        let positions: Vec<usize> = runs.iter().flat_map(|run| run.positions.clone()).collect();
        Self { sight: sight(&own, &positions, (how, end)), runs }
    }
}

fn sight(own: &Range<usize>, positions: &[usize], (how, end): (&Attend<'_>, usize)) -> Sight {
    let (first, last) = (how.visible(own.start, end), how.visible(own.end - 1, end));
    let [least, .., most] = positions else { return Sight::All };
    // The last query's gap holds those of the others.
    let gap = how.gap(own.end - 1);
    let nothing_before = last.start <= *least && !positions.iter().any(|key| gap.contains(key));
    if nothing_before && first.end > *most {
        return Sight::All;
    }
    // Positions ascend, so as many at the end as there are queries are the queries' own if their ends are.
    let aligned = positions.len() >= own.len()
        && positions[positions.len() - own.len()] == own.start
        && *most + 1 == own.end;
    if nothing_before && aligned && first.end == own.start + 1 {
        return Sight::Causal;
    }
    let seen = own.clone().flat_map(|query| positions.iter().map(move |&key| how.sees(query, end, key)));
    Sight::Marked(seen.collect())
}

/// The part of a run that lies in `visible`.
fn clip(run: &Run, visible: &Range<usize>) -> Option<Run> {
    let start = run.positions.start.max(visible.start);
    let end = run.positions.end.min(visible.end);
    let column = run.column + (start - run.positions.start);
    (start < end).then_some(Run { row: run.row, column, positions: start..end })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the queries at `own` see of keys at `positions`.
    fn look(own: Range<usize>, positions: &[usize], how: &Attend<'_>) -> Sight {
        let end = positions.last().map_or(0, |last| last + 1);
        sight(&own, positions, (how, end))
    }

    #[test]
    fn one_query_after_all_keys_needs_no_mask() {
        assert_eq!(look(4..5, &[0, 1, 2, 3, 4], &Attend::causal(1.0)), Sight::All);
        assert_eq!(look(0..1, &[0], &Attend::causal(1.0)), Sight::All);
    }

    #[test]
    fn queries_at_the_end_are_causal() {
        let how = Attend::causal(1.0);
        assert_eq!(look(3..5, &[0, 1, 2, 3, 4], &how), Sight::Causal);
        // Positions that were dropped before the queries change nothing.
        assert_eq!(look(7..9, &[0, 1, 7, 8], &how), Sight::Causal);
        assert_eq!(look(0..2, &[0, 1], &Attend { window: Some(2), ..how }), Sight::Causal);
    }

    #[test]
    fn a_window_that_hides_a_key_is_marked() {
        let how = Attend { window: Some(2), ..Attend::causal(1.0) };
        let expected = [true, true, false, false, true, true];
        assert_eq!(look(2..4, &[1, 2, 3], &how), Sight::Marked(expected.to_vec()));
    }

    #[test]
    fn kept_positions_need_no_mask_unless_some_between_are_there() {
        let how = Attend { window: Some(4), keep: 2, ..Attend::causal(1.0) };
        assert_eq!(look(9..10, &[0, 1, 8, 9], &how), Sight::All);
        assert_eq!(look(9..10, &[0, 1, 7, 8, 9], &how), Sight::Marked(vec![true, true, false, true, true]));
    }

    #[test]
    fn without_causality_everything_is_seen() {
        assert_eq!(look(1..3, &[0, 1, 2, 3], &Attend { causal: false, ..Attend::causal(1.0) }), Sight::All);
    }

    #[test]
    fn runs_are_cut_to_what_is_seen() {
        let run = Run { row: 2, column: 10, positions: 4..9 };
        assert_eq!(clip(&run, &(6..8)), Some(Run { row: 2, column: 12, positions: 6..8 }));
        assert_eq!(clip(&run, &(0..5)), Some(Run { row: 2, column: 10, positions: 4..5 }));
        assert_eq!(clip(&run, &(9..12)), None);
    }
}
