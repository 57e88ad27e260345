//! Calls into the session, whose errors and panics end requests and nothing else.

use crate::error::panic_message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tandem_contracts::tensor::{ErrorKind, Result};

/// A call into the session that failed.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) kind: Option<ErrorKind>,
}

/// Calls into the session; an error or a panic becomes a fault with a message for the consumer.
pub(super) fn guard<T>(
    what: &'static str,
    call: impl FnOnce() -> Result<T>,
) -> std::result::Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(what, %error, "the model failed");
            Err(Fault { message: format!("the model failed: {error}"), kind: Some(error.kind()) })
        }
        Err(payload) => {
            tracing::error!(what, panic = panic_message(payload.as_ref()), "the model panicked");
            Err(Fault { message: "the model failed unexpectedly".to_owned(), kind: None })
        }
    }
}
