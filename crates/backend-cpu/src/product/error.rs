//! What can be wrong with a weight or with the slices of a product.

use std::fmt;

use crate::memory::OutOfMemory;

/// Why a weight was not prepared or a product not computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductError(pub(super) ErrorKind);

/// The kinds of [`ProductError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No kernel knows codes of this many bits.
    Bits(u32),
    /// No kernel knows this group size.
    Group(usize),
    /// The input width is no multiple of the group.
    Width {
        /// Inputs of each row.
        width: usize,
        /// Inputs that share one scale.
        group: usize,
    },
    /// A slice has another length than its shape says.
    Length {
        /// What the slice holds.
        what: &'static str,
        /// Elements that the shape needs.
        expected: usize,
        /// Elements that it has.
        found: usize,
    },
    /// The parts of one weight have different input widths, or there is none.
    Parts,
    /// A row or expert beyond the last one.
    Index {
        /// What is counted.
        what: &'static str,
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The product needs activations quantised in groups of this many inputs, which were not given.
    Unquantised(usize),
    /// The system has no memory left.
    Memory(OutOfMemory),
}

impl ProductError {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0
    }
}

impl From<ErrorKind> for ProductError {
    fn from(kind: ErrorKind) -> Self {
        Self(kind)
    }
}

impl From<OutOfMemory> for ProductError {
    fn from(error: OutOfMemory) -> Self {
        Self(ErrorKind::Memory(error))
    }
}

impl fmt::Display for ProductError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ErrorKind::Bits(bits) => write!(formatter, "bits per code must be 2, 3, 4, 5, 6 or 8: {bits}"),
            ErrorKind::Group(group) => write!(formatter, "group size must be 32, 64 or 128: {group}"),
            ErrorKind::Width { width, group } => {
                write!(formatter, "input width is no multiple of the group size {group}: {width}")
            }
            ErrorKind::Length { what, expected, found } => {
                write!(formatter, "{what} must have {expected} elements: {found}")
            }
            ErrorKind::Parts => {
                formatter.write_str("a weight needs at least one part, all of one input width")
            }
            ErrorKind::Index { what, index, count } => {
                write!(formatter, "there are {count} {what}s, no such {what}: {index}")
            }
            ErrorKind::Unquantised(group) => {
                write!(formatter, "no activations quantised in groups of this size: {group}")
            }
            ErrorKind::Memory(error) => write!(formatter, "{error}"),
        }
    }
}

impl std::error::Error for ProductError {}

/// An error unless `found` is `expected`.
pub(super) fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), ProductError> {
    if expected == found { Ok(()) } else { Err(ErrorKind::Length { what, expected, found }.into()) }
}
