//! The functions that a reply may call, and values of their parameters that come as bare text.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Declared functions: the JSON schema of each one's parameters, by name.
#[derive(Clone, Debug, Default)]
pub struct Functions(BTreeMap<String, Value>);

impl Functions {
    /// These functions, each with the schema of its parameters.
    pub fn new(functions: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self(functions.into_iter().collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of this name was declared.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Each with the schema of its parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, schema)| (name.as_str(), schema))
    }

    /// The schema of a parameter.
    fn schema(&self, function: &str, parameter: &str) -> Option<&Value> {
        self.0.get(function)?.get("properties")?.get(parameter)
    }

    /// Whether a parameter takes nothing but strings, so that its text is its value.
    pub(super) fn is_text(&self, function: &str, parameter: &str) -> bool {
        self.schema(function, parameter).is_some_and(|schema| kinds(schema) == ["string"])
    }

    /// The value that a text stands for: of a kind that the schema declares, or the text itself.
    pub(super) fn value(&self, function: &str, parameter: &str, text: &str) -> Value {
        let schema = self.schema(function, parameter);
        let kinds = schema.map(kinds).unwrap_or_default();
        let read = read(text.trim());
        if kinds.is_empty() {
            let known = schema.and_then(|schema| schema.get("enum")).and_then(Value::as_array);
            let named = known.into_iter().flatten().find(|value| {
                value.as_str() == Some(text) || value.as_str().is_none() && Some(*value) == read.as_ref()
            });
            return named.cloned().or(read).unwrap_or_else(|| json!(text));
        }
        let fitting =
            kinds.iter().filter(|kind| **kind != "string").find_map(|kind| fit(kind, read.as_ref()?));
        fitting.unwrap_or_else(|| json!(text))
    }
}

/// The types that a schema allows; none where it does not say.
fn kinds(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => {
            let branches = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
            branches.flat_map(kinds).collect()
        }
    }
}

/// JSON, or one of Python's words.
fn read(text: &str) -> Option<Value> {
    match text {
        "True" => Some(json!(true)),
        "False" => Some(json!(false)),
        "None" => Some(Value::Null),
        _ => serde_json::from_str(text).ok(),
    }
}

/// A value as one of a type. A whole number may have been written with a fraction of nothing.
fn fit(kind: &str, value: &Value) -> Option<Value> {
    match kind {
        "integer" => match value.as_f64() {
            _ if value.is_i64() || value.is_u64() => Some(value.clone()),
            Some(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(json!(number as i64)),
            _ => None,
        },
        "number" => value.is_number().then(|| value.clone()),
        "boolean" => value.is_boolean().then(|| value.clone()),
        "null" => value.is_null().then(|| value.clone()),
        "object" => value.is_object().then(|| value.clone()),
        "array" => value.is_array().then(|| value.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_values_of_the_declared_kind_or_stay() {
        let schema = json!({"properties": {
            "count": {"type": "integer"}, "ratio": {"type": "number"}, "on": {"type": "boolean"},
            "list": {"type": "array"}, "map": {"type": "object"}, "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "pick": {"enum": ["1", 2]},
            "either": {"type": ["integer", "string"]},
        }});
        let functions = Functions::new([("f".to_owned(), schema)]);
        for (parameter, text, value) in [
            ("count", "12.0", json!(12)),
            ("count", "12", json!(12)),
            ("count", "12.5", json!("12.5")),
            ("count", "many", json!("many")),
            ("ratio", " 0.5\n", json!(0.5)),
            ("on", "True", json!(true)),
            ("on", "yes", json!("yes")),
            ("list", "[1, 2]", json!([1, 2])),
            ("map", "{\"a\": 1}", json!({"a": 1})),
            ("map", "fn main() { }", json!("fn main() { }")),
            ("text", "12", json!("12")),
            ("maybe", "null", json!(null)),
            ("maybe", "3", json!("3")),
            ("pick", "1", json!("1")),
            ("pick", "2", json!(2)),
            ("either", "7", json!(7)),
            ("either", "7a", json!("7a")),
            ("unknown", "[3]", json!([3])),
            ("unknown", "words", json!("words")),
        ] {
            assert_eq!(functions.value("f", parameter, text), value, "{parameter} {text}");
        }
        assert!(functions.is_text("f", "text") && !functions.is_text("f", "maybe"));
    }
}
