//! Items of a response's input as the messages of a chat.
//!
//! Invariants: text is the same whether it comes as a string or as parts; what the assistant thought, said and called
//! between two other turns is one message, as templates have it; what cannot go to the model is refused by place.

use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// An item of any type, with the fields of all that are read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseInputItem)]
pub(super) struct Item {
    /// `message` where it is absent and there is a role.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(system|developer|user|assistant)$")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Vec<Part>>,
}

/// A text, or parts of one.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseInputContent)]
#[serde(untagged, expecting = "expected a string or a list of parts")]
pub(super) enum Content {
    /// All of it.
    Text(String),
    /// In parts.
    Parts(Vec<Part>),
}

/// A part of a text.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseInputPart)]
pub(super) struct Part {
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

/// The messages that items become, in their order.
#[derive(Debug, Default)]
pub(super) struct Turns(pub(super) Vec<Value>);

impl Item {
    /// What a user says.
    pub(super) fn user(text: &str) -> Self {
        Self {
            role: Some("user".to_owned()),
            content: Some(Content::Text(text.to_owned())),
            ..Self::default()
        }
    }
}

impl Content {
    fn text(&self, path: &str) -> Result<String, ApiError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Parts(parts) => parts_text(parts, path),
        }
    }
}

/// The text of parts.
fn parts_text(parts: &[Part], path: &str) -> Result<String, ApiError> {
    let text = parts.iter().enumerate().map(|(index, part)| {
        match (part.r#type.as_str(), &part.text, &part.refusal) {
            ("input_text" | "output_text" | "text" | "reasoning_text" | "summary_text", Some(text), _)
            | ("refusal", _, Some(text)) => Ok(text.as_str()),
            (kind, ..) => {
                let field = format!("{path}[{index}]");
                let message = format!("{field}: this model takes parts of text, got: {kind:?}");
                Err(ApiError::field(&field, message))
            }
        }
    });
    text.collect()
}

impl Turns {
    /// Adds an item, which stands at `path`.
    pub(super) fn add(&mut self, item: &Item, path: &str) -> Result<(), ApiError> {
        let kind = item.r#type.as_deref().or(item.role.as_ref().map(|_| "message"));
        match kind {
            Some("message") => self.message(item, path),
            Some("reasoning") => self.reasoning(item, path),
            Some("function_call") => {
                let (name, arguments) =
                    (wanted(&item.name, path, "name")?, wanted(&item.arguments, path, "arguments")?);
                let id = wanted(&item.call_id, path, "call_id")?;
                let function = json!({"name": name, "arguments": arguments});
                self.call(json!({"id": id, "type": "function", "function": function}));
                Ok(())
            }
            Some("function_call_output") => {
                let id = wanted(&item.call_id, path, "call_id")?;
                let output = wanted(&item.output, path, "output")?.text(&format!("{path}.output"))?;
                self.0.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
                Ok(())
            }
            kind => {
                let field = format!("{path}.type");
                let message =
                    format!("{field}: this server takes no items of this type, got: {}", json!(kind));
                Err(ApiError::field(&field, message))
            }
        }
    }

    fn message(&mut self, item: &Item, path: &str) -> Result<(), ApiError> {
        let role = wanted(&item.role, path, "role")?.as_str();
        if !["system", "developer", "user", "assistant"].contains(&role) {
            let field = format!("{path}.role");
            let message = format!("{field} must be one of system, developer, user, assistant, got: {role:?}");
            return Err(ApiError::field(&field, message));
        }
        let content = item.content.as_ref().map(|content| content.text(&format!("{path}.content")));
        let content = content.transpose()?.unwrap_or_default();
        match self.assistant() {
            // It was thinking before it said this.
            Some(last)
                if role == "assistant" && last["content"] == "" && last.get("tool_calls").is_none() =>
            {
                last["content"] = json!(content);
            }
            _ => self.0.push(json!({"role": role, "content": content})),
        }
        Ok(())
    }

    /// Reasoning in words, else what sums it up. What is encrypted nobody but its maker can read.
    fn reasoning(&mut self, item: &Item, path: &str) -> Result<(), ApiError> {
        let content = item.content.as_ref().map(|content| content.text(&format!("{path}.content")));
        let summary = item.summary.as_deref().unwrap_or_default();
        let text = match content.transpose()?.filter(|text| !text.is_empty()) {
            Some(text) => text,
            None => parts_text(summary, &format!("{path}.summary"))?,
        };
        if !text.is_empty() {
            self.0.push(json!({"role": "assistant", "content": "", "reasoning_content": text}));
        }
        Ok(())
    }

    fn call(&mut self, call: Value) {
        match self.assistant() {
            Some(last) => match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => last["tool_calls"] = json!([call]),
            },
            None => self.0.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
        }
    }

    /// The last message, if the assistant's.
    fn assistant(&mut self) -> Option<&mut Value> {
        self.0.last_mut().filter(|last| last["role"] == "assistant")
    }
}

/// A field that an item of its type must have.
fn wanted<'a, T>(field: &'a Option<T>, path: &str, name: &str) -> Result<&'a T, ApiError> {
    field.as_ref().ok_or_else(|| {
        let field = format!("{path}.{name}");
        let message = format!("{field}: this field is required");
        ApiError::field(&field, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(items: Value) -> Result<Value, String> {
        let items: Vec<Item> = serde_json::from_value(items).map_err(|error| error.to_string())?;
        let mut turns = Turns::default();
        for (index, item) in items.iter().enumerate() {
            turns.add(item, &format!("input[{index}]")).map_err(|error| error.message)?;
        }
        Ok(Value::Array(turns.0))
    }

    #[test]
    fn what_the_assistant_did_between_two_turns_is_one_message() {
        let items = json!([
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "We"}, {"type": "input_text", "text": "ather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "Well.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "18"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "19"}]},
            {"type": "reasoning", "encrypted_content": "x", "summary": []},
            {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]);
        let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
        let want = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "Well.", "reasoning_content": "hm", "tool_calls": [call("c1", "f"), call("c2", "g")]},
            {"role": "tool", "tool_call_id": "c1", "content": "18"},
            {"role": "tool", "tool_call_id": "c2", "content": "19"},
            {"role": "assistant", "content": "", "tool_calls": [call("c3", "f")]},
            {"role": "assistant", "content": "No."},
        ]);
        assert_eq!(turns(items), Ok(want));
    }

    #[test]
    fn reasoning_is_its_words_else_what_sums_it_up() {
        for (item, text) in [
            (json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}), "s"),
            (
                json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": [
                    {"type": "reasoning_text", "text": "c"}]}),
                "c",
            ),
        ] {
            let want = json!([{"role": "assistant", "content": "", "reasoning_content": text}]);
            assert_eq!(turns(json!([item])), Ok(want));
        }
    }

    #[test]
    fn what_no_model_takes_is_refused_by_place() {
        for (item, place) in [
            (json!({"type": "item_reference", "id": "x"}), "input[0].type: "),
            (json!({"type": "web_search_call", "id": "x"}), "input[0].type: "),
            (json!({}), "input[0].type: "),
            (json!({"role": "tool", "content": "x"}), "input[0].role must be"),
            (json!({"type": "message", "content": "x"}), "input[0].role: "),
            (json!({"role": "user", "content": [{"type": "input_image"}]}), "input[0].content[0]: "),
            (json!({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0]: "),
            (json!({"type": "function_call", "name": "f", "arguments": "{}"}), "input[0].call_id: "),
            (json!({"type": "function_call_output", "call_id": "c"}), "input[0].output: "),
        ] {
            let message = turns(json!([item])).expect_err(place);
            assert!(message.starts_with(place), "{message}");
        }
    }
}
