//! The JSON Schema Test Suite: each instance token by token, as JSON is written here.
//!
//! A schema that is not compiled is one that is refused when somebody asks for it. What is compiled may refuse a few valid
//! instances, as it writes JSON in one way (integers without a fraction, properties in their order), and no invalid one may be
//! accepted.

use super::{Words, compiler};
use crate::grammar::{Compiled, Grammar};
use serde_json::Value;
use std::collections::BTreeMap;
use tandem_contracts::{grammar::Progress, text::Vocabulary};

/// What became of the instances of schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    valid_accepted: usize,
    valid_refused: usize,
    invalid_refused: usize,
    unsupported: usize,
}

/// A value as Python's `json.dumps` writes it.
fn written(value: &Value, text: &mut String) {
    let list = |text: &mut String, open: char, close: char, parts: Vec<String>| {
        text.push(open);
        text.push_str(&parts.join(", "));
        text.push(close);
    };
    let part = |value: &Value| {
        let mut text = String::new();
        written(value, &mut text);
        text
    };
    match value {
        Value::Array(items) => list(text, '[', ']', items.iter().map(part).collect()),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}: {}", Value::from(name.as_str()), part(value));
            list(text, '{', '}', fields.iter().map(field).collect());
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Whether a grammar takes a value, and may end after it.
fn takes(compiled: &Compiled, words: &Words, value: &Value) -> bool {
    let mut text = String::new();
    written(value, &mut text);
    let mut matcher = compiled.matcher();
    let mut progress = Progress::Open;
    for token in words.encode(&text) {
        let next = matcher.allowed().expect("no limit is met");
        if progress == Progress::Complete || !super::has(&next, token) {
            return false;
        }
        progress = matcher.accept(token).expect("it may come next");
    }
    progress == Progress::Complete || super::has(&matcher.allowed().expect("no limit is met"), super::END)
}

#[test]
fn the_public_suite_is_accepted_and_refused_token_by_token() {
    let groups: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(include_str!("../../../tests/data/json-schema-test-suite.json"))
            .expect("the suite");
    let (words, compiler) = (Words::new(), compiler());
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for (name, group) in groups.iter().flat_map(|(name, groups)| groups.iter().map(move |it| (name, it))) {
        let tests = group["tests"].as_array().expect("tests");
        let Ok(compiled) = compiler.compile(&Grammar::Schema(group["schema"].clone())) else {
            tally.unsupported += tests.len();
            continue;
        };
        for test in tests {
            match (takes(&compiled, &words, &test[0]), test[1] == true) {
                (true, true) => tally.valid_accepted += 1,
                (false, true) => tally.valid_refused += 1,
                (false, false) => tally.invalid_refused += 1,
                (true, false) => wrong.push(format!("{name}: {} takes {}", group["schema"], test[0])),
            }
        }
    }
    println!("{tally:?}");
    assert!(wrong.is_empty(), "invalid instances are accepted:\n{}", wrong.join("\n"));
    let expected = Tally { valid_accepted: 341, valid_refused: 22, invalid_refused: 240, unsupported: 696 };
    assert_eq!(tally, expected);
}
