//! What attention reads of one layer of one row.
//!
//! Invariant: a view holds values, not places. It stays what it is when its row is appended to, shortened or dropped; but
//! while it lives an append has to copy the planes that it holds.

use super::{
    kit::{Coders, Kit},
    layer::{Layer, Stretch, decode},
    store::cut,
};
use crate::codec::Format;
use std::ops::Range;
use tandem_contracts::tensor::{Error, ErrorKind, Plane, Quantized, Result, RowSpan, Run, Tensor};

/// Keys and values, where their positions lie, and where the queries stand.
#[derive(Clone, Debug)]
pub struct View {
    position: usize,
    runs: Vec<Run>,
    keys: Held,
    values: Held,
}

#[derive(Clone, Debug)]
enum Held {
    Plain(Tensor),
    Affine(Quantized),
}

impl Held {
    fn plane(&self) -> Plane<'_> {
        match self {
            Self::Plain(plane) => Plane::Plain(plane),
            Self::Affine(plane) => Plane::Affine(plane),
        }
    }

    /// The planes of a format that attention reads as they are.
    fn new(format: Format, planes: &[Tensor]) -> Option<Self> {
        match (format, planes) {
            (Format::Plain(_), [plane]) => Some(Self::Plain(plane.clone())),
            (Format::Affine { affine, .. }, [codes, scales, biases]) => Some(Self::Affine(Quantized {
                codes: codes.clone(),
                scales: scales.clone(),
                biases: biases.clone(),
                format: affine,
            })),
            _ => None,
        }
    }
}

impl View {
    /// Of a layer that has the step's tokens.
    pub(super) fn new(kit: &Kit, layer: &Layer, coders: &Coders, step: Stretch) -> Result<Self> {
        let runs = layer.place.sight(step.position, step.tokens);
        Self::over(kit, coders, layer.store.planes()?, (step.position, runs))
    }

    /// Of runs of planes `[rows, heads, columns, extent]`, for queries from `position` on.
    pub(crate) fn over(
        kit: &Kit,
        coders: &Coders,
        planes: &[Tensor],
        (position, runs): (usize, Vec<Run>),
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return Err(Error::new(ErrorKind::State, "view", "nothing is held"));
        };
        if planes.is_empty() {
            return Err(Error::new(ErrorKind::State, "view", "nothing is reserved"));
        }
        let (keys, values) = planes.split_at(coders.key_fields()?);
        let held = Held::new(coders.scheme.keys, keys).zip(Held::new(coders.scheme.values, values));
        if let Some((keys, values)) = held {
            return Ok(Self { position, runs, keys, values });
        }
        // The port has no plane of such codes: what is read is decoded.
        let positions = first.positions.start..last.positions.end;
        let [keys, values] = decode(coders, &cut(kit.device(), planes, &runs)?)?.map(Held::Plain);
        Ok(Self { position, runs: vec![Run { row: 0, column: 0, positions }], keys, values })
    }

    /// The span of the row's queries, which are at `queries` of the packed ones.
    pub fn span(&self, queries: Range<usize>) -> RowSpan<'_> {
        RowSpan {
            queries,
            position: self.position,
            keys: self.keys.plane(),
            values: self.values.plane(),
            runs: &self.runs,
        }
    }
}
