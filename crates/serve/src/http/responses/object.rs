//! The response as an object, at every stage.

use super::{
    output::{Item, Status},
    request::Echo,
};
use crate::http::{
    answer::Head,
    error::ApiError,
    usage::{CompletionDetails, Saved, UsageObject},
};
use serde::Serialize;
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
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: CompletionDetails,
    total_tokens: usize,
    /// As chats have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tandem: Option<Saved>,
}

impl ResponseObject {
    /// A response with nothing in it.
    pub(super) fn new(head: &Head, asked: Echo, status: Status) -> Self {
        Self {
            id: head.id.clone(),
            object: "response",
            created_at: head.created,
            completed_at: None,
            status,
            background: false,
            error: None,
            incomplete_details: None,
            model: head.model.clone(),
            output: Vec::new(),
            usage: None,
            asked,
        }
    }

    /// The same, with what it failed of.
    pub(super) fn failed(self, error: ApiError) -> Self {
        let failure = Failure { code: "server_error", message: error.message };
        Self { status: Status::Failed, error: Some(failure), ..self }
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseInputDetails)]
struct InputDetails {
    cached_tokens: usize,
    /// Always 0: nothing is written to a cache that would be charged.
    cache_write_tokens: u64,
}

impl From<UsageObject> for Usage {
    /// The counts of a chat by their names here.
    fn from(chat: UsageObject) -> Self {
        let cached_tokens = chat.prompt_tokens_details.cached_tokens;
        Self {
            input_tokens: chat.prompt_tokens,
            input_tokens_details: InputDetails { cached_tokens, cache_write_tokens: 0 },
            output_tokens: chat.completion_tokens,
            output_tokens_details: chat.completion_tokens_details,
            total_tokens: chat.total_tokens,
            tandem: chat.tandem,
        }
    }
}
