//! What rows give: parts on their way, and choices that are whole.
//!
//! Invariants: a part is never nothing; the pieces of a choice, in their order, come to its whole.

use super::{
    error::ApiError,
    reply::{CallPiece, Said},
    score::Scored,
};
use axum::http::StatusCode;
use tandem_contracts::request::Outcome;

/// Tokens with their scores, and bytes of text, up to which a part is written in no time.
const TOKENS: usize = 64;
const BYTES: usize = 64 << 10;

/// What one row gives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// More of it, never nothing.
    More(Piece),
    /// The wire's word for how the row ended.
    End(&'static str),
}

/// More of a choice: text, reasoning or a call, and tokens with their scores where they are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) call: Option<CallPiece>,
    pub(crate) tokens: Vec<Scored>,
}

impl Part {
    /// Whether it takes time to write it.
    pub(crate) fn is_long(&self) -> bool {
        match self {
            Self::More(piece) => piece.is_long(),
            Self::End(_) => false,
        }
    }
}

impl Piece {
    /// Whether it takes time to write it.
    pub(crate) fn is_long(&self) -> bool {
        self.tokens.len() > TOKENS || self.text.len() + self.reasoning.len() > BYTES
    }
}

/// A finished choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) tokens: Vec<Scored>,
    pub(crate) reason: &'static str,
}

/// A whole call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl From<Said> for Piece {
    fn from(said: Said) -> Self {
        match said {
            Said::Text(text) => Self { text, ..Self::default() },
            Said::Reasoning(reasoning) => Self { reasoning, ..Self::default() },
            Said::Call(call) => Self { call: Some(call), ..Self::default() },
        }
    }
}

impl Whole {
    /// Puts a piece behind what there is.
    pub(super) fn add(&mut self, piece: Piece) {
        self.text.push_str(&piece.text);
        self.reasoning.push_str(&piece.reasoning);
        self.tokens.extend(piece.tokens);
        let Some(CallPiece { head, arguments, .. }) = piece.call else { return };
        if let Some((id, name)) = head {
            self.calls.push(Call { id, name, arguments: String::new() });
        }
        if let Some(call) = self.calls.last_mut() {
            call.arguments.push_str(&arguments);
        }
    }
}

/// The wire's word for how a row ended.
///
/// # Errors
/// It did not end well.
pub(super) fn reason(outcome: &Outcome) -> Result<&'static str, ApiError> {
    match outcome {
        Outcome::End | Outcome::Stop(_) => Ok("stop"),
        Outcome::Length => Ok("length"),
        Outcome::Cancelled => Err(cancelled()),
        Outcome::Failed(failure) => Err(failed(&failure.message)),
    }
}

/// Somebody ended it by its id, or its client took nothing of it for too long.
fn cancelled() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "the request was cancelled").code("request_cancelled")
}

/// The engine's fault.
pub(super) fn failed(message: &str) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// The server ends, and had no more time for it.
pub(super) fn ending() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
}
