//! Why an engine could not start. Failures of single requests are events, never errors of this type.

use std::{any::Any, error, fmt};

/// What went wrong; new kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system gave no thread.
    Thread,
    /// The device could not be opened.
    Device,
    /// The model could not be built.
    Model,
    /// A draft cannot be mounted beside this model.
    Draft,
    /// Opening or building panicked; the message is the panic's.
    Panic,
}

/// The engine did not start.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, source: impl error::Error + Send + Sync + 'static) -> Self {
        Self { kind, message: source.to_string(), source: Some(Box::new(source)) }
    }

    pub(crate) fn draft(message: &str) -> Self {
        Self { kind: ErrorKind::Draft, message: message.to_owned(), source: None }
    }

    pub(crate) fn panic(message: String) -> Self {
        Self { kind: ErrorKind::Panic, message, source: None }
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::Thread => "the engine's thread could not start",
            ErrorKind::Device => "the device could not be opened",
            ErrorKind::Model => "the model could not be loaded",
            ErrorKind::Draft => "the draft could not be mounted",
            ErrorKind::Panic => "loading the model panicked",
        };
        write!(f, "{what}: {}", self.message)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        // The message already says what the direct cause says; the chain goes on below it.
        self.source.as_deref().and_then(error::Error::source)
    }
}

/// The text of a caught panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use tandem_contracts::tensor;

    #[test]
    fn a_message_says_what_failed_and_why() {
        let cause = tensor::Error::shape("matmul", "inner extents differ: 3 and 4");
        let error = Error::new(ErrorKind::Model, cause);
        assert_eq!(error.to_string(), "the model could not be loaded: matmul: inner extents differ: 3 and 4");
        assert_eq!(error.kind(), ErrorKind::Model);
    }

    #[test]
    fn panics_give_their_text() {
        let text = |panic: fn()| catch_unwind(panic).map_err(|payload| panic_message(payload.as_ref()));
        assert_eq!(text(|| panic!("plain")), Err("plain".to_owned()));
        assert_eq!(text(|| panic!("value {}", 3)), Err("value 3".to_owned()));
        assert_eq!(text(|| std::panic::panic_any(3_u8)), Err("no message".to_owned()));
    }
}
