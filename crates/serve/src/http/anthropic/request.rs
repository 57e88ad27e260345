//! Anthropic's messages as the fields of a chat.
//!
//! Invariants: a last turn of the assistant that is text is continued; a system block that only bills, and changes with
//! each request, is no part of the prompt; thinking is refused where the model cannot be asked for it.

use super::turn::{Content, Turn, assistant, texts, user};
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
    #[schema(value_type = String, required = true)]
    model: Option<String>,
    #[schema(min_items = 1)]
    messages: Vec<Turn>,
    /// Not needed where tokens are counted.
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    system: Option<Content>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    #[schema(minimum = 0, maximum = 1)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    top_k: Option<u32>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = MessageTool)]
struct Tool {
    #[schema(pattern = "^custom$")]
    r#type: Option<String>,
    name: String,
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Value>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ToolChoice {
    #[schema(pattern = "^(auto|any|tool|none)$")]
    r#type: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct Thinking {
    #[schema(pattern = "^(enabled|adaptive|disabled)$")]
    r#type: String,
    /// A wish, as it is there: thinking ends when the model ends it.
    budget_tokens: Option<u64>,
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

    /// Thinking is off where it is not asked for, as far as the template can turn it off. A model that decides for itself may
    /// also decide against it; one that never thinks cannot be told to.
    fn add_thinking(&self, fields: &mut Value, text: &ModelText) -> Result<(), ApiError> {
        let kind = self.thinking.as_ref().map(|thinking| thinking.r#type.as_str());
        let on = match kind {
            None | Some("disabled") => false,
            Some("enabled" | "adaptive") => true,
            Some(kind) => {
                let message = format!("thinking.type must be enabled, adaptive or disabled, got: {kind:?}");
                return Err(ApiError::field("thinking", message));
            }
        };
        if self.thinking.as_ref().and_then(|thinking| thinking.budget_tokens) == Some(0) {
            return Err(ApiError::field("thinking", "thinking.budget_tokens must be at least 1"));
        }
        if text.template.as_ref().is_some_and(|template| template.reads("enable_thinking")) {
            fields["chat_template_kwargs"] = json!({"enable_thinking": on});
        } else if kind == Some("enabled") && !text.style.reasons() {
            return Err(ApiError::field("thinking", "thinking: this model does not think before it answers"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Tokenizer;

    /// Templates of models that think when they are told to, always, and never.
    const TOLD: &str = "{{ enable_thinking }}{% for m in messages %}{% endfor %}";
    const ALWAYS: &str = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<think>\n";
    const NEVER: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

    fn chat(body: Value) -> Result<(Value, String), String> {
        chat_of(body, TOLD)
    }

    fn chat_of(body: Value, template: &str) -> Result<(Value, String), String> {
        let text = ModelText::new(Tokenizer::bytes().expect("a tokeniser"), Some(template));
        let asked: MessagesRequest = serde_json::from_value(body).map_err(|error| error.to_string())?;
        asked.chat(&text.expect("a template")).map_err(|error| error.message)
    }

    #[test]
    fn thinking_is_as_asked_for_or_refused() {
        let body =
            |thinking: Value| json!({"messages": [{"role": "user", "content": "a"}], "thinking": thinking});
        let variables = |thinking: Value, template| {
            let asked = chat_of(body(thinking), template);
            asked.map(|(fields, _)| fields["chat_template_kwargs"].clone())
        };
        let enabled = || json!({"type": "enabled", "budget_tokens": 2048});
        for (thinking, on) in [
            (enabled(), true),
            (json!({"type": "adaptive"}), true),
            (json!({"type": "disabled"}), false),
            (json!(null), false),
        ] {
            assert_eq!(variables(thinking.clone(), TOLD), Ok(json!({"enable_thinking": on})), "{thinking}");
            let refused = variables(thinking.clone(), NEVER).is_err();
            assert_eq!(refused, thinking == enabled(), "{thinking}");
        }
        assert_eq!(variables(enabled(), ALWAYS), Ok(Value::Null));
        for thinking in [json!({"type": "much"}), json!({"type": "enabled", "budget_tokens": 0})] {
            assert!(variables(thinking.clone(), TOLD).is_err(), "{thinking}");
        }
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
                    {"type": "tool_result", "tool_use_id": "t3", "content": "no such town", "is_error": true},
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
                {"role": "tool", "tool_call_id": "t3", "content": "Error: no such town"},
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
