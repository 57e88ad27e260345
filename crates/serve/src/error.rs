//! The crate's one error type.
//!
//! Invariants: the kind decides the HTTP status; the message is one line, in lower case unless it quotes a
//! template, and holds no secret.

use std::fmt;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A tokeniser file or vocabulary cannot be used.
    Tokenizer,
    /// A text cannot be encoded.
    Encode,
    /// A chat template does not compile.
    Template,
    /// A chat template refuses a conversation.
    Refused,
    /// The network failed the server.
    Network,
    /// Browsers send no such origin.
    Origin,
    /// No request names such a host.
    Host,
}

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error of a kind with its message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What went wrong, in words, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
