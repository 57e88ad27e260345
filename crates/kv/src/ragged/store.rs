//! The planes of one layer: fields of its keys' codec, then of its values'.
//!
//! Invariant: rows that own their planes never lose them. Of planes that rows share, a failure that is seen before the
//! device has one leaves everything as it was; one that comes while the device has it loses the layer, and every later
//! call says so.

use super::place::Move;
use crate::codec::Field;
use std::mem;
use tandem_contracts::tensor::{Device, Error, ErrorKind, KvWrite, Result, Run, Scalar, Tensor, shape};

/// Planes `[1, heads, capacity, extent]`.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    /// Nothing was allocated yet.
    Empty,
    /// One plane for each field.
    Held(Vec<Tensor>),
    /// An append failed while the device had a plane.
    Lost,
}

impl Store {
    /// The planes; none if nothing was allocated.
    pub(crate) fn planes(&self) -> Result<&[Tensor]> {
        match self {
            Self::Empty => Ok(&[]),
            Self::Held(planes) => Ok(planes),
            Self::Lost => Err(lost()),
        }
    }

    /// The planes, to be appended to; as many as there are fields.
    pub(super) fn planes_mut(&mut self, fields: usize) -> Result<&mut [Tensor]> {
        match self {
            Self::Held(planes) if planes.len() == fields => Ok(planes),
            Self::Held(_) | Self::Empty => Err(unreserved()),
            Self::Lost => Err(lost()),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Held(planes) => planes.iter().map(|plane| plane.elements() * plane.dtype().size()).sum(),
            Self::Empty | Self::Lost => 0,
        }
    }

    /// Writes packed tokens `[tokens, heads, extent]`, one tensor for each plane.
    pub(crate) fn append(&mut self, device: &Device, fields: &[Tensor], writes: &[KvWrite]) -> Result<()> {
        let planes = self.planes()?;
        if planes.len() != fields.len() {
            return Err(unreserved());
        }
        for (plane, field) in planes.iter().zip(fields) {
            if field.storage().device() != device.id() {
                return Err(Error::foreign("append"));
            }
            shape::kv_append(plane, field, writes)?;
        }
        // Out of the cache, so that the device gets the last handles and may write in place.
        if let Self::Held(planes) = mem::replace(self, Self::Lost) {
            let written = planes.into_iter().zip(fields);
            let written = written.map(|(plane, field)| device.kv_append(plane, field, writes));
            *self = Self::Held(written.collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// The columns of these runs, one after the other: `[1, heads, columns, extent]` for each plane.
    pub(super) fn cut(&self, device: &Device, runs: &[Run]) -> Result<Vec<Tensor>> {
        cut(device, self.planes()?, runs)
    }
}

/// The columns of these runs of planes `[rows, heads, columns, extent]`, one after the other.
fn cut(device: &Device, planes: &[Tensor], runs: &[Run]) -> Result<Vec<Tensor>> {
    let cut = |plane: &Tensor| {
        let pieces =
            runs.iter().map(|run| columns(device, plane, run.row, (run.column, run.positions.len())));
        let pieces = pieces.collect::<Result<Vec<_>>>()?;
        match &pieces[..] {
            [one] => Ok(one.clone()),
            _ => device.concat(&pieces.iter().collect::<Vec<_>>(), 2),
        }
    };
    planes.iter().map(cut).collect()
}

/// Planes of `capacity` columns for `fields` of `heads` heads, with columns of `old` ones moved in.
pub(crate) fn moved(
    device: &Device,
    (fields, heads): (&[Field], usize),
    capacity: usize,
    old: &[Tensor],
    moves: &[Move],
) -> Result<Vec<Tensor>> {
    let zeros = |field: &Field, columns| {
        let zero = if field.dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        device.full(zero, field.dtype, &[1, heads, columns, field.extent])
    };
    let plane = |(index, field): (usize, &Field)| match (old.get(index), moves) {
        (Some(old), [Move { from: 0, to: 0, count }]) if *count < capacity => {
            let kept = columns(device, old, 0, (0, *count))?;
            device.concat(&[&kept, &zeros(field, capacity - count)?], 2)
        }
        (Some(old), moves) => moves.iter().try_fold(zeros(field, capacity)?, |plane, one| {
            let piece = columns(device, old, 0, (one.from, one.count))?;
            device.slice_update(plane, &piece, &[0, 0, one.to, 0])
        }),
        (None, _) => zeros(field, capacity),
    };
    fields.iter().enumerate().map(plane).collect()
}

pub(crate) fn columns(
    device: &Device,
    plane: &Tensor,
    row: usize,
    (first, count): (usize, usize),
) -> Result<Tensor> {
    let [heads, extent] = [plane.shape()[1], plane.shape()[3]];
    device.slice(plane, &[row..row + 1, 0..heads, first..first + count, 0..extent])
}

fn unreserved() -> Error {
    Error::new(ErrorKind::State, "append", "nothing is reserved")
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::State, "row", "the row is unusable: an earlier append failed on the device")
}
