//! Turns of Anthropic's messages as messages of a chat.
//!
//! Invariants: text is the same whether it comes as a string or as blocks; results of tools stand before the text of their
//! turn, and say where they are errors.

use crate::http::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// What the result of a tool that failed begins with.
const FAILED: &str = "Error: ";

#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(super) struct Turn {
    #[schema(pattern = "^(user|assistant)$")]
    pub(super) role: String,
    pub(super) content: Content,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = MessageContent)]
#[serde(untagged, expecting = "expected a string or a list of blocks")]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// A block of any type, with the fields of all.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(super) struct Block {
    #[serde(default)]
    #[schema(pattern = "^(text|thinking|redacted_thinking|tool_use|tool_result)$")]
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    tool_use_id: Option<String>,
    is_error: Option<bool>,
    #[schema(no_recursion)]
    content: Option<Box<Content>>,
}

/// The texts of a content that may hold nothing else.
pub(super) fn texts<'a>(content: &'a Content, path: &str) -> Result<Vec<&'a str>, ApiError> {
    match content {
        Content::Text(text) => Ok(vec![text]),
        Content::Blocks(blocks) => blocks
            .iter()
            .enumerate()
            .map(|(index, block)| match (block.r#type.as_str(), &block.text) {
                ("text", Some(text)) => Ok(text.as_str()),
                _ => Err(unknown(&format!("{path}[{index}]"), block)),
            })
            .collect(),
    }
}

fn unknown(path: &str, block: &Block) -> ApiError {
    let message = format!("{path}: this model takes no block of this form here, got: {:?}", block.r#type);
    ApiError::field(path, message)
}

/// Adds a user's turn: results of tools as messages of their own, then its text.
pub(super) fn user(content: &Content, path: &str, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let blocks = match content {
        Content::Text(text) => {
            messages.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let (mut text, mut said) = (String::new(), blocks.is_empty());
    for (index, block) in blocks.iter().enumerate() {
        let path = format!("{path}.content[{index}]");
        match (block.r#type.as_str(), &block.text, &block.tool_use_id) {
            ("text", Some(more), _) => {
                text.push_str(more);
                said = true;
            }
            ("tool_result", _, Some(id)) => {
                let inner = block.content.as_ref().map(|content| texts(content, &format!("{path}.content")));
                let mut result = inner.transpose()?.unwrap_or_default().concat();
                if block.is_error == Some(true) {
                    // No template knows of it otherwise.
                    result.insert_str(0, FAILED);
                }
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
            }
            _ => return Err(unknown(&path, block)),
        }
    }
    if said {
        messages.push(json!({"role": "user", "content": text}));
    }
    Ok(())
}

/// An assistant's turn as a message.
pub(super) fn assistant(content: &Content, path: &str) -> Result<Value, ApiError> {
    let blocks = match content {
        Content::Text(text) => return Ok(json!({"role": "assistant", "content": text})),
        Content::Blocks(blocks) => blocks,
    };
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let path = format!("{path}.content[{index}]");
        match (block.r#type.as_str(), &block.text, &block.thinking, &block.name) {
            ("text", Some(more), ..) => text.push_str(more),
            ("thinking", _, Some(more), _) => thinking.push_str(more),
            // Nobody but its maker can read it.
            ("redacted_thinking", ..) => {}
            ("tool_use", _, _, Some(name)) => {
                let arguments = block.input.clone().unwrap_or_else(|| json!({})).to_string();
                let function = json!({"name": name, "arguments": arguments});
                calls.push(json!({"id": block.id, "type": "function", "function": function}));
            }
            _ => return Err(unknown(&path, block)),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !thinking.is_empty() {
        message["reasoning_content"] = json!(thinking);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    Ok(message)
}
