//! JSON schemas: what of them is checked here so that an error has its place, and how JSON is written.

use super::Error;
use serde_json::{Map, Value, json};

/// What constrains a value and is enforced by nobody here.
const UNENFORCED: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "$dynamicAnchor",
];

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Parts of a schema that are looked at to find an error.
const LOOKS: usize = 200;

/// Depth of schemas in schemas.
const DEPTH: usize = 100;

/// The schema of any object.
pub(super) fn object() -> Value {
    with_options(&json!({"type": "object"}))
}

/// The schema with what JSON is written like, and nothing that a client could say of that.
pub(super) fn with_options(schema: &Value) -> Value {
    let mut schema = match schema {
        Value::Object(map) => map.clone(),
        Value::Bool(false) => return schema.clone(),
        _ => Map::new(),
    };
    // One of several that may match together is refused: which of them do is not told apart.
    let options = json!({
        "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false, "coerce_one_of": false,
    });
    schema.insert("x-guidance".to_owned(), options);
    Value::Object(schema)
}

/// A part of a schema that is a schema, with its place.
struct Part<'s> {
    place: String,
    schema: &'s Value,
    depth: usize,
}

/// Refuses what is no schema, and keywords that constrain and cannot be enforced.
pub(super) fn check(schema: &Value) -> Result<(), Error> {
    let mut waiting = vec![Part { place: String::new(), schema, depth: 0 }];
    while let Some(part) = waiting.pop() {
        check_one(&part)?;
        if part.depth >= DEPTH {
            return Err(Error::at(part.place, format!("schemas are nested more than {DEPTH} deep")));
        }
        waiting.extend(children(&part));
    }
    Ok(())
}

fn check_one(Part { place, schema, .. }: &Part<'_>) -> Result<(), Error> {
    let map = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(map) => map,
        other => {
            return Err(Error::at(
                place,
                format!("a schema is an object or a boolean, got: {}", short(other)),
            ));
        }
    };
    if let Some(keyword) = map.keys().find(|keyword| UNENFORCED.contains(&keyword.as_str())) {
        return Err(Error::at(place.clone(), format!("the keyword cannot be enforced: {keyword}")));
    }
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let wrong = match map.get("type") {
        None => None,
        Some(Value::Array(names)) if !names.is_empty() => names.iter().find(|name| !known(name)),
        Some(name) => Some(name).filter(|name| !known(name)),
    };
    if let Some(wrong) = wrong {
        return Err(Error::at(format!("{place}/type"), format!("there is no such type: {}", short(wrong))));
    }
    Ok(())
}

/// The schemas directly in a schema.
fn children<'s>(parent: &Part<'s>) -> Vec<Part<'s>> {
    let Value::Object(map) = parent.schema else { return Vec::new() };
    let part = |place: String, schema: &'s Value| Part { place, schema, depth: parent.depth + 1 };
    let mut parts = Vec::new();
    for (keyword, value) in map {
        let place = format!("{}/{keyword}", parent.place);
        match (keyword.as_str(), value) {
            ("additionalProperties" | "additionalItems", value) => parts.push(part(place, value)),
            ("items", Value::Object(_) | Value::Bool(_)) => parts.push(part(place, value)),
            ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
                let all = all.iter().enumerate();
                parts.extend(all.map(|(index, schema)| part(format!("{place}/{index}"), schema)));
            }
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                let name = |name: &str| name.replace('~', "~0").replace('/', "~1");
                parts.extend(all.iter().map(|(key, schema)| part(format!("{place}/{}", name(key)), schema)));
            }
            (
                "items" | "prefixItems" | "anyOf" | "oneOf" | "allOf" | "properties" | "patternProperties",
                value,
            ) => {
                // Not a list or an object of schemas; as one of them it is refused with its place.
                parts.push(part(place, value));
            }
            _ => {}
        }
    }
    parts
}

/// Finds the innermost part of a schema that `fails` by itself, with what it says; none where none does.
pub(super) fn locate(schema: &Value, fails: impl Fn(&Value) -> Option<String>) -> Option<Error> {
    let definitions: Map<String, Value> = ["$defs", "definitions"]
        .iter()
        .filter_map(|&key| Some((key.to_owned(), schema.get(key)?.clone())))
        .collect();
    let alone = |part: &Value| match part {
        Value::Object(map) => Value::Object(definitions.clone().into_iter().chain(map.clone()).collect()),
        other => other.clone(),
    };
    let (mut found, mut looks) = (None, 0);
    let mut waiting = children(&Part { place: String::new(), schema, depth: 0 });
    while let Some(part) = waiting.pop() {
        looks += 1;
        if looks > LOOKS {
            break;
        }
        // References to elsewhere than definitions lead nowhere from a part.
        let text = part.schema.to_string();
        let whole = text.matches("\"#").count()
            == text.matches("\"#/$defs").count() + text.matches("\"#/definitions").count();
        if !whole {
            waiting.extend(children(&part));
            continue;
        }
        if let Some(message) = fails(&alone(part.schema)) {
            waiting = children(&part);
            found = Some(Error::at(part.place, message));
        }
    }
    found
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
