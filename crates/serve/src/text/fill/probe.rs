//! Arguments that a call of a function may have: so many and so different that what all calls share is determined.
//!
//! Objects are taken to be written in the order of their declaration, as models do: before the first argument that must be given
//! there may stand any that is declared before it. Each of those is tried first, with values of its type whose texts begin and end
//! in as many ways as tokenisers could merge with what stands around them.

use serde_json::{Map, Value, json};

/// Texts of all kinds; the first and the last byte of each matter.
const TEXTS: [&str; 16] =
    ["Paris", "a b", "42", "/x", "", "{\"a\": [1]}", "-", ".", "<b>", "\n", "'", "(", "$", "_", "é", " "];

/// Most arguments of one function: a call with each of them is rendered.
const MOST: usize = 256;

/// Arguments of calls, at least one; nothing where there would be too many.
pub(super) fn arguments(schema: &Value) -> Option<Vec<Value>> {
    let properties = match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => properties,
        // Anything may be given.
        None => return Some(vec![json!({}), json!({"a": 1}), json!({"b": "c"})]),
    };
    let required = required(schema);
    let first = properties.iter().position(|(name, _)| required.contains(&name.as_str()));
    let leading = properties.iter().take(first.map_or(properties.len(), |first| first + 1));
    let one = |name: &str, value: Value| {
        let mut arguments = Map::new();
        arguments.insert(name.to_owned(), value);
        Value::Object(arguments)
    };
    let mut all: Vec<Value> = leading
        .flat_map(|(name, schema)| values(schema).into_iter().map(move |value| (name, value)))
        .map(|(name, value)| one(name, value))
        .take(MOST + 1)
        .collect();
    if first.is_none() {
        all.push(json!({}));
    }
    (all.len() <= MOST).then_some(all)
}

/// The names that must be given.
pub(super) fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The one type of a value, where there is one.
pub(super) fn kind(schema: &Value) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

/// Values that a schema may allow.
fn values(schema: &Value) -> Vec<Value> {
    if let Some(value) = schema.get("const") {
        return vec![value.clone()];
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty()) {
        return values.iter().take(MOST + 1).cloned().collect();
    }
    match kind(schema).and_then(of_kind) {
        Some(values) => values,
        None => ["string", "number", "boolean", "array", "object", "null"]
            .into_iter()
            .filter_map(of_kind)
            .flatten()
            .collect(),
    }
}

fn of_kind(kind: &str) -> Option<Vec<Value>> {
    Some(match kind {
        "string" => TEXTS.iter().map(|text| json!(text)).collect(),
        "integer" => vec![json!(7), json!(-1), json!(42), json!(100), json!(0)],
        "number" => vec![json!(7), json!(-1), json!(42), json!(0.5), json!(-2.5), json!(0)],
        "boolean" => vec![json!(true), json!(false)],
        "array" => vec![json!([]), json!(["a"]), json!([1]), json!([{"a": 1}]), json!([[]])],
        "object" => vec![json!({}), json!({"a": 1}), json!({"b": "c"})],
        "null" => vec![json!(null)],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(schema: Value) -> Vec<String> {
        let mut keys: Vec<String> = arguments(&schema)
            .unwrap_or_default()
            .iter()
            .map(|it| it.as_object().and_then(|it| it.keys().next()).cloned().unwrap_or_default())
            .collect();
        keys.dedup();
        keys
    }

    #[test]
    fn each_argument_that_may_come_first_is_tried() {
        let properties = json!({"a": {"type": "boolean"}, "b": {"type": "string"}, "c": {}});
        assert_eq!(keys(json!({"properties": properties, "required": ["b", "c"]})), ["a", "b"]);
        assert_eq!(keys(json!({"properties": properties, "required": ["c", "a"]})), ["a"]);
        assert_eq!(keys(json!({"properties": properties})), ["a", "b", "c", ""]);
        // A function of no arguments, and one of which nothing is said.
        assert_eq!(arguments(&json!({"properties": {}})), Some(vec![json!({})]));
        assert_eq!(keys(json!({"type": "object"})), ["", "a", "b"]);
    }

    #[test]
    fn a_function_of_too_many_arguments_is_left_alone() {
        let of = |count: usize| {
            let values: Vec<usize> = (0..count).collect();
            arguments(&json!({"properties": {"a": {"enum": values}}, "required": ["a"]}))
        };
        assert_eq!(of(MOST).map(|all| all.len()), Some(MOST));
        assert_eq!(of(MOST + 1), None);
    }

    #[test]
    fn values_are_of_the_types_that_are_declared() {
        let of = |schema: Value| values(&schema);
        assert_eq!(of(json!({"const": 3})), [json!(3)]);
        assert_eq!(of(json!({"enum": ["x", "y"], "type": "string"})), [json!("x"), json!("y")]);
        assert!(of(json!({"type": "integer"})).iter().all(Value::is_i64));
        assert!(of(json!({"type": "string"})).iter().all(Value::is_string));
        // Where it is not said, or several are, anything may come.
        for schema in
            [json!({}), json!({"type": ["string", "null"]}), json!({"anyOf": []}), json!({"enum": []})]
        {
            assert!(of(schema.clone()).len() > 20, "{schema}");
        }
    }
}
