//! Answers that are bound to a form.

use crate::support::Rig;
use serde_json::{Value, json};

#[test]
fn answers_take_the_form_that_is_asked_for() {
    let rig = Rig::new();
    let choice = rig.chat("say: maybe", json!({"guided_choice": ["yes", "no"]}));
    assert!(["yes", "no"].contains(&choice.content().as_str()), "{}", choice.content());
    assert_eq!(choice.json()["choices"][0]["finish_reason"], "stop");
    let digits = rig.chat("say: maybe", json!({"guided_regex": "[0-9]{3}"}));
    assert!(digits.content().len() == 3 && digits.content().parse::<u32>().is_ok());
    let lark = rig.chat("say: maybe", json!({"guided_grammar": "start: \"a\" \"b\""}));
    let gbnf = rig.chat("say: maybe", json!({"guided_grammar": "root ::= \"a\" \"b\""}));
    assert_eq!([lark.content(), gbnf.content()], ["ab", "ab"]);
}

#[test]
fn schemas_are_enforced_streamed_and_in_several_choices() {
    let rig = Rig::new();
    let schema = json!({
        "type": "object", "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
        "required": ["ok", "kind"], "additionalProperties": false,
    });
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
    let several =
        rig.chat("say: hm", json!({"response_format": format, "n": 3, "temperature": 1.5, "seed": 1}));
    let answer = several.json();
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 3);
    for choice in choices {
        let content = choice["message"]["content"].as_str().unwrap_or_default();
        let value: Value = serde_json::from_str(content).expect(content);
        assert!(value["ok"].is_boolean() && (value["kind"] == "a" || value["kind"] == "b"), "{content}");
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[test]
fn completions_are_bound_too() {
    let rig = Rig::new();
    let response = rig.post("/v1/completions", &json!({"prompt": "hm", "guided_choice": ["yes", "no"]}));
    let answer = response.json();
    let text = answer["choices"][0]["text"].as_str().unwrap_or_default();
    assert!(["yes", "no"].contains(&text), "{text}");
}

#[test]
fn what_cannot_be_enforced_is_400_with_its_keyword_and_place() {
    let rig = Rig::new();
    for (property, told) in [
        (json!({"type": "string", "pattern": "(?<=x)("}), "/properties/x: "),
        (json!({"not": {"type": "null"}}), "/properties/x: the keyword cannot be enforced: not"),
        (
            json!({"type": "array", "uniqueItems": true}),
            "/properties/x: the keyword cannot be enforced: uniqueItems",
        ),
        (json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}), "oneOf"),
    ] {
        let schema = json!({"type": "object", "properties": {"x": property}, "required": ["x"]});
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
        let (status, error) = rig.chat("say: 1", json!({"response_format": format})).error();
        assert_eq!((status, &error["param"]), (400, &json!("response_format")));
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn bounds_constants_and_multiples_are_enforced_against_what_the_model_says() {
    let rig = Rig::new();
    for (value, holds) in [
        (
            json!({"type": "integer", "minimum": 20, "maximum": 29}),
            (|it: &Value| (20..30).contains(&it.as_i64().unwrap_or(0))) as fn(&Value) -> bool,
        ),
        (json!({"type": "integer", "minimum": 1, "maximum": 99, "multipleOf": 7}), |it| {
            it.as_i64().is_some_and(|it| it % 7 == 0)
        }),
        (json!({"const": {"a": [1, null]}}), |it| *it == json!({"a": [1, null]})),
        (json!({"type": ["string", "null"], "maxLength": 2}), |it| {
            it.is_null() || it.as_str().is_some_and(|it| it.chars().count() < 3)
        }),
    ] {
        let schema = json!({"type": "object", "properties": {"x": value}, "required": ["x"], "additionalProperties": false});
        for (say, seed) in [("{\"x\": 111}", 1), ("{\"x\": \"long text\"}", 2), ("[true]", 3)] {
            let more = json!({"guided_json": schema, "temperature": 2, "seed": seed});
            let content = rig.chat(&format!("say: {say}"), more).content();
            let answer: Value = serde_json::from_str(&content).expect(&content);
            assert!(holds(&answer["x"]), "{value}: {content}");
        }
    }
}
