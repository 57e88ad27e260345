//! Messages on the wire, and the conversation that a template sees.
//!
//! Invariants: content is one string, whatever its form on the wire, null and absent content the empty one; fields
//! with null are left out; every other field goes to the template as it is, but for the arguments of tool calls,
//! which templates take as objects.

use super::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Roles that messages may have.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Names under which clients send an assistant's reasoning back, best first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct Message {
    #[schema(pattern = "^(system|developer|user|assistant|tool)$")]
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(flatten)]
    #[schema(ignore)]
    more: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string, null, or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct Part {
    #[schema(pattern = "^text$")]
    r#type: String,
    #[serde(default)]
    #[schema(value_type = String, required = true)]
    text: Option<String>,
}

/// The messages as templates take them. A template that knows no `developer` sees `system` in its place.
///
/// # Errors
/// There is none, a role is unknown, or a part is not text.
pub(crate) fn conversation(messages: &[Message], developer: bool) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages must hold at least one message"));
    }
    messages.iter().enumerate().map(|(index, message)| message.value(index, developer)).collect()
}

impl Message {
    fn value(&self, index: usize, developer: bool) -> Result<Value, ApiError> {
        let role = match self.role.as_str() {
            "developer" if !developer => "system",
            role if ROLES.contains(&role) => role,
            role => {
                let field = format!("messages[{index}].role");
                let message = format!("{field} must be one of {}, got: {role:?}", ROLES.join(", "));
                return Err(ApiError::field(&field, message));
            }
        };
        let mut fields = Map::new();
        fields.insert("role".to_owned(), json!(role));
        fields.insert("content".to_owned(), json!(self.text(index)?));
        let given = |name: &&str| self.more.get(*name).is_some_and(|value| !value.is_null());
        if let Some(name) = REASONING.iter().find(|name| given(name)) {
            // Templates read one or the other.
            fields.insert("thinking".to_owned(), self.more[*name].clone());
            fields.insert("reasoning_content".to_owned(), self.more[*name].clone());
        }
        for (name, value) in self.more.iter().filter(|(_, value)| !value.is_null()) {
            fields.entry(name).or_insert_with(|| value.clone());
        }
        if let Some(calls) = fields.get_mut("tool_calls").and_then(Value::as_array_mut) {
            calls.iter_mut().for_each(read_arguments);
        }
        Ok(Value::Object(fields))
    }

    fn text(&self, index: usize) -> Result<String, ApiError> {
        let parts = match &self.content {
            None => return Ok(String::new()),
            Some(Content::Text(text)) => return Ok(text.clone()),
            Some(Content::Parts(parts)) => parts,
        };
        let text =
            parts.iter().enumerate().map(|(part_index, part)| match (part.r#type.as_str(), &part.text) {
                ("text", Some(text)) => Ok(text.as_str()),
                (kind, _) => {
                    let field = format!("messages[{index}].content[{part_index}]");
                    let wanted = "this model takes parts of type \"text\" with a \"text\"";
                    Err(ApiError::field(&field, format!("{field}: {wanted}, got: {kind:?}")))
                }
            });
        text.collect()
    }
}

/// Replaces a call's arguments, which are JSON in a string on the wire, by the object that they spell. What spells
/// none stays.
fn read_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else { return };
    let Some(text) = arguments.as_str() else { return };
    if text.trim().is_empty() {
        *arguments = json!({});
    } else if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
        *arguments = object;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(messages: Value, developer: bool) -> Result<Value, String> {
        let messages: Vec<Message> = serde_json::from_value(messages).map_err(|error| error.to_string())?;
        conversation(&messages, developer).map(Value::Array).map_err(|error| error.message)
    }

    #[test]
    fn content_is_one_string_in_whatever_form_it_comes() {
        for content in [json!("ab"), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])] {
            let message = json!([{"role": "user", "content": content}]);
            assert_eq!(seen(message, false), Ok(json!([{"role": "user", "content": "ab"}])));
        }
        for message in [json!([{"role": "user", "content": null}]), json!([{"role": "user"}])] {
            assert_eq!(seen(message, false), Ok(json!([{"role": "user", "content": ""}])));
        }
    }

    #[test]
    fn developers_are_systems_to_templates_that_do_not_know_them() {
        let message = json!([{"role": "developer", "content": "a"}]);
        assert_eq!(seen(message.clone(), false), Ok(json!([{"role": "system", "content": "a"}])));
        assert_eq!(seen(message.clone(), true), Ok(message));
    }

    #[test]
    fn arguments_become_objects_and_nulls_vanish() {
        let call = |arguments: Value| json!({"id": "1", "function": {"name": "f", "arguments": arguments}});
        for (wire, object) in [
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!(" "), json!({})),
            (json!("not json"), json!("not json")),
            (json!("[1]"), json!("[1]")),
            (json!({"a": 1}), json!({"a": 1})),
        ] {
            let message =
                json!([{"role": "assistant", "content": null, "name": null, "tool_calls": [call(wire)]}]);
            let want = json!([{"role": "assistant", "content": "", "tool_calls": [call(object)]}]);
            assert_eq!(seen(message, false), Ok(want));
        }
    }

    #[test]
    fn reasoning_is_found_under_each_of_its_names() {
        for name in REASONING {
            let message = json!([{"role": "assistant", "content": "a", name: "r"}]);
            let seen = seen(message, false).expect("accepted");
            assert_eq!((&seen[0]["reasoning_content"], &seen[0]["thinking"]), (&json!("r"), &json!("r")));
        }
    }

    #[test]
    fn what_no_template_can_take_is_refused_by_place() {
        for (messages, part) in [
            (json!([]), "messages must hold"),
            (json!([{"role": "user"}, {"role": "wizard"}]), "messages[1].role must be one of"),
            (
                json!([{"role": "user", "content": [{"type": "hologram"}]}]),
                "messages[0].content[0]: this model takes",
            ),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0]"),
        ] {
            let message = seen(messages, false).expect_err(part);
            assert!(message.starts_with(part), "{message}");
        }
    }
}
