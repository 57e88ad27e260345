//! Objects as they stand on the wire.

use super::{
    answer::Answer,
    part::{Call, Whole},
    reply::CallPiece,
    score,
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A whole chat answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
            message: ChatMessage::new(whole.text, whole.reasoning, &whole.calls),
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

#[derive(Clone, Debug, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: ChatMessage,
    logprobs: Option<Value>,
    finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ChatMessage {
    role: &'static str,
    /// Null where there are only calls.
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

impl ChatMessage {
    fn new(text: String, reasoning_content: String, calls: &[Call]) -> Self {
        let call = |Call { id, name, arguments }: &Call| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let content = Some(text).filter(|text| !text.is_empty() || calls.is_empty());
        Self { role: "assistant", content, reasoning_content, tool_calls: calls.iter().map(call).collect() }
    }
}

/// What has come since the last chunk.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<Value>>,
}

impl ChatDelta {
    /// One for a piece of a call.
    pub(crate) fn call(CallPiece { index, head, arguments }: CallPiece) -> Self {
        let mut call = json!({"index": index, "function": {"arguments": arguments}});
        if let Some((id, name)) = head {
            call["id"] = json!(id);
            call["type"] = json!("function");
            call["function"]["name"] = json!(name);
        }
        Self { tool_calls: Some(vec![call]), ..Self::default() }
    }
}
