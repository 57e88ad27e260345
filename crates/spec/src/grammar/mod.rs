//! Grammars that bind answers, over the `llguidance` crate and the [`Vocabulary`](tandem_contracts::text::Vocabulary) port.
//!
//! ```text
//!   Grammar --Compiler (cached, bounded)--> Compiled --matcher()--> one for each answer
//! ```
//!
//! What a schema says is enforced or refused, never passed over: a keyword that cannot be enforced is an error with its
//! place. JSON is written as Python's `json.dumps` writes it: one space after a colon and a comma, and nothing else between
//! values. So no answer loses itself in white space, and most of what is not a value is determined.
//!
//! Invariants: compiling and matching take bounded time and memory, whatever the grammar; a matcher shares nothing that it
//! changes with another one.

mod compiler;
mod environment;
mod gbnf;
mod matcher;
mod schema;

pub use compiler::{Compiled, Compiler};

use serde_json::Value;
use std::fmt;

/// What an answer is to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// Any JSON object.
    Object,
    /// JSON that a schema describes.
    Schema(Value),
    /// A text that a regular expression matches as a whole, in the syntax of the `regex` crate.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of a grammar: in the syntax of Lark as `llguidance` has it, or, where it has a `::=`, in that of GBNF.
    Text(String),
}

/// Why a grammar cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Where in the schema, as a JSON pointer, as far as that is known.
    pub place: Option<String>,
    /// One line.
    pub message: String,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }

    fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Some(place.into()), message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_deref() {
            None => f.write_str(&self.message),
            Some("") => write!(f, "at the top of the schema: {}", self.message),
            Some(place) => write!(f, "at {place}: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
