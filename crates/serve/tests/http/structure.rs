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
