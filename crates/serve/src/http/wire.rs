//! Objects of chats as they stand on the wire.

use super::{
    answer::{Answer, Head},
    part::{Call, Part, Piece, Whole},
    reply::CallPiece,
    score::{self, ChatScores},
    usage::UsageObject,
};
use serde::Serialize;
use utoipa::ToSchema;

/// A whole chat answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChatChoice>,
    usage: UsageObject,
}

impl ChatCompletion {
    /// The object of an answer whose choices have ended.
    pub(crate) fn new(answer: &Answer, wholes: Vec<Whole>) -> Self {
        let choice = |(index, whole): (usize, Whole)| ChatChoice {
            index,
            logprobs: answer.scored.then(|| score::chat(&answer.tokenizer, &whole.tokens)),
            message: ChatMessage::new(whole.text, whole.reasoning, whole.calls),
            finish_reason: whole.reason,
        };
        let Head { id, created, model } = answer.head.clone();
        let choices = wholes.into_iter().enumerate().map(choice).collect();
        Self { id, object: "chat.completion", created, model, choices, usage: answer.usage() }
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: ChatMessage,
    logprobs: Option<ChatScores>,
    finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ChatMessage {
    role: &'static str,
    /// Null where there are only calls.
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    tool_calls: Vec<ToolCall>,
}

/// A call of a function.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ToolCall {
    id: String,
    r#type: &'static str,
    function: CalledFunction,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct CalledFunction {
    name: String,
    /// JSON, unless the model broke it.
    arguments: String,
}

impl ChatMessage {
    fn new(text: String, reasoning_content: String, calls: Vec<Call>) -> Self {
        let content = Some(text).filter(|text| !text.is_empty() || calls.is_empty());
        let call = |Call { id, name, arguments }| ToolCall {
            id,
            r#type: "function",
            function: CalledFunction { name, arguments },
        };
        Self {
            role: "assistant",
            content,
            reasoning_content,
            tool_calls: calls.into_iter().map(call).collect(),
        }
    }
}

/// A piece of a chat answer: each event of a stream but its last, which is `[DONE]`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    /// One, or none beside the usage.
    choices: Vec<ChunkChoice>,
    /// Where it was asked for: null before the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageObject>)]
    usage: Option<Option<UsageObject>>,
}

/// More of a choice.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    index: usize,
    delta: ChatDelta,
    logprobs: Option<ChatScores>,
    /// Null but in the last of a choice.
    finish_reason: Option<&'static str>,
}

/// What has come since the last chunk.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta; 1]>,
}

/// More of a call.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct CallDelta {
    index: usize,
    function: FunctionDelta,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct FunctionDelta {
    arguments: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl ChatChunk {
    /// The chunk of some choices. `usage` is none where it was not asked for.
    pub(crate) fn new(
        answer: &Answer,
        choices: Vec<ChunkChoice>,
        usage: Option<Option<UsageObject>>,
    ) -> Self {
        let Head { id, created, model } = answer.head.clone();
        Self { id, object: "chat.completion.chunk", created, model, choices, usage }
    }
}

impl ChunkChoice {
    /// What a choice begins with.
    pub(crate) fn opening(index: usize) -> Self {
        let delta =
            ChatDelta { role: Some("assistant"), content: Some(String::new()), ..ChatDelta::default() };
        Self { index, delta, logprobs: None, finish_reason: None }
    }

    /// A part of a choice.
    pub(crate) fn part(answer: &Answer, index: usize, part: Part) -> Self {
        let (delta, logprobs, finish_reason) = match part {
            Part::More(Piece { text, reasoning, call, tokens }) => {
                let logprobs = (!tokens.is_empty()).then(|| score::chat(&answer.tokenizer, &tokens));
                (ChatDelta::more(text, reasoning, call), logprobs, None)
            }
            Part::End(reason) => (ChatDelta::default(), None, Some(reason)),
        };
        Self { index, delta, logprobs, finish_reason }
    }
}

impl ChatDelta {
    fn more(text: String, reasoning: String, call: Option<CallPiece>) -> Self {
        match call {
            Some(call) => Self { tool_calls: Some([call.into()]), ..Self::default() },
            None if !reasoning.is_empty() => Self { reasoning_content: Some(reasoning), ..Self::default() },
            None => Self { content: Some(text), ..Self::default() },
        }
    }
}

impl From<CallPiece> for CallDelta {
    fn from(CallPiece { index, head, arguments }: CallPiece) -> Self {
        let r#type = head.as_ref().map(|_| "function");
        let (id, name) = head.unzip();
        Self { index, function: FunctionDelta { arguments, name }, id, r#type }
    }
}
