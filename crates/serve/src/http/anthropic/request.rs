//! Anthropic's messages as the fields of a chat.
//!
//! Invariants: text is the same whether it comes as a string or as blocks; results of tools stand before the text of
//! their turn; a last turn of the assistant that is text is continued; a system block that only bills, and changes with
//! each request, is no part of the prompt.

use crate::{
    http::{error::ApiError, generation::in_range},
    model::ModelText,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// What a system block that only bills begins with.
const BILLING: &str = "x-anthropic-billing-header:";

/// A request.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    messages: Vec<Turn>,
    max_tokens: Option<u64>,
    system: Option<Content>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct Turn {
    role: String,
    content: Content,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = MessageContent)]
#[serde(untagged, expecting = "expected a string or a list of blocks")]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// A block of any type, with the fields of all.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
struct Block {
    #[serde(default)]
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    tool_use_id: Option<String>,
    #[schema(no_recursion)]
    content: Option<Box<Content>>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = MessageTool)]
struct Tool {
    r#type: Option<String>,
    name: String,
    description: Option<String>,
    input_schema: Option<Value>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ToolChoice {
    r#type: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct Thinking {
    r#type: String,
}

impl MessagesRequest {
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn stops(&self) -> Vec<String> {
        self.stop_sequences.clone().unwrap_or_default()
    }

    /// Refuses what is not in range and not a message.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        if self.model.is_none() {
            return Err(ApiError::field("model", "model: this field is required"));
        }
        in_range("temperature", self.temperature, 0.0..=1.0)?;
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "messages must hold at least one message"));
        }
        Ok(())
    }

    /// Refuses an answer of no stated length.
    pub(super) fn check_length(&self) -> Result<(), ApiError> {
        let missing = || ApiError::field("max_tokens", "max_tokens: this field is required");
        self.max_tokens.map(|_| ()).ok_or_else(missing)
    }

    /// The fields of the chat, and the text with which its answer begins.
    pub(super) fn chat(&self, text: &ModelText) -> Result<(Value, String), ApiError> {
        let mut messages = Vec::new();
        if let Some(system) = &self.system {
            let parts = texts(system, "system")?;
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.starts_with(BILLING)).collect();
            if !parts.is_empty() {
                messages.push(json!({"role": "system", "content": parts.join("\n\n")}));
            }
        }
        let mut continued = String::new();
        for (index, turn) in self.messages.iter().enumerate() {
            let path = format!("messages[{index}]");
            match turn.role.as_str() {
                "user" => user(&turn.content, &path, &mut messages)?,
                "assistant" => {
                    let message = assistant(&turn.content, &path)?;
                    let plain = message.get("tool_calls").is_none();
                    match message["content"].as_str() {
                        Some(text) if plain && index + 1 == self.messages.len() && !text.is_empty() => {
                            continued = text.to_owned();
                        }
                        _ => messages.push(message),
                    }
                }
                role => {
                    let field = format!("{path}.role");
                    let message = format!("{field} must be user or assistant, got: {role:?}");
                    return Err(ApiError::field(&field, message));
                }
            }
        }
        let mut fields = json!({"messages": messages, "stop": self.stops()});
        let numbers = [
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("temperature", self.temperature.map(Value::from)),
            ("top_p", self.top_p.map(Value::from)),
            ("top_k", self.top_k.map(Value::from)),
        ];
        for (name, value) in numbers {
            fields[name] = json!(value);
        }
        self.add_tools(&mut fields)?;
        self.add_thinking(&mut fields, text)?;
        Ok((fields, continued))
    }

    fn add_tools(&self, fields: &mut Value) -> Result<(), ApiError> {
        let mut tools = Vec::new();
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            if let Some(kind) = tool.r#type.as_deref().filter(|kind| *kind != "custom") {
                let field = format!("tools[{index}].type");
                let message = format!("{field}: this server runs no tools of its own, got: {kind:?}");
                return Err(ApiError::field(&field, message));
            }
            let mut function = Map::new();
            function.insert("name".to_owned(), json!(tool.name));
            if let Some(description) = &tool.description {
                function.insert("description".to_owned(), json!(description));
            }
            if let Some(schema) = &tool.input_schema {
                function.insert("parameters".to_owned(), schema.clone());
            }
            tools.push(json!({"type": "function", "function": function}));
        }
        if !tools.is_empty() {
            fields["tools"] = json!(tools);
        }
        let Some(choice) = &self.tool_choice else { return Ok(()) };
        fields["tool_choice"] = match (choice.r#type.as_str(), &choice.name) {
            (word @ ("auto" | "none"), _) => json!(word),
            ("any", _) => json!("required"),
            ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
            (kind, _) => {
                let message =
                    format!("tool_choice.type must be auto, any, none, or tool with a name, got: {kind:?}");
                return Err(ApiError::field("tool_choice", message));
            }
        };
        if choice.disable_parallel_tool_use == Some(true) {
            fields["parallel_tool_calls"] = json!(false);
        }
        Ok(())
    }

    /// Thinking is off where it is not asked for, as far as the template can turn it off.
    fn add_thinking(&self, fields: &mut Value, text: &ModelText) -> Result<(), ApiError> {
        let on = match self.thinking.as_ref().map(|thinking| thinking.r#type.as_str()) {
            None | Some("disabled") => false,
            Some("enabled" | "adaptive") => true,
            Some(kind) => {
                let message = format!("thinking.type must be enabled, adaptive or disabled, got: {kind:?}");
                return Err(ApiError::field("thinking", message));
            }
        };
        if text.template.as_ref().is_some_and(|template| template.reads("enable_thinking")) {
            fields["chat_template_kwargs"] = json!({"enable_thinking": on});
        }
        Ok(())
    }
}

/// The texts of a content that may hold nothing else.
fn texts<'a>(content: &'a Content, path: &str) -> Result<Vec<&'a str>, ApiError> {
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
fn user(content: &Content, path: &str, messages: &mut Vec<Value>) -> Result<(), ApiError> {
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
                let result = inner.transpose()?.unwrap_or_default().concat();
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
fn assistant(content: &Content, path: &str) -> Result<Value, ApiError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Tokenizer;

    fn chat(body: Value) -> Result<(Value, String), String> {
        let text = ModelText::new(
            Tokenizer::bytes().expect("a tokeniser"),
            Some("{{ enable_thinking }}{% for m in messages %}{% endfor %}"),
        );
        let asked: MessagesRequest = serde_json::from_value(body).map_err(|error| error.to_string())?;
        asked.chat(&text.expect("a template")).map_err(|error| error.message)
    }

    #[test]
    fn turns_become_messages() {
        let body = json!({
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "We"}, {"type": "text", "text": "ather?"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Well."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "18"}], "is_error": false},
                    {"type": "tool_result", "tool_use_id": "t2"}, {"type": "text", "text": "and?"},
                ]},
                {"role": "assistant", "content": "It"},
            ],
            "max_tokens": 5, "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "stop_sequences": ["x"],
        });
        let (fields, continued) = chat(body).expect("a chat");
        let function = json!({"name": "f", "arguments": "{\"a\":1}"});
        let want = json!({
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": "Well.", "reasoning_content": "hm",
                    "tool_calls": [{"id": "t1", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "t1", "content": "18"},
                {"role": "tool", "tool_call_id": "t2", "content": ""},
                {"role": "user", "content": "and?"},
            ],
            "stop": ["x"], "max_tokens": 5, "temperature": null, "top_p": null, "top_k": null,
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            "tool_choice": "required", "parallel_tool_calls": false,
            "chat_template_kwargs": {"enable_thinking": false},
        });
        assert_eq!((fields, continued.as_str()), (want, "It"));
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_place() {
        let turn = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
        let mut choice = turn(json!("a"));
        choice["tool_choice"] = json!({"type": "tool"});
        let mut tools = turn(json!("a"));
        tools["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
        for (body, place) in [
            (json!({"messages": [{"role": "system", "content": "a"}]}), "messages[0].role must be"),
            (turn(json!([{"type": "image", "source": {}}])), "messages[0].content[0]: "),
            (turn(json!([{"type": "tool_result"}])), "messages[0].content[0]: "),
            (choice, "tool_choice.type must be"),
            (tools, "tools[0].type: "),
        ] {
            let message = chat(body).expect_err(place);
            assert!(message.starts_with(place), "{message}");
        }
    }
}
