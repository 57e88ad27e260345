//! The functions that a chat may call: their declarations, the choice among them, and how a model that has no way of
//! its own to call is told one.
//!
//! Invariants: a declaration that cannot be used is refused by its place; what the template takes goes to it as it
//! came. A template that reads no tools, or whose calls are of no known form, is given them as a system message, and
//! calls and results in the history as text, in the form of Hermes 2 Pro
//! (<https://github.com/NousResearch/Hermes-Function-Calling>).

use super::error::ApiError;
use crate::{
    model::ModelText,
    text::reply::{Functions, Style},
};
use serde_json::{Map, Value, json};
use tandem_spec::grammar::Grammar;
use utoipa::openapi::{
    RefOr, Schema,
    schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type},
};

/// Stands before the declarations.
const BEFORE: &str = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";

/// Stands behind them.
const BEHIND: &str = "</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

/// What `tools` may be.
pub(crate) fn list_schema() -> RefOr<Schema> {
    let word = |words: &[&'static str]| {
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.to_vec()))
    };
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let function = ObjectBuilder::new()
        .property("name", text().min_length(Some(1)))
        .property("description", text())
        .property("parameters", ObjectBuilder::new().schema_type(Type::Object))
        .required("name");
    let tool = ObjectBuilder::new()
        .property("type", word(&["function"]))
        .property("function", function)
        .required("type")
        .required("function");
    ArrayBuilder::new().items(tool).into()
}

/// What `tool_choice` may be.
pub(crate) fn choice_schema() -> RefOr<Schema> {
    let words = ["none", "auto", "required"];
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    let name = ObjectBuilder::new()
        .property("name", ObjectBuilder::new().schema_type(Type::String))
        .required("name");
    let kind = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["function"]));
    let named = ObjectBuilder::new().property("type", kind).property("function", name).required("function");
    OneOfBuilder::new().item(word).item(named).into()
}

/// Which functions may or must be called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Choice {
    /// None.
    None,
    /// As the model likes.
    Auto,
    /// Any.
    Required,
    /// This one.
    Named(String),
}

impl Choice {
    /// What `tool_choice` says; `auto` where it is absent.
    pub(crate) fn read(value: Option<&Value>, functions: &Functions) -> Result<Self, ApiError> {
        let refused = |reason: String| ApiError::field("tool_choice", format!("tool_choice: {reason}"));
        let choice = match value {
            None | Some(Value::Null) => Self::Auto,
            Some(Value::String(word)) => match word.as_str() {
                "none" => Self::None,
                "auto" => Self::Auto,
                "required" => Self::Required,
                _ => {
                    return Err(refused(format!(
                        "expected none, auto, required or a function, got: {word:?}"
                    )));
                }
            },
            Some(object) => match object.pointer("/function/name").and_then(Value::as_str) {
                Some(name) if functions.has(name) => Self::Named(name.to_owned()),
                Some(name) => return Err(refused(format!("there is no function of this name: {name:?}"))),
                None => return Err(refused("expected a function with its name".to_owned())),
            },
        };
        if choice == Self::Required && functions.is_empty() {
            return Err(refused("there are no functions to call".to_owned()));
        }
        Ok(choice)
    }

    /// What a reply must be where a function must be called: one call as a JSON object, with arguments as declared.
    pub(crate) fn grammar(&self, functions: &Functions) -> Option<Grammar> {
        let wanted = |name: &str| match self {
            Self::None | Self::Auto => false,
            Self::Required => true,
            Self::Named(named) => name == named,
        };
        let wanted = functions.iter().filter(|(name, _)| wanted(name)).enumerate();
        let calls: Vec<Value> = wanted
            .map(|(index, (name, schema))| {
                let mut arguments = schema.clone();
                reroot(&mut arguments, &format!("#/anyOf/{index}/properties/arguments"));
                json!({
                    "type": "object", "properties": {"name": {"const": name}, "arguments": arguments},
                    "required": ["name", "arguments"], "additionalProperties": false,
                })
            })
            .collect();
        (!calls.is_empty()).then(|| Grammar::Schema(json!({"anyOf": calls})))
    }
}

/// Makes references into a schema's own document ones into the document that holds it at `root`.
fn reroot(schema: &mut Value, root: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(to) if key == "$ref" && to.starts_with('#') => {
                        *to = format!("{root}{}", &to[1..])
                    }
                    value => reroot(value, root),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| reroot(item, root)),
        _ => {}
    }
}

/// The functions that `tools` declares.
pub(crate) fn declared(tools: &[Value]) -> Result<Functions, ApiError> {
    let function = |(index, tool): (usize, &Value)| {
        let refused = |path: &str, reason: &str| {
            let field = format!("tools[{index}]{path}");
            Err(ApiError::field(&field, format!("{field}: {reason}")))
        };
        if tool.get("type").is_some_and(|kind| kind != "function") {
            return refused(".type", "this server takes tools of type \"function\"");
        }
        let Some(function) = tool.get("function").filter(|function| function.is_object()) else {
            return refused(".function", "expected an object");
        };
        let Some(name) = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return refused(".function.name", "expected a name");
        };
        match function.get("parameters") {
            None | Some(Value::Null) => Ok((name.to_owned(), json!({"type": "object", "properties": {}}))),
            Some(schema) if schema.is_object() => Ok((name.to_owned(), schema.clone())),
            Some(_) => refused(".function.parameters", "expected an object"),
        }
    };
    let functions: Vec<(String, Value)> =
        tools.iter().enumerate().map(function).collect::<Result<_, ApiError>>()?;
    Ok(Functions::new(functions))
}

/// How a model writes calls, and whether it must be told.
pub(crate) fn style(text: &ModelText) -> (Style, bool) {
    let takes = text.template.as_ref().is_some_and(|template| template.reads("tools"));
    if takes && text.style.calls() { (text.style, false) } else { (text.style.tagged(), true) }
}

/// Tells a conversation's model of functions: declarations in its system message, calls and results as text.
pub(crate) fn tell(messages: &mut Vec<Value>, tools: &[Value]) {
    let mut told = BEFORE.to_owned();
    for tool in tools {
        told.push_str(&tool.to_string());
        told.push('\n');
    }
    told.push_str(BEHIND);
    match messages.first_mut() {
        Some(first) if first["role"] == "system" => {
            let system = first["content"].as_str().unwrap_or_default();
            first["content"] = json!(format!("{system}\n\n{told}"));
        }
        _ => messages.insert(0, json!({"role": "system", "content": told})),
    }
    spell(messages);
}

/// Writes calls and results of a history as text.
pub(crate) fn spell(messages: &mut Vec<Value>) {
    let mut spelt: Vec<Value> = Vec::new();
    for mut message in messages.drain(..) {
        let content = message["content"].as_str().unwrap_or_default();
        if message["role"] == "tool" {
            let text = format!("<tool_response>\n{content}\n</tool_response>");
            match spelt.last_mut() {
                // Results of one turn stand in one message.
                Some(last) if last["role"] == "user" && last.get("results").is_some() => {
                    let before = last["content"].as_str().unwrap_or_default();
                    last["content"] = json!(format!("{before}\n{text}"));
                }
                _ => spelt.push(json!({"role": "user", "content": text, "results": true})),
            }
            continue;
        }
        if let Some(calls) = message.as_object_mut().and_then(|fields| fields.remove("tool_calls")) {
            let content = message["content"].as_str().unwrap_or_default().to_owned();
            let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
            let texts = [content].into_iter().filter(|text| !text.is_empty()).chain(calls.iter().map(call));
            message["content"] = json!(texts.collect::<Vec<_>>().join("\n"));
        }
        spelt.push(message);
    }
    for message in &mut spelt {
        if let Some(fields) = message.as_object_mut() {
            fields.remove("results");
        }
    }
    *messages = spelt;
}

fn call(call: &Value) -> String {
    let mut object = Map::new();
    for field in ["name", "arguments"] {
        object.insert(field.to_owned(), call["function"][field].clone());
    }
    format!("<tool_call>\n{}\n</tool_call>", Value::from(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(tools: Value) -> String {
        declared(tools.as_array().expect("a list")).expect_err("refused").message
    }

    #[test]
    fn declarations_that_cannot_be_used_are_refused_by_place() {
        let good = json!({"type": "function", "function": {"name": "f", "parameters": null}});
        assert!(declared(std::slice::from_ref(&good)).is_ok_and(|functions| functions.has("f")));
        for (tool, place) in [
            (json!({"type": "function"}), "tools[1].function: "),
            (json!(3), "tools[1].function: "),
            (json!({"type": "web_search"}), "tools[1].type: "),
            (json!({"type": "function", "function": {"name": ""}}), "tools[1].function.name: "),
            (json!({"function": {"name": "f", "parameters": [1]}}), "tools[1].function.parameters: "),
        ] {
            let message = refusal(json!([good, tool]));
            assert!(message.starts_with(place), "{message}");
        }
    }

    #[test]
    fn choices_name_declared_functions() {
        let functions = Functions::new([("f".to_owned(), json!({}))]);
        let read = |value: Value| Choice::read(Some(&value), &functions).map_err(|error| error.message);
        assert_eq!(read(json!(null)), Ok(Choice::Auto));
        assert_eq!(read(json!("required")), Ok(Choice::Required));
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        assert_eq!(read(named("f")), Ok(Choice::Named("f".to_owned())));
        for value in [named("g"), json!("always"), json!({}), json!(3)] {
            assert!(read(value.clone()).is_err(), "{value}");
        }
        assert!(Choice::read(Some(&json!("required")), &Functions::default()).is_err());
    }

    #[test]
    fn a_call_that_must_come_is_bound_to_its_schema() {
        let schema = json!({"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "null"}}});
        let functions = Functions::new([("f".to_owned(), json!({})), ("g".to_owned(), schema)]);
        assert_eq!((Choice::Auto.grammar(&functions), Choice::None.grammar(&functions)), (None, None));
        let Some(Grammar::Schema(named)) = Choice::Named("g".to_owned()).grammar(&functions) else {
            panic!("a schema")
        };
        assert_eq!(named["anyOf"].as_array().map(Vec::len), Some(1));
        assert_eq!(named["anyOf"][0]["properties"]["name"], json!({"const": "g"}));
        let reference = &named["anyOf"][0]["properties"]["arguments"]["properties"]["x"]["$ref"];
        let path = reference.as_str().and_then(|path| path.strip_prefix('#')).expect("a reference");
        assert_eq!(named.pointer(path), Some(&json!({"type": "null"})));
        let Some(Grammar::Schema(any)) = Choice::Required.grammar(&functions) else { panic!("a schema") };
        assert_eq!(any["anyOf"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_model_without_tools_is_told_of_them_in_text() {
        let call = |city: &str| json!({"id": "1", "function": {"name": "f", "arguments": {"city": city}}});
        let mut messages = vec![
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "assistant", "content": "Well.", "tool_calls": [call("a"), call("b")]}),
            json!({"role": "tool", "content": "1", "tool_call_id": "1"}),
            json!({"role": "tool", "content": "2"}),
            json!({"role": "user", "content": "And?"}),
        ];
        tell(&mut messages, &[json!({"type": "function", "function": {"name": "f"}})]);
        let system = messages[0]["content"].as_str().expect("a text");
        assert!(system.starts_with("Be brief.\n\n# Tools\n"), "{system}");
        assert!(system.contains("<tools>\n{\"type\":\"function\",\"function\":{\"name\":\"f\"}}\n</tools>"));
        let called = |city: &str| {
            format!("<tool_call>\n{{\"name\":\"f\",\"arguments\":{{\"city\":\"{city}\"}}}}\n</tool_call>")
        };
        let results = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>";
        let want = [
            json!({"role": "assistant", "content": format!("Well.\n{}\n{}", called("a"), called("b"))}),
            json!({"role": "user", "content": results}),
            json!({"role": "user", "content": "And?"}),
        ];
        assert_eq!(messages[1..], want);
    }
}
