//! `/v1/messages`: whole messages and events, blocks, stops, counts and errors in Anthropic's shapes.

use crate::support::{MODEL, Response, Rig, Setup};
use serde_json::{Value as Json, json};

/// As for tools: comments show how the model writes calls and reasoning.
const TEMPLATE: &str = "{#- <tool_call> tool_calls </think> -#}{% if tools %}{{ tools | length }} tools\n{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} \
    {{ c.function.arguments | tojson }}]{% endfor %}{{ '\\n' }}{% endfor %}assistant: ";

fn rig() -> Rig {
    Rig::with(Setup { template: Some(TEMPLATE.to_owned()), ..Setup::default() })
}

/// A request of one message, with more fields.
fn body(content: &Json, more: Json) -> Json {
    let mut body =
        json!({"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": content}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

fn ask(rig: &Rig, content: &str, more: Json) -> Json {
    let response = rig.post("/v1/messages", &body(&json!(content), more));
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The events of a stream, whose names must be their types.
fn events(response: &Response) -> Vec<Json> {
    let read = |event: &str| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        let data: Json = serde_json::from_str(data).expect("an event");
        assert_eq!(data["type"], name);
        Some(data)
    };
    response.text().split("\n\n").filter_map(read).collect()
}

/// The content that events build.
fn built(events: &[Json]) -> Vec<Json> {
    let mut blocks: Vec<Json> = Vec::new();
    let mut input = String::new();
    for event in events {
        match event["type"].as_str().expect("a type") {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(event["index"], blocks.len() - 1);
                let (block, delta) = (blocks.last_mut().expect("a block"), &event["delta"]);
                for field in ["text", "thinking"] {
                    if let Some(more) = delta[field].as_str() {
                        block[field] = json!(block[field].as_str().unwrap_or_default().to_owned() + more);
                    }
                }
                input += delta["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" if !input.is_empty() => {
                blocks.last_mut().expect("a block")["input"] = serde_json::from_str(&input).expect("JSON");
                input.clear();
            }
            _ => {}
        }
    }
    blocks
}

const SAID: &str =
    r#"say: <think>Hm.</think>Well.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#;

fn tools() -> Json {
    json!({"tools": [{"name": "add", "input_schema": {"type": "object"}}]})
}

#[test]
fn a_message_has_its_shape_whole_and_as_events() {
    let rig = rig();
    let mut whole = ask(&rig, SAID, tools());
    assert!(whole["id"].take().as_str().is_some_and(|id| id.starts_with("msg_")));
    let id = whole["content"][2]["id"].take();
    assert!(id.as_str().is_some_and(|id| !id.is_empty()));
    let content = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Well."},
        {"type": "tool_use", "id": null, "name": "add", "input": {"a": 1}},
    ]);
    // "1 tools\nuser: …\nassistant: ": 8 + 6 + SAID + 1 + 11; the answer is SAID without "say: ", and the end token.
    let usage = json!({"input_tokens": SAID.len() + 26, "output_tokens": SAID.len() - 5 + 1});
    let want = json!({
        "id": null, "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": "tool_use", "stop_sequence": null, "usage": usage,
    });
    assert_eq!(whole, want);
    let mut more = tools();
    more["stream"] = json!(true);
    let response = rig.post("/v1/messages", &body(&json!(SAID), more));
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = events(&response);
    let start = &events[0]["message"];
    assert_eq!((&start["content"], &start["usage"]["input_tokens"]), (&json!([]), &usage["input_tokens"]));
    let mut blocks = built(&events);
    blocks[2]["id"] = json!(null);
    assert_eq!(json!(blocks), content);
    let tail = &events[events.len() - 3..];
    let types: Vec<&Json> = tail.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(tail[1]["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert_eq!(tail[1]["usage"]["output_tokens"], usage["output_tokens"]);
}

#[test]
fn refusals_name_fields_as_they_are_called_here() {
    let rig = rig();
    let named = |more: Json| {
        let response = rig.post("/v1/messages", &body(&json!("a"), more));
        assert_eq!(response.status, 400, "{}", response.text());
        response.json()["error"]["message"].as_str().expect("a message").to_owned()
    };
    assert_eq!(named(json!({"model": null})), "model: this field is required");
    assert!(named(json!({"stop_sequences": vec!["x"; 17]})).starts_with("stop_sequences: at most 16"));
}

#[test]
fn stops_and_lengths_have_their_reasons() {
    let rig = rig();
    let stop = json!({"stop_sequences": ["zzz", "oak"]});
    let whole = ask(&rig, "say: an oak", stop.clone());
    let reason = |value: &Json| (value["stop_reason"].clone(), value["stop_sequence"].clone());
    assert_eq!(reason(&whole), (json!("stop_sequence"), json!("oak")));
    assert_eq!(whole["content"], json!([{"type": "text", "text": "an "}]));
    let mut streamed = stop;
    streamed["stream"] = json!(true);
    let events = events(&rig.post("/v1/messages", &body(&json!("say: an oak"), streamed)));
    assert_eq!(reason(&events[events.len() - 2]["delta"]), (json!("stop_sequence"), json!("oak")));
    assert_eq!(json!(built(&events)), whole["content"]);
    let short = ask(&rig, "say: an oak", json!({"max_tokens": 1}));
    assert_eq!((reason(&short).0, &short["usage"]["output_tokens"]), (json!("max_tokens"), &json!(1)));
    // An answer of no text has one block all the same.
    let empty = ask(&rig, "say: oak", json!({"stop_sequences": ["oak"]}));
    assert_eq!(empty["content"], json!([{"type": "text", "text": ""}]));
}

#[test]
fn text_is_the_same_in_both_forms_and_counts_agree() {
    let rig = rig();
    let block = |text: &str| json!([{"type": "text", "text": text}]);
    let count = |system: Json, content: &Json| {
        let mut asked = body(content, json!({"system": system, "max_tokens": 1}));
        let used = rig.post("/v1/messages", &asked).json()["usage"]["input_tokens"].clone();
        asked.as_object_mut().expect("an object").remove("max_tokens");
        assert_eq!(rig.post("/v1/messages/count_tokens", &asked).json(), json!({"input_tokens": used}));
        used
    };
    // "system: Be brief.\nuser: a\nassistant: ".
    assert_eq!(count(json!("Be brief."), &json!("a")), 37);
    assert_eq!(count(block("Be brief."), &block("a")), 37);
}

#[test]
fn a_last_turn_of_the_assistant_is_continued() {
    let rig = rig();
    let messages = json!([{"role": "user", "content": "Say."}, {"role": "assistant", "content": "say: on"}]);
    let asked = json!({"model": MODEL, "max_tokens": 1, "messages": messages});
    // "user: Say.\nassistant: say: on", of which the model sees no line's end.
    let answer = rig.post("/v1/messages", &asked).json();
    assert_eq!(answer["usage"]["input_tokens"], 11 + 11 + 7);
    assert_eq!(answer["content"][0]["text"], "o");
}

#[test]
fn results_and_thoughts_go_to_the_template() {
    let rig = rig();
    let mut asked = tools();
    asked["model"] = json!(MODEL);
    asked["messages"] = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "tool_use",
            "id": "t", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": []}]},
    ]);
    let count = rig.post("/v1/messages/count_tokens", &asked).json()["input_tokens"].clone();
    let prompt = "1 tools\nuser: q\nassistant: [add {\"a\": 1}]\ntool: \nassistant: ";
    assert_eq!(count, prompt.len());
}

#[test]
fn errors_have_anthropics_envelope() {
    let rig = rig();
    let content = json!("a");
    let missing = json!({"model": MODEL, "messages": [{"role": "user", "content": "a"}]});
    for (asked, status, kind) in [
        (missing, 400, "invalid_request_error"),
        (body(&content, json!({"messages": []})), 400, "invalid_request_error"),
        (body(&content, json!({"temperature": 1.7})), 400, "invalid_request_error"),
        (
            body(&content, json!({"messages": [{"role": "system", "content": "a"}]})),
            400,
            "invalid_request_error",
        ),
        (body(&content, json!({"messages": "a"})), 400, "invalid_request_error"),
        (body(&content, json!({"model": "none"})), 404, "not_found_error"),
        (
            body(&content, json!({"tool_choice": {"type": "tool", "name": "nope"}})),
            400,
            "invalid_request_error",
        ),
    ] {
        let response = rig.post("/v1/messages", &asked);
        assert_eq!(response.status, status, "{asked}");
        let answer = response.json();
        assert_eq!((&answer["type"], &answer["error"]["type"]), (&json!("error"), &json!(kind)));
        assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    assert_eq!(rig.post_bytes("/v1/messages", b"{").json()["error"]["type"], "invalid_request_error");
    rig.control.fail_next("as scripted");
    let failed = rig.post("/v1/messages", &body(&content, json!({"stream": true})));
    let events = events(&failed);
    assert_eq!(events.last().expect("an event")["error"]["type"], "api_error");
}
