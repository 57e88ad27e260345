//! Attention on the host: planes, rows and the definition of [`Attend`], one query after the other.

use super::{
    Broken,
    affine::Codes,
    host::Host,
    tolerance::{WHOLE, roundings, unit},
};
use crate::tensor::attention::BLOCK;
use crate::tensor::{
    Affine, Attend, Device, Dtype, Plane, Precision, Quantized, RowSpan, Run, Tensor, TurboKeys, TurboValues,
};
use std::ops::Range;

/// Keys or values on the host, `[rows, heads, columns, width]`.
#[derive(Clone, Debug)]
pub(super) enum Cache {
    Plain(Host),
    Affine(Codes),
}

/// The same on a device.
pub(super) enum Stored {
    Plain(Tensor),
    Affine(Quantized),
    TurboKeys(TurboKeys),
    TurboValues(TurboValues),
}

impl Cache {
    pub(super) fn plain(dtype: Dtype, shape: [usize; 4], seed: u64) -> Self {
        Self::Plain(Host::sample(dtype, &shape, seed))
    }

    pub(super) fn affine(format: Affine, dtype: Dtype, shape: [usize; 4], seed: u64) -> Self {
        Self::Affine(Codes::sample(format, dtype, &shape, seed))
    }

    pub(super) fn upload(&self, device: &Device) -> Result<Stored, Broken> {
        Ok(match self {
            Self::Plain(plane) => Stored::Plain(plane.upload(device)?),
            Self::Affine(plane) => Stored::Affine(plane.upload(device)?),
        })
    }

    fn values(&self) -> Host {
        match self {
            Self::Plain(plane) => plane.clone(),
            Self::Affine(plane) => plane.values(),
        }
    }

    /// The largest product of a code and its scale, if `how` lets a device take codes as integers.
    fn span(&self, how: &Attend<'_>) -> f64 {
        match self {
            Self::Affine(plane) if how.precision == Precision::Fast => {
                let scale = plane.scales.values.iter().fold(0.0f64, |most, scale| most.max(scale.abs()));
                scale * (2f64.powi(plane.format.bits.into()) - 1.0)
            }
            _ => 0.0,
        }
    }

    /// Roundings that a device may make when it dequantises.
    fn roundoff(&self) -> f64 {
        match self {
            Self::Plain(_) => 0.0,
            Self::Affine(plane) => 2.0 * unit(plane.scales.dtype),
        }
    }
}

impl Stored {
    pub(super) fn plane(&self) -> Plane<'_> {
        match self {
            Self::Plain(plane) => Plane::Plain(plane),
            Self::Affine(plane) => Plane::Affine(plane),
            Self::TurboKeys(plane) => Plane::TurboKeys(plane),
            Self::TurboValues(plane) => Plane::TurboValues(plane),
        }
    }
}

/// One row of a call.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) queries: usize,
    pub(super) position: usize,
    pub(super) runs: Vec<Run>,
}

impl Row {
    /// A row whose positions lie in order from column 0, and whose last `queries` positions ask.
    pub(super) fn plain(row: usize, length: usize, queries: usize) -> Self {
        Self { queries, position: length - queries, runs: vec![run(row, 0, 0..length)] }
    }
}

pub(super) fn run(row: usize, column: usize, positions: Range<usize>) -> Run {
    Run { row, column, positions }
}

/// A packed call: its queries are those of its rows in order.
pub(super) struct Call<'a> {
    pub(super) q: &'a Host,
    pub(super) rows: &'a [Row],
    pub(super) keys: &'a Cache,
    pub(super) values: &'a Cache,
}

impl Call<'_> {
    /// Runs the call on a device; all rows share the planes.
    pub(super) fn attend(&self, device: &Device, how: &Attend<'_>) -> Result<Tensor, Broken> {
        let (keys, values) = (self.keys.upload(device)?, self.values.upload(device)?);
        let spans = spans(self.rows, keys.plane(), values.plane());
        Ok(device.attend(&self.q.upload(device)?, &spans, how)?)
    }

    /// The result and the bound of each element.
    pub(super) fn expected(&self, how: &Attend<'_>, sinks: Option<&Host>) -> (Host, Vec<f64>) {
        let (keys, values) = (self.keys.values(), self.values.values());
        let [tokens, heads, _] = [0, 1, 2].map(|axis| self.q.shape[axis]);
        let (mut results, mut bounds) = (Vec::new(), Vec::new());
        let mut token = 0;
        for row in self.rows {
            for query in 0..row.queries {
                for head in 0..heads {
                    let shared = head / (heads / keys.shape[1]);
                    let seen = seen(row, row.position + query, how);
                    let coarse = self.keys.span(how) > 0.0;
                    let one = Query {
                        q: self.q,
                        token,
                        head,
                        shared,
                        seen,
                        roundoff: self.keys.roundoff(),
                        coarse,
                    };
                    let (weights, error) = one.weights(&keys, how, sinks);
                    for i in 0..values.shape[3] {
                        let (value, bound) = one.mix(&weights, error, &values, i, self.values.roundoff());
                        // Each of a block's positions errs by this much; later blocks share what weight there is.
                        let coarse = WHOLE * self.values.span(how) * weights.len().min(BLOCK) as f64;
                        results.push(value);
                        bounds.push(bound + coarse);
                    }
                }
                token += 1;
            }
        }
        assert_eq!(token, tokens, "rows do not cover the queries");
        (Host::raw(self.q.dtype, &[tokens, heads, values.shape[3]], results), bounds)
    }
}

/// Rows over one pair of planes, as spans of packed queries.
pub(super) fn spans<'a>(rows: &'a [Row], keys: Plane<'a>, values: Plane<'a>) -> Vec<RowSpan<'a>> {
    let mut first = 0;
    rows.iter()
        .map(|row| {
            let queries = first..first + row.queries;
            first = queries.end;
            RowSpan { queries, position: row.position, keys, values, runs: &row.runs }
        })
        .collect()
}

/// Plane rows and columns that a query at a position sees, in order of position.
fn seen(row: &Row, position: usize, how: &Attend<'_>) -> Vec<(usize, usize)> {
    let mut seen = Vec::new();
    for run in &row.runs {
        for (i, key) in run.positions.clone().enumerate() {
            let past = !how.causal || key <= position;
            let near = how.window.is_none_or(|window| key + window > position + how.keep);
            if past && (near || key < how.keep) {
                seen.push((run.row, run.column + i));
            }
        }
    }
    seen
}

struct Query<'a> {
    q: &'a Host,
    token: usize,
    head: usize,
    /// Head of the planes that this query head reads.
    shared: usize,
    seen: Vec<(usize, usize)>,
    /// Of dequantised keys.
    roundoff: f64,
    /// Whether queries may be taken as whole numbers.
    coarse: bool,
}

impl Query<'_> {
    /// Softmax weights, and how far off each may be relative to itself.
    ///
    /// A score is a sum of `width` products; the cap turns an error of `tanh` into one of its own size; the
    /// exponential makes the error of a score a relative one, which both numerator and denominator have.
    fn weights(&self, keys: &Host, how: &Attend<'_>, sinks: Option<&Host>) -> (Vec<f64>, f64) {
        let width = self.q.shape[2];
        let u = unit(Dtype::F32);
        let mut error = 0.0f64;
        let largest = (0..width).map(|i| self.q.at(&[self.token, self.head, i]).abs()).fold(0.0, f64::max);
        let step = if self.coarse { WHOLE * largest } else { 0.0 };
        let score = |&(row, column): &(usize, usize)| {
            let term =
                |i: usize| self.q.at(&[self.token, self.head, i]) * keys.at(&[row, self.shared, column, i]);
            let scale = f64::from(how.scale);
            let size: f64 = (0..width).map(|i| term(i).abs()).sum::<f64>() * scale.abs();
            let keys = (0..width).map(|i| keys.at(&[row, self.shared, column, i]).abs()).sum::<f64>();
            let coarse = keys * step * scale.abs();
            error = error.max(coarse + size * ((width as f64 + 4.0) * u + 2.0 * self.roundoff));
            let score = (0..width).map(term).sum::<f64>() * scale;
            match how.soft_cap.map(f64::from) {
                None => score,
                Some(cap) => {
                    error =
                        error.max(size * ((width as f64 + 4.0) * u + 2.0 * self.roundoff) + 16.0 * u * cap);
                    cap * (score / cap).tanh()
                }
            }
        };
        let scores: Vec<f64> = self.seen.iter().map(score).collect();
        let sink = sinks.map(|sinks| sinks.values[self.head]);
        let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = powers.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - largest).exp());
        let relative = 2.0 * error + (2.0 * self.seen.len() as f64 + 32.0) * u;
        (powers.iter().map(|power| power / sum).collect(), relative)
    }

    /// One element of the weighted sum.
    fn mix(&self, weights: &[f64], relative: f64, values: &Host, i: usize, roundoff: f64) -> (f64, f64) {
        let value = |&(row, column): &(usize, usize)| values.at(&[row, self.shared, column, i]);
        let terms: Vec<f64> = self.seen.iter().zip(weights).map(|(at, weight)| weight * value(at)).collect();
        let size: f64 = terms.iter().map(|term| term.abs()).sum();
        let sum: f64 = terms.iter().sum();
        // Dequantisation rounds relative to scale and bias, which are below 2 in these planes.
        (sum, relative * size + roundings(self.q.dtype, 2.0, size) + 2.0 * roundoff)
    }
}
