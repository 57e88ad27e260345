//! The response as an object, at every stage.

use super::{
    output::{Item, Status},
    request::Echo,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ResponseObject {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) created_at: u64,
    /// When it was completed, if it was.
    pub(super) completed_at: Option<u64>,
    pub(super) status: Status,
    pub(super) background: bool,
    pub(super) error: Option<Failure>,
    pub(super) incomplete_details: Option<Incomplete>,
    pub(super) model: String,
    pub(super) output: Vec<Item>,
    /// None before its end.
    pub(super) usage: Option<Usage>,
    #[serde(flatten)]
    pub(super) asked: Echo,
}

/// Why there is no more of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseFailure)]
pub(super) struct Failure {
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// Why it was cut.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseIncomplete)]
pub(super) struct Incomplete {
    pub(super) reason: &'static str,
}

/// Tokens that it took.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseUsage)]
pub(super) struct Usage {
    input_tokens: Value,
    input_tokens_details: InputDetails,
    output_tokens: Value,
    output_tokens_details: OutputDetails,
    total_tokens: Value,
    /// As chats have it.
    #[serde(skip_serializing_if = "Value::is_null")]
    tandem: Value,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseInputDetails)]
struct InputDetails {
    cached_tokens: Value,
    /// Always 0: nothing is written to a cache that would be charged.
    cache_write_tokens: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseOutputDetails)]
struct OutputDetails {
    reasoning_tokens: Value,
}

impl From<Value> for Usage {
    /// The counts of a chat by their names here.
    fn from(mut chat: Value) -> Self {
        let mut take = |path: &str| chat.pointer_mut(path).map(Value::take).unwrap_or_default();
        Self {
            input_tokens: take("/prompt_tokens"),
            input_tokens_details: InputDetails {
                cached_tokens: take("/prompt_tokens_details/cached_tokens"),
                cache_write_tokens: 0,
            },
            output_tokens: take("/completion_tokens"),
            output_tokens_details: OutputDetails {
                reasoning_tokens: take("/completion_tokens_details/reasoning_tokens"),
            },
            total_tokens: take("/total_tokens"),
            tandem: take("/tandem"),
        }
    }
}
