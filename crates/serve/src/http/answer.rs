//! One answer on its way: what names it, and how its events become a whole.

use super::error::ApiError;
use crate::model::{ServedModel, unix_seconds};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use tandem_contracts::request::{Event, Outcome, Usage};
use tandem_engine::Subscription;

/// What names an answer in each of its objects.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

/// An answer that is being made. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) subscription: Subscription,
}

impl Answer {
    /// Names what `subscription` will bring.
    pub(crate) fn new(prefix: &str, model: &ServedModel, subscription: Subscription) -> Self {
        let unique = RandomState::new().hash_one(subscription.id());
        let head = Head {
            id: format!("{prefix}-{unique:016x}"),
            created: unix_seconds(),
            model: model.name.clone(),
        };
        Self { head, subscription }
    }
}

/// A finished answer.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) reason: &'static str,
    pub(crate) usage: Usage,
}

/// Waits for the end.
pub(crate) async fn collect(mut answer: Answer) -> Result<Whole, ApiError> {
    let mut whole = String::new();
    loop {
        match answer.subscription.next().await {
            Some(Event::Progress { .. }) => {}
            Some(Event::Delta { text, .. }) => whole.push_str(&text),
            Some(Event::Finished { outcome, usage }) => {
                return Ok(Whole { text: whole, reason: reason(&outcome)?, usage });
            }
            None => return Err(lost()),
        }
    }
}

/// The wire's word for how a row ended.
///
/// # Errors
/// The row failed.
pub(crate) fn reason(outcome: &Outcome) -> Result<&'static str, ApiError> {
    match outcome {
        Outcome::End | Outcome::Stop(_) => Ok("stop"),
        Outcome::Length => Ok("length"),
        Outcome::Cancelled => {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request was cancelled"))
        }
        Outcome::Failed(failure) => {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, failure.message.clone()))
        }
    }
}

/// The error of a stream of events that ended without its last one.
pub(crate) fn lost() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine is gone")
}

/// Token counts on the wire.
pub(crate) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}
