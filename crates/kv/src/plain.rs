//! Keys or values as the model computes them: one plane of floats, owned by one row.
//!
//! Invariant: a failure that is seen before the device has the plane leaves everything as it was. One that comes
//! while the device has it loses the plane; every later call says so.

use tandem_contracts::tensor::{Device, Dtype, Error, ErrorKind, KvWrite, Result, Scalar, Tensor, shape};

/// The plane and its fixed extents.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    state: State,
    heads: usize,
    width: usize,
    dtype: Dtype,
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing was allocated yet.
    Empty,
    /// `[1, heads, capacity, width]`.
    Held(Tensor),
    /// An append failed while the device had the plane.
    Lost,
}

impl Plain {
    pub(crate) fn new(heads: usize, width: usize, dtype: Dtype) -> Self {
        Self { state: State::Empty, heads, width, dtype }
    }

    /// One whose plane a device has lost.
    #[cfg(test)]
    pub(crate) fn lost(heads: usize, width: usize, dtype: Dtype) -> Self {
        Self { state: State::Lost, heads, width, dtype }
    }

    /// The plane, if one was allocated.
    pub(crate) fn plane(&self) -> Result<Option<&Tensor>> {
        match &self.state {
            State::Empty => Ok(None),
            State::Held(plane) => Ok(Some(plane)),
            State::Lost => Err(lost()),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        match &self.state {
            State::Held(plane) => plane.elements() * self.dtype.size(),
            State::Empty | State::Lost => 0,
        }
    }

    /// Grows the plane to at least `columns`; what it holds stays.
    pub(crate) fn reserve(&mut self, device: &Device, columns: usize) -> Result<()> {
        let held = self.plane()?.map_or(0, |plane| plane.shape()[2]);
        if held >= columns {
            return Ok(());
        }
        let shape = [1, self.heads, columns - held, self.width];
        let zeros = device.full(Scalar::Float(0.0), self.dtype, &shape)?;
        self.state = State::Held(match self.plane()? {
            Some(plane) => device.concat(&[plane, &zeros], 2)?,
            None => zeros,
        });
        Ok(())
    }

    /// Writes packed tokens `[tokens, heads, width]` at a column.
    pub(crate) fn append(&mut self, device: &Device, tokens: &Tensor, write: KvWrite) -> Result<()> {
        let writes = [write];
        let plane =
            self.plane()?.ok_or_else(|| Error::new(ErrorKind::State, "append", "nothing is reserved"))?;
        if tokens.storage().device() != device.id() {
            return Err(Error::foreign("append"));
        }
        shape::kv_append(plane, tokens, &writes)?;
        // Out of the cache, so that the device gets the last handle and may write in place.
        if let State::Held(plane) = std::mem::replace(&mut self.state, State::Lost) {
            self.state = State::Held(device.kv_append(plane, tokens, &writes)?);
        }
        Ok(())
    }
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::State, "row", "the row is unusable: an earlier append failed on the device")
}
