//! Why a command stopped, in one sentence for the person who typed it.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of everything here that can fail.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program could not be started, or did not end well.
    Command {
        /// The command line.
        line: String,
        /// What came of it: an exit status, or why it did not start.
        outcome: String,
    },
    /// A file could not be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that is needed is not on this machine.
    Missing {
        /// What.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// Something is there, but is not what it should be.
    Unexpected {
        /// What, and how it differs.
        what: String,
    },
}

impl Error {
    /// Names the file in an input or output error: `.map_err(Error::file(&path))`.
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::File { path, source }
    }

    /// Something that is needed and absent, with what to do about it.
    pub(crate) fn missing(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), remedy: remedy.into() }
    }

    /// Something that differs from what it should be.
    pub(crate) fn unexpected(what: impl Into<String>) -> Self {
        Self::Unexpected { what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { line, outcome } => write!(f, "{outcome}: {line}"),
            Self::File { path, source } => write!(f, "{source}: {}", path.display()),
            Self::Missing { what, remedy } => write!(f, "{what} is missing: {remedy}"),
            Self::Unexpected { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}
