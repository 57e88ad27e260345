//! The one error type of the tensor and model ports: opaque, with a kind to branch on.

use std::{error, fmt};

/// Result of an operation on the tensor or model port.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was; new kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Operand shapes do not fit the operation.
    Shape,
    /// The operation does not take this dtype.
    Dtype,
    /// An index, range, id or count is out of range.
    Index,
    /// The handle belongs to another device.
    Foreign,
    /// This device or model cannot do it.
    Unsupported,
    /// The call does not fit the object's state (a slot that is not open, a step that disagrees).
    State,
    /// Bytes from outside are malformed.
    Data,
    /// Memory ran out.
    Memory,
    /// The device failed.
    Device,
}

/// A failed operation: its name, what was wrong, and the cause if there is one.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `operation`. The message is lower case and puts the offending value after a colon.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, operation, message: message.into(), source: None }))
    }

    /// Operand shapes do not fit.
    pub fn shape(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Shape, operation, message)
    }

    /// The dtype is not taken.
    pub fn dtype(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Dtype, operation, message)
    }

    /// An index, range, id or count is out of range.
    pub fn index(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Index, operation, message)
    }

    /// The handle belongs to another device.
    pub fn foreign(operation: &'static str) -> Self {
        Self::new(ErrorKind::Foreign, operation, "the operand belongs to another device")
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Name of the operation that failed.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {self}", self.0.kind)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
