//! Messages and the events that build them, as they stand on the wire
//! (<https://docs.anthropic.com/en/api/messages-streaming>).

use super::RefusedBecause;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A message.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageObject)]
pub(crate) struct Message {
    pub(super) id: String,
    pub(super) r#type: &'static str,
    pub(super) role: &'static str,
    pub(super) model: String,
    pub(super) content: Vec<Block>,
    #[serde(flatten)]
    pub(super) end: End,
    pub(super) usage: Usage,
}

/// Why a message has ended; nothing before it has.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = MessageEnd)]
pub(super) struct End {
    pub(super) stop_reason: Option<&'static str>,
    /// The string that has ended it.
    pub(super) stop_sequence: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = MessageUsage)]
pub(super) struct Usage {
    pub(super) input_tokens: usize,
    pub(super) output_tokens: usize,
}

/// A part of what a message says.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageOutputBlock)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    /// Reasoning; nothing signs it.
    Thinking { thinking: String, signature: &'static str },
    /// Words.
    Text { text: String },
    /// A call.
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// An event of a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageEvent)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The message without its content.
    MessageStart { message: Message },
    /// A block without its content.
    ContentBlockStart { index: usize, content_block: Block },
    /// More of it.
    ContentBlockDelta { index: usize, delta: Delta },
    /// There is no more of it.
    ContentBlockStop { index: usize },
    /// How the message has ended.
    MessageDelta { delta: End, usage: OutputUsage },
    /// There are no more events.
    MessageStop,
    /// Nothing else was sent for a while.
    Ping,
    /// It has failed, and there are no more events.
    Error { error: RefusedBecause },
}

/// More of a block.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageDelta)]
#[serde(tag = "type")]
pub(super) enum Delta {
    /// Of a call's input, as JSON.
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
    /// Of reasoning.
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    /// Of words.
    #[serde(rename = "text_delta")]
    Text { text: String },
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = MessageOutputUsage)]
pub(super) struct OutputUsage {
    pub(super) output_tokens: usize,
}

impl Event {
    /// Its type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
            Self::Error { .. } => "error",
        }
    }
}

impl Delta {
    /// Whether it adds nothing.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Input { partial_json: more }
            | Self::Thinking { thinking: more }
            | Self::Text { text: more } => more.is_empty(),
        }
    }
}
