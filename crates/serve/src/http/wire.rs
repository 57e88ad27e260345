//! Objects as they stand on the wire.

use super::answer::{self, Head};
use serde::Serialize;
use serde_json::Value;
use tandem_contracts::request::Usage;

/// A whole chat answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: [ChatChoice; 1],
    usage: Value,
}

impl ChatCompletion {
    pub(crate) fn new(head: Head, message: ChatMessage, finish_reason: &'static str, usage: Usage) -> Self {
        Self {
            id: head.id,
            object: "chat.completion",
            created: head.created,
            model: head.model,
            choices: [ChatChoice { index: 0, message, logprobs: None, finish_reason }],
            usage: answer::usage(usage),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct ChatChoice {
    index: u32,
    message: ChatMessage,
    logprobs: Option<Value>,
    finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChatMessage {
    pub(crate) role: &'static str,
    pub(crate) content: String,
}

/// What has come since the last chunk.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
}
