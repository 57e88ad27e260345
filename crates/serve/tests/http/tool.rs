//! Functions and reasoning in chats: calls whole and as deltas, the choice among functions, history to the template.

use crate::support::{Rig, Setup, chat};
use serde_json::{Value as Json, json};

/// Tells how many functions there are, and shows in comments how its model writes calls and reasoning.
const TEMPLATE: &str = "{#- <tool_call> tool_calls </think> -#}{% if tools %}{{ tools | length }} tools\n{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} \
    {{ c.function.arguments | tojson }}]{% endfor %}{{ '\\n' }}{% endfor %}assistant: ";

const CALL: &str = r#"<tool_call>{"name": "add", "arguments": {"a": 1, "b": "\"é\""}}</tool_call>"#;

fn rig() -> Rig {
    Rig::with(Setup { template: Some(TEMPLATE.to_owned()), ..Setup::default() })
}

/// A chat with two functions.
fn tools(more: Json) -> Json {
    let function = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let mut fields = json!({"tools": [function("add"), function("now")]});
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    fields
}

fn without_ids(mut calls: Json) -> Json {
    for call in calls.as_array_mut().into_iter().flatten() {
        let id = call["id"].take();
        assert!(id.as_str().is_some_and(|id| id.starts_with("call_")), "{id}");
    }
    calls
}

/// What the deltas of a stream come to: text, reasoning, calls with name and arguments, and the reason.
fn joined(chunks: &[Json]) -> (String, String, Vec<(String, String)>, Json) {
    let (mut text, mut reasoning, mut calls, mut reason) =
        (String::new(), String::new(), Vec::new(), json!(null));
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        let delta = &choice["delta"];
        text += delta["content"].as_str().unwrap_or_default();
        reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                assert_eq!((&call["index"], &call["type"]), (&json!(calls.len()), &json!("function")));
                assert!(call["id"].as_str().is_some_and(|id| !id.is_empty()));
                calls.push((name.to_owned(), String::new()));
            }
            let index = call["index"].as_u64().expect("an index") as usize;
            calls[index].1 += call["function"]["arguments"].as_str().expect("arguments");
        }
        if !choice["finish_reason"].is_null() {
            assert!(reason.is_null());
            reason = choice["finish_reason"].clone();
        }
    }
    (text, reasoning, calls, reason)
}

#[test]
fn calls_come_whole_and_as_deltas() {
    let rig = rig();
    let say = format!("say: Well. {CALL}<tool_call>{{\"name\": \"now\"}}</tool_call>");
    let answer = rig.chat(&say, tools(json!({}))).json();
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!("Well."))
    );
    let function = |name: &str, arguments: &str| json!({"id": null, "type": "function", "function": {"name": name, "arguments": arguments}});
    let arguments = r#"{"a": 1, "b": "\"é\""}"#;
    let want = json!([function("add", arguments), function("now", "{}")]);
    assert_eq!(without_ids(choice["message"]["tool_calls"].clone()), want);
    let chunks = rig.chat(&say, tools(json!({"stream": true}))).chunks();
    let calls = vec![("add".to_owned(), arguments.to_owned()), ("now".to_owned(), "{}".to_owned())];
    assert_eq!(joined(&chunks), ("Well.".to_owned(), String::new(), calls, json!("tool_calls")));
    // A call alone has no content.
    let answer = rig.chat(&format!("say: {CALL}"), tools(json!({"parallel_tool_calls": false}))).json();
    assert_eq!(answer["choices"][0]["message"]["content"], json!(null));
}

#[test]
fn a_form_that_leaves_no_room_for_calls_is_refused() {
    let rig = rig();
    let form = json!({"response_format": {"type": "json_object"}});
    let (status, error) = rig.chat("hm", tools(form.clone())).error();
    assert_eq!((status, &error["param"]), (400, &json!("response_format")));
    let mut none = form;
    none["tool_choice"] = json!("none");
    assert_eq!(rig.chat("hm", tools(none)).status, 200);
}

#[test]
fn a_call_that_is_cut_ends_by_length() {
    let rig = rig();
    let answer = rig.chat(&format!("say: {CALL}"), tools(json!({"max_tokens": 47}))).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], r#"{"a": 1"#);
}

#[test]
fn what_may_not_be_called_is_text_and_no_function_is_told() {
    let rig = rig();
    for more in
        [tools(json!({"tool_choice": "none"})), json!({}), json!({"tools": []}), json!({"tools": null})]
    {
        let answer = rig.chat(&format!("say: {CALL}"), more.clone()).json();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("stop"), &json!(CALL)));
        let prompt = rig.post("/apply-template", &chat("a", more)).json()["prompt"].clone();
        assert_eq!(prompt, "user: a\nassistant: ");
    }
    let unknown = CALL.replace("add", "sub");
    assert_eq!(rig.chat(&format!("say: {unknown}"), tools(json!({}))).content(), unknown);
    let two = format!("say: {CALL}{CALL}");
    let one = rig.chat(&two, tools(json!({"parallel_tool_calls": false}))).json();
    assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(1));
}

#[test]
fn reasoning_is_apart_and_counted() {
    let rig = rig();
    let say = "say: <think> Hm é.</think> Yes.";
    let answer = rig.chat(say, json!({})).json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Yes."), &json!("Hm é.")));
    // Bytes are tokens: 7 and 8 of the tags, 7 of what is between them.
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 22);
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = rig.chat(say, more).chunks();
    assert_eq!(joined(&chunks), ("Yes.".to_owned(), "Hm é.".to_owned(), vec![], json!("stop")));
    assert_eq!(chunks.last().expect("usage")["usage"], answer["usage"]);
    // Calls inside of reasoning are thoughts.
    let answer = rig.chat(&format!("say: <think>{CALL}</think>No."), tools(json!({}))).json();
    assert_eq!(answer["choices"][0]["message"]["reasoning_content"], CALL);
}

#[test]
fn scores_come_with_what_is_said() {
    let rig = rig();
    let more = json!({"logprobs": true, "stream": true});
    let tokens = |chunks: &[Json]| -> String {
        let entries = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
        entries.flatten().map(|entry| entry["token"].as_str().expect("a token")).collect()
    };
    let text = format!("Well. {}", CALL.replace('é', "e"));
    assert_eq!(tokens(&rig.chat(&format!("say: {text}"), tools(more)).chunks()), text);
}

#[test]
fn history_goes_to_the_template_with_its_calls() {
    let rig = rig();
    let call =
        json!({"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}});
    let prompt = |content: Json| {
        let messages = json!([
            {"role": "user", "content": "q"}, {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "18"}]},
        ]);
        let body = json!({"messages": messages, "tools": tools(json!({}))["tools"]});
        rig.post("/apply-template", &body).json()["prompt"].clone()
    };
    let want = "2 tools\nuser: q\nassistant: [add {\"a\": 1}]\ntool: 18\nassistant: ";
    assert_eq!((prompt(json!(null)), prompt(json!(""))), (json!(want), json!(want)));
}

#[test]
fn a_template_without_tools_is_told_of_them_in_text() {
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ";
    let rig = Rig::with(Setup { template: Some(template.to_owned()), ..Setup::default() });
    let prompt = rig.post("/apply-template", &chat("a", tools(json!({})))).json()["prompt"].clone();
    let prompt = prompt.as_str().expect("a prompt");
    assert!(prompt.starts_with("system: # Tools\n") && prompt.contains("{\"type\":\"function\""), "{prompt}");
    assert!(prompt.ends_with("</tool_call>\nuser: a\nassistant: "), "{prompt}");
}

#[test]
fn a_call_that_must_come_is_one_as_declared() {
    let rig = rig();
    let said =
        |name: &str, arguments: &str| format!("say: {{\"name\": \"{name}\", \"arguments\": {arguments}}}");
    let named = json!({"type": "function", "function": {"name": "add"}});
    for choice in [json!("required"), named] {
        for stream in [false, true] {
            let more = tools(json!({"tool_choice": choice, "stream": stream}));
            let response = rig.chat(&said("add", "{\"a\": 1}"), more);
            let (text, calls, reason) = if stream {
                let (text, _, calls, reason) = joined(&response.chunks());
                (text, json!(calls), reason)
            } else {
                let choice = response.json()["choices"][0].clone();
                assert!(choice["message"]["content"].is_null());
                let function = &choice["message"]["tool_calls"][0]["function"];
                (
                    String::new(),
                    json!([[function["name"], function["arguments"]]]),
                    choice["finish_reason"].clone(),
                )
            };
            assert_eq!((text.as_str(), calls), ("", json!([["add", "{\"a\": 1}"]])));
            assert_eq!(reason, "tool_calls");
        }
    }
    let schema = json!({"type": "object", "properties": {"x": {"type": "nonsense"}}});
    let tool = json!({"type": "function", "function": {"name": "add", "parameters": schema}});
    let (status, error) = rig.chat("a", json!({"tools": [tool], "tool_choice": "required"})).error();
    assert_eq!((status, &error["param"]), (400, &json!("tool_choice")));
    let more = tools(json!({"tool_choice": "required", "response_format": {"type": "json_object"}}));
    assert_eq!(rig.chat("a", more).error().0, 400);
}

#[test]
fn wrong_functions_and_choices_are_400_by_place() {
    let rig = rig();
    let named = |name: &str| json!({"tool_choice": {"type": "function", "function": {"name": name}}});
    for (more, param) in [
        (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (tools(named("nope")), "tool_choice"),
        (tools(json!({"tool_choice": "always"})), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (tools(json!({"parallel_tool_calls": "no"})), "parallel_tool_calls"),
    ] {
        let (status, error) = rig.chat("a", more.clone()).error();
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{more}");
    }
}

#[test]
fn calls_that_must_come_name_a_declared_function_with_valid_arguments_whatever_the_model_says() {
    let rig = rig();
    let declared = json!([
        {"type": "function", "function": {"name": "move", "parameters": {
            "type": "object", "properties": {"by": {"type": "integer", "minimum": -9, "maximum": 9}, "axis": {"enum": ["x", "y"]}},
            "required": ["by", "axis"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
        {"type": "function", "function": {"name": "note", "parameters": {
            "type": "object", "properties": {"of": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5000}}, "required": ["text"], "additionalProperties": false}},
            "required": ["of"], "additionalProperties": false}}},
    ]);
    let hostile = [
        "I would rather not.",
        "{\"name\": \"erase\", \"arguments\": {}}",
        "{\"name\": \"move\", \"arguments\": {\"by\": 100, \"axis\": \"z\"}}",
        "{\"name\": \"note\", \"arguments\": {\"of\": {\"text\": \"stop\"}}}",
        "[]",
        "{\"arguments\": {}, \"name\": \"stop\"}",
    ];
    for (index, say) in hostile.iter().enumerate() {
        for temperature in [0.0, 1.0] {
            let more = json!({"tools": declared, "tool_choice": "required", "temperature": temperature, "seed": index});
            let answer = rig.chat(&format!("say: {say}"), more).json();
            let function = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
            if answer["choices"][0]["finish_reason"] == "length" {
                // So long a text as that of a note may not come to its end here.
                assert_eq!(function["name"], "note");
                continue;
            }
            let arguments: Json =
                serde_json::from_str(function["arguments"].as_str().expect("arguments")).expect("JSON");
            let fields = arguments.as_object().expect("an object");
            let valid = match function["name"].as_str() {
                Some("move") => {
                    fields.len() == 2
                        // A zero may have its sign.
                        && arguments["by"].as_f64().is_some_and(|by| by.fract() == 0.0 && by.abs() <= 9.0)
                        && (arguments["axis"] == "x" || arguments["axis"] == "y")
                }
                Some("stop") => fields.is_empty(),
                Some("note") => fields.len() == 1 && arguments["of"]["text"].is_string(),
                _ => false,
            };
            assert!(valid, "{say}: {function}");
            assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
        }
    }
    // One that cannot be enforced is told by its name; what is wrong with it, by its own place.
    let mut bad = declared.clone();
    bad[1]["function"]["parameters"] =
        json!({"type": "object", "properties": {"x": {"type": "array", "uniqueItems": true}}});
    let (status, error) = rig.chat("a", json!({"tools": bad, "tool_choice": "required"})).error();
    let message =
        "tool_choice: the function \"stop\": at /properties/x: the keyword cannot be enforced: uniqueItems";
    assert_eq!((status, &error["message"]), (400, &json!(message)));
}
