//! Objects as they stand on the wire.

use super::{
    answer::{Answer, Whole},
    score,
};
use serde::Serialize;
use serde_json::Value;

/// A whole chat answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChatChoice>,
    usage: Value,
}

impl ChatCompletion {
    /// The object of an answer whose choices have ended.
    pub(crate) fn new(answer: &Answer, wholes: Vec<Whole>) -> Self {
        let choice = |(index, whole): (usize, Whole)| ChatChoice {
            index,
            logprobs: answer.scored.then(|| score::chat(&answer.tokenizer, &whole.tokens)),
            message: ChatMessage { role: "assistant", content: whole.text },
            finish_reason: whole.reason,
        };
        Self {
            id: answer.head.id.clone(),
            object: "chat.completion",
            created: answer.head.created,
            model: answer.head.model.clone(),
            choices: wholes.into_iter().enumerate().map(choice).collect(),
            usage: answer.usage(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct ChatChoice {
    index: usize,
    message: ChatMessage,
    logprobs: Option<Value>,
    finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Clone, Debug, Serialize)]
struct ChatMessage {
    role: &'static str,
    content: String,
}

/// What has come since the last chunk.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
}
