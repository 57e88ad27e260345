//! A cursor over a GGUF file. Every length comes from the file and is held against what is left of it before use.

use crate::error::{Error, Result};
use std::fmt;

/// Bytes that were not read yet.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

macro_rules! number {
    ($($name:ident: $host:ty),* $(,)?) => {$(
        pub(super) fn $name(&mut self) -> Result<$host> {
            let bytes = self.take(size_of::<$host>() as u64)?;
            let mut buffer = [0; size_of::<$host>()];
            buffer.copy_from_slice(bytes);
            Ok(<$host>::from_le_bytes(buffer))
        }
    )*};
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.position.checked_add(count))
            .and_then(|end| self.bytes.get(self.position..end))
            .ok_or_else(|| {
                Error::format(format!(
                    "ends early: {} bytes are left at {}, needed: {count}",
                    self.left(),
                    self.position
                ))
            })?;
        self.position += taken.len();
        Ok(taken)
    }

    number! { u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64, i64: i64, f32: f32, f64: f64 }

    /// A length and so many bytes, whatever they are.
    pub(super) fn skip_string(&mut self) -> Result<()> {
        let length = self.u64()?;
        self.take(length).map(drop)
    }

    /// A length and so many bytes of UTF-8.
    pub(super) fn string(&mut self) -> Result<&'a str> {
        let length = self.u64()?;
        let start = self.position;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map_err(|error| Error::format(format!("text is not utf-8 at byte: {start}")).because(error))
    }
}

/// Where it stands; the bytes of a whole file are no use to anybody.
impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {})", self.position, self.bytes.len())
    }
}
