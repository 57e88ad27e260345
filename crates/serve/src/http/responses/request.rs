//! A request's body as the fields of a chat, and as they come back in its response.
//!
//! Invariants: a field that is known is honoured or refused, never ignored; instructions stand before everything and are
//! those of this request alone.

use super::{
    field::{Reasoning, Text, Tool},
    item::{Item, Turns},
};
use crate::{
    http::{
        error::ApiError,
        generation::{Generation, refuse},
    },
    model::ServedModel,
};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What may be asked for beside the output. All but one are of tools that this server does not run, or of what is never
/// encrypted here.
const INCLUDABLE: [&str; 8] = [
    LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// Log-probabilities of what is said.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A request.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    model: Option<String>,
    input: Input,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    store: Option<bool>,
    stream: Option<bool>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<Text>,
    #[schema(minimum = 1)]
    max_output_tokens: Option<u64>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    #[schema(maximum = 20)]
    top_logprobs: Option<u32>,
    include: Option<Vec<String>>,
    reasoning: Option<Reasoning>,
    metadata: Option<BTreeMap<String, String>>,
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    truncation: Option<String>,
    background: Option<bool>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    chat_template_kwargs: Option<Value>,
}

/// A text that a user says, or items.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = ResponseInput)]
#[serde(untagged, expecting = "expected a string or a list of items")]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// A request's fields as its response has them.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseFields)]
pub(super) struct Echo {
    instructions: Option<String>,
    max_output_tokens: Option<u64>,
    metadata: BTreeMap<String, String>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    reasoning: Reasoning,
    store: bool,
    temperature: Value,
    text: Text,
    tool_choice: Value,
    tools: Vec<Tool>,
    top_logprobs: u32,
    top_p: Value,
    truncation: &'static str,
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
}

impl ResponsesRequest {
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn keeps(&self) -> bool {
        self.store != Some(false)
    }

    pub(super) fn previous(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// Most tokens of the output.
    pub(super) fn length(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// The input's items.
    pub(super) fn items(&self) -> Vec<Item> {
        match &self.input {
            Input::Text(text) => vec![Item::user(text)],
            Input::Items(items) => items.clone(),
        }
    }

    /// Refuses what is not served.
    pub(super) fn check(&self, generation: &Generation) -> Result<(), ApiError> {
        if self.max_output_tokens == Some(0) {
            let message = "max_output_tokens must be at least 1";
            return Err(ApiError::field("max_output_tokens", message));
        }
        let verbosity = self.text.as_ref().and_then(|text| text.verbosity.as_deref());
        let summary = self.reasoning.as_ref().and_then(|reasoning| reasoning.summary.as_deref());
        let is_given = |value: &Option<Value>| value.is_some();
        refuse(
            StatusCode::BAD_REQUEST,
            &[
                ("background", self.background == Some(true)),
                ("conversation", is_given(&self.conversation)),
                ("prompt", is_given(&self.prompt)),
                ("truncation", !matches!(self.truncation.as_deref(), None | Some("disabled"))),
                ("text.verbosity", !matches!(verbosity, None | Some("medium"))),
                // Reasoning is given itself.
                ("reasoning.summary", !matches!(summary, None | Some("auto"))),
                ("n", generation.choices() > 1),
            ],
        )?;
        let unknown = |name: &&String| !INCLUDABLE.contains(&name.as_str());
        if let Some(name) = self.include.iter().flatten().find(unknown) {
            let message = format!("include must hold any of {}, got: {name:?}", INCLUDABLE.join(", "));
            return Err(ApiError::field("include", message));
        }
        self.check_tools()
    }

    fn check_tools(&self) -> Result<(), ApiError> {
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            let (path, reason) = match (tool.r#type.as_str(), &tool.name, &tool.parameters) {
                ("function", Some(name), None | Some(Value::Object(_))) if !name.is_empty() => continue,
                ("function", Some(name), _) if !name.is_empty() => {
                    ("parameters", "expected an object".to_owned())
                }
                ("function", ..) => ("name", "expected a name".to_owned()),
                (kind, ..) => ("type", format!("this server runs no tools of its own, got: {kind:?}")),
            };
            let field = format!("tools[{index}].{path}");
            return Err(ApiError::field(&field, format!("{field}: {reason}")));
        }
        Ok(())
    }

    /// The fields of the chat that continues `before`.
    pub(super) fn chat(&self, before: &[Item]) -> Result<Value, ApiError> {
        let mut turns = Turns::default();
        if let Some(instructions) = &self.instructions {
            turns.0.push(json!({"role": "system", "content": instructions}));
        }
        before.iter().try_for_each(|item| turns.add(item, "previous_response_id"))?;
        for (index, item) in self.items().iter().enumerate() {
            turns.add(item, &format!("input[{index}]"))?;
        }
        let top = self.top_logprobs.unwrap_or(0);
        let scored = top > 0 || self.include.iter().flatten().any(|name| name == LOGPROBS);
        let fields = json!({
            "messages": turns.0,
            "tools": self.tools.as_ref().map(|tools| tools.iter().map(Tool::declared).collect::<Vec<_>>()),
            "tool_choice": self.choice()?,
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": self.text.as_ref().map(|text| text.format.chat()).transpose()?,
            "reasoning_effort": self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone()),
            "chat_template_kwargs": self.chat_template_kwargs,
            "logprobs": scored, "top_logprobs": top,
        });
        Ok(fields)
    }

    fn choice(&self) -> Result<Value, ApiError> {
        match &self.tool_choice {
            Some(choice @ Value::Object(fields)) => match (&choice["type"], fields.get("name")) {
                (Value::String(kind), Some(name)) if kind == "function" => {
                    Ok(json!({"type": "function", "function": {"name": name}}))
                }
                (kind, _) => {
                    let message = format!("tool_choice.type must be function, with a name, got: {kind}");
                    Err(ApiError::field("tool_choice", message))
                }
            },
            choice => Ok(json!(choice)),
        }
    }

    /// The fields as they come back from a model.
    pub(super) fn echo(&self, model: &ServedModel) -> Echo {
        let sampling = &model.defaults.sampling;
        let or = |said: Option<f64>, default: f32| said.map_or_else(|| json!(default), |said| json!(said));
        Echo {
            instructions: self.instructions.clone(),
            max_output_tokens: self.max_output_tokens,
            metadata: self.metadata.clone().unwrap_or_default(),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            previous_response_id: self.previous_response_id.clone(),
            reasoning: self.reasoning.clone().unwrap_or_default(),
            store: self.keeps(),
            temperature: or(self.temperature, sampling.temperature),
            text: self.text.clone().unwrap_or_default(),
            tool_choice: self.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            tools: self.tools.clone().unwrap_or_default(),
            top_logprobs: self.top_logprobs.unwrap_or(0),
            top_p: or(self.top_p, sampling.top_p),
            truncation: "disabled",
            user: self.user.clone(),
            safety_identifier: self.safety_identifier.clone(),
            prompt_cache_key: self.prompt_cache_key.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: Value) -> Result<Value, String> {
        let asked: ResponsesRequest =
            serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
        let generation = Generation::read(&body).map_err(|error| error.message)?;
        let before: Vec<Item> =
            serde_json::from_value(json!([{"role": "user", "content": "Before."}])).expect("items");
        asked.check(&generation).and_then(|()| asked.chat(&before)).map_err(|error| error.message)
    }

    #[test]
    fn fields_become_a_chats() {
        let schema = json!({"type": "object"});
        let body = json!({
            "input": "Now.", "instructions": "Be brief.", "top_logprobs": 2, "parallel_tool_calls": false,
            "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": true}],
            "tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
        });
        let want = json!({
            "messages": [
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Before."},
                {"role": "user", "content": "Now."},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": true}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema, "strict": null}},
            "reasoning_effort": "low", "chat_template_kwargs": null, "logprobs": true, "top_logprobs": 2,
        });
        assert_eq!(chat(body), Ok(want));
        let scored = chat(json!({"input": [], "include": [LOGPROBS]})).expect("a chat");
        assert_eq!((&scored["logprobs"], &scored["top_logprobs"]), (&json!(true), &json!(0)));
        assert_eq!(scored["messages"], json!([{"role": "user", "content": "Before."}]));
    }

    #[test]
    fn what_is_known_and_not_served_is_refused_with_its_name() {
        for (field, value, place) in [
            ("background", json!(true), "this server does not support background"),
            ("conversation", json!("c"), "this server does not support conversation"),
            ("prompt", json!({"id": "p"}), "this server does not support prompt"),
            ("truncation", json!("auto"), "this server does not support truncation"),
            ("text", json!({"verbosity": "low"}), "this server does not support text.verbosity"),
            ("text", json!({"format": {"type": "json_schema", "schema": {}}}), "text.format.name: "),
            ("text", json!({"format": {"type": "json_schema", "name": "n"}}), "text.format.schema: "),
            ("reasoning", json!({"summary": "detailed"}), "this server does not support reasoning.summary"),
            ("n", json!(2), "this server does not support n "),
            ("include", json!(["everything"]), "include must hold any of "),
            ("max_output_tokens", json!(0), "max_output_tokens must be at least 1"),
            (
                "tools",
                json!([{"type": "web_search"}]),
                "tools[0].type: this server runs no tools of its own, got: \"web_search\"",
            ),
            ("tools", json!([{"type": "function", "name": "f", "parameters": []}]), "tools[0].parameters: "),
            ("tools", json!([{"type": "function"}]), "tools[0].name: "),
            ("tool_choice", json!({"type": "web_search"}), "tool_choice.type must be function"),
        ] {
            let mut body = json!({"input": "a"});
            body[field] = value;
            let message = chat(body).expect_err(place);
            assert!(message.starts_with(place), "{message}");
        }
        let off = json!({"input": "a", "background": false, "conversation": null, "truncation": "disabled",
            "text": {"verbosity": "medium"}, "include": ["reasoning.encrypted_content"], "tools": [], "n": 1});
        assert!(chat(off).is_ok());
    }
}
