//! `/v1/responses`: whole responses and events, what is kept and continued, functions, and refusals.

use crate::support::{MODEL, Response, Rig, Setup};
use insta::assert_snapshot;
use serde_json::{Value as Json, json};

/// As for tools: comments show how the model writes calls and reasoning.
const TEMPLATE: &str = "{#- <tool_call> tool_calls </think> -#}{% if tools %}{{ tools | length }} tools\n{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} \
    {{ c.function.arguments | tojson }}]{% endfor %}{{ '\\n' }}{% endfor %}assistant: ";

const SAID: &str =
    r#"say: <think>Hm.</think>Well.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#;

fn rig() -> Rig {
    Rig::with(Setup { template: Some(TEMPLATE.to_owned()), ..Setup::default() })
}

fn send(rig: &Rig, input: &Json, more: Json) -> Response {
    let mut body = json!({"model": MODEL, "input": input});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    rig.post("/v1/responses", &body)
}

fn ask(rig: &Rig, input: &str, more: Json) -> Json {
    let response = send(rig, &json!(input), more);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn tools() -> Json {
    json!({"tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}]})
}

/// The events of a stream, whose names must be their types, and whose numbers must count.
fn events(response: &Response) -> Vec<Json> {
    let read = |event: &str| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        let data: Json = serde_json::from_str(data).expect("an event");
        assert_eq!(data["type"], name);
        Some(data)
    };
    let events: Vec<Json> = response.text().split("\n\n").filter_map(read).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

/// The output that events build, each delta checked against what its item's end says.
fn built(events: &[Json]) -> Json {
    let mut items: Vec<Json> = Vec::new();
    for event in events {
        let index = event["output_index"].as_u64().unwrap_or_default() as usize;
        let grow = |place: &mut Json| {
            let more = event["delta"].as_str().expect("a delta");
            *place = json!(place.as_str().expect("a text").to_owned() + more);
        };
        let kind = event["type"].as_str().expect("a type");
        match kind {
            "response.output_item.added" => {
                assert_eq!((index, &event["item"]["status"]), (items.len(), &json!("in_progress")));
                items.push(event["item"].clone());
            }
            "response.content_part.added" => {
                items[index]["content"].as_array_mut().expect("content").push(event["part"].clone());
            }
            "response.output_text.delta" => {
                let scores = event["logprobs"].as_array().expect("scores").clone();
                items[index]["content"][0]["logprobs"].as_array_mut().expect("scores").extend(scores);
                grow(&mut items[index]["content"][0]["text"]);
            }
            "response.reasoning_text.delta" => grow(&mut items[index]["content"][0]["text"]),
            "response.function_call_arguments.delta" => grow(&mut items[index]["arguments"]),
            "response.output_text.done" | "response.reasoning_text.done" => {
                assert_eq!(items[index]["content"][0]["text"], event["text"]);
            }
            "response.content_part.done" => assert_eq!(items[index]["content"][0], event["part"]),
            "response.function_call_arguments.done" => {
                assert_eq!(items[index]["arguments"], event["arguments"]);
            }
            "response.output_item.done" => {
                items[index]["status"] = event["item"]["status"].clone();
                assert_eq!(items[index], event["item"]);
            }
            _ => continue,
        }
        assert!(event["item_id"].is_null() || event["item_id"] == items[index]["id"], "{kind}");
    }
    Json::Array(items)
}

/// Replaces ids and times.
fn stable(mut response: Json) -> String {
    let id = response["id"].as_str().expect("an id").trim_start_matches("resp_").to_owned();
    for field in ["created_at", "completed_at"] {
        if !response[field].is_null() {
            response[field] = json!(0);
        }
    }
    for item in response["output"].as_array_mut().into_iter().flatten() {
        if !item["call_id"].is_null() {
            item["call_id"] = json!("call");
        }
    }
    serde_json::to_string_pretty(&response).expect("JSON").replace(&id, "ID")
}

#[test]
fn a_response_has_its_shape_whole_and_as_events() {
    let rig = rig();
    let whole = ask(&rig, SAID, tools());
    assert_snapshot!(stable(whole.clone()));
    // "1 tools\nuser: …\nassistant: ": 8 + 6 + SAID + 1 + 11; the answer is SAID without "say: ", and the end token.
    let usage = &whole["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(SAID.len() + 26), &json!(SAID.len() - 4))
    );
    let mut more = tools();
    more["stream"] = json!(true);
    let response = send(&rig, &json!(SAID), more);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = events(&response);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let merged = kinds.iter().enumerate().filter(|&(index, kind)| index == 0 || kinds[index - 1] != *kind);
    assert_snapshot!(merged.map(|(_, kind)| *kind).collect::<Vec<_>>().join("\n"));
    assert_eq!(
        (&events[0]["response"]["status"], &events[0]["response"]["usage"]),
        (&json!("in_progress"), &json!(null))
    );
    let last = &events.last().expect("events")["response"];
    assert_eq!(built(&events), last["output"]);
    assert_eq!(stable(last.clone()), stable(whole));
}

#[test]
fn a_response_is_kept_continued_and_forgotten() {
    let rig = rig();
    let first = ask(&rig, "say: one", json!({"instructions": "Be brief."}));
    let path = format!("/v1/responses/{}", first["id"].as_str().expect("an id"));
    assert_eq!(rig.get(&path).json(), first);
    let continued = json!({"previous_response_id": first["id"]});
    let second = ask(&rig, "say: two", continued.clone());
    let same = json!([
        {"role": "user", "content": "say: one"}, {"role": "assistant", "content": "one"}, {"role": "user", "content": "say: two"},
    ]);
    // Instructions are the first one's own.
    let alone = send(&rig, &same, json!({})).json();
    assert_eq!(second["usage"]["input_tokens"], alone["usage"]["input_tokens"]);
    assert_eq!(second["output"][0]["content"][0]["text"], "two");
    let streamed =
        send(&rig, &json!("say: three"), json!({"previous_response_id": second["id"], "stream": true}));
    let third = &events(&streamed).pop().expect("events")["response"];
    // Two more turns: "assistant: two\n" and "user: say: three\n", of which "say: three" stood for "say: two".
    let more = "assistant: two\n".len() + "user: say: three\n".len();
    assert_eq!(
        third["usage"]["input_tokens"].as_u64(),
        second["usage"]["input_tokens"].as_u64().map(|count| count + more as u64)
    );
    assert_eq!(rig.get(&format!("/v1/responses/{}", third["id"].as_str().expect("an id"))).json(), *third);
    let gone = rig.connect().exchange("DELETE", &path, b"");
    assert_eq!(
        (gone.status, gone.json()),
        (200, json!({"id": first["id"], "object": "response", "deleted": true}))
    );
    for (method, path) in [("GET", &*path), ("DELETE", &*path), ("GET", "/v1/responses/resp_x")] {
        let (status, error) = rig.connect().exchange(method, path, b"").error();
        assert_eq!((status, &error["code"]), (404, &json!("response_not_found")));
    }
    let (status, error) = send(&rig, &json!("a"), continued).error();
    assert_eq!((status, &error["param"]), (404, &json!("previous_response_id")));
    // What continues it still has all that it needs.
    ask(&rig, "say: four", json!({"previous_response_id": second["id"]}));
    let unkept = ask(&rig, "say: five", json!({"store": false}));
    assert_eq!(rig.get(&format!("/v1/responses/{}", unkept["id"].as_str().expect("an id"))).status, 404);
}

#[test]
fn calls_come_back_with_their_results() {
    let rig = rig();
    let first = ask(&rig, SAID, tools());
    let call = &first["output"][2];
    assert_eq!((&call["name"], &call["arguments"]), (&json!("add"), &json!("{\"a\": 1}")));
    let result = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "2"}]);
    let mut more = tools();
    more["previous_response_id"] = first["id"].clone();
    let second = send(&rig, &result, more).json();
    let text = format!("1 tools\nuser: {SAID}\nassistant: Well.[add {{\"a\": 1}}]\ntool: 2\nassistant: ");
    assert_eq!(second["usage"]["input_tokens"], text.len(), "{second}");
    let mut named = tools();
    named["tool_choice"] = json!({"type": "function", "name": "add"});
    let bound = ask(&rig, "hm", named);
    assert_eq!(
        (&bound["output"][0]["type"], &bound["output"][0]["name"]),
        (&json!("function_call"), &json!("add"))
    );
}

#[test]
fn what_is_cut_is_incomplete() {
    let rig = rig();
    let whole = ask(&rig, "hm", json!({"max_output_tokens": 4}));
    assert_eq!((&whole["status"], &whole["completed_at"]), (&json!("incomplete"), &json!(null)));
    assert_eq!(whole["incomplete_details"], json!({"reason": "max_output_tokens"}));
    let item = &whole["output"][0];
    assert_eq!((&item["status"], &item["content"][0]["text"]), (&json!("incomplete"), &json!("abcd")));
    let events = events(&send(&rig, &json!("hm"), json!({"max_output_tokens": 4, "stream": true})));
    assert_eq!(events.last().expect("events")["type"], "response.incomplete");
    assert_eq!(rig.get(&format!("/v1/responses/{}", whole["id"].as_str().expect("an id"))).status, 200);
    let nothing = ask(&rig, "say: \n", json!({}));
    assert_eq!(nothing["output"][0]["content"][0]["text"], "");
}

#[test]
fn a_step_that_fails_ends_the_stream_with_its_reason() {
    let rig = rig();
    rig.control.fail_next("as scripted");
    let events = events(&send(&rig, &json!("say: a"), json!({"stream": true})));
    let last = events.last().expect("events");
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    let id = last["response"]["id"].as_str().expect("an id");
    assert_eq!(rig.get(&format!("/v1/responses/{id}")).status, 404);
    rig.control.fail_next("as scripted");
    assert_eq!(send(&rig, &json!("say: a"), json!({})).status, 500);
}

#[test]
fn text_is_scored_and_takes_a_form() {
    let rig = rig();
    let include = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 1, "stream": true});
    let events = events(&send(&rig, &json!("say: ab"), include));
    let last = &events.last().expect("events")["response"];
    assert_eq!(built(&events), last["output"]);
    let scores = last["output"][0]["content"][0]["logprobs"].as_array().expect("scores");
    let tokens: Vec<&str> = scores.iter().filter_map(|score| score["token"].as_str()).collect();
    assert!(tokens.concat().starts_with("ab"), "{tokens:?}");
    assert!(scores.iter().all(|score| score["top_logprobs"].as_array().is_some_and(|top| top.len() == 1)));
    let schema = json!({"type": "object", "properties": {"ok": {"const": true}}, "required": ["ok"], "additionalProperties": false});
    let format =
        json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": true}}});
    let bound = ask(&rig, "say: hm", format.clone());
    let text = bound["output"][0]["content"][0]["text"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Json>(text).expect("JSON"), json!({"ok": true}));
    assert_eq!(bound["text"], format["text"]);
}

#[test]
fn refusals_name_fields_as_they_are_called_here() {
    let rig = rig();
    for (more, status, param) in [
        (json!({"input": null}), 400, json!("input")),
        (json!({"input": 3}), 400, json!("input")),
        (json!({"input": []}), 400, json!("input")),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), 400, json!("input[0].type")),
        (json!({"tools": [{"type": "web_search"}]}), 400, json!("tools[0].type")),
        (json!({"tool_choice": "required"}), 400, json!("tool_choice")),
        (json!({"text": {"format": {"type": "xml"}}}), 400, json!("text.format")),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "x"}}}}),
            400,
            json!("text.format"),
        ),
        (json!({"reasoning": {"effort": "much"}}), 400, json!("reasoning.effort")),
        (json!({"reasoning": {"effort": "high"}}), 400, json!("reasoning.effort")),
        (json!({"temperature": 3}), 400, json!("temperature")),
        (json!({"top_logprobs": 21}), 400, json!("top_logprobs")),
        (json!({"max_output_tokens": 0}), 400, json!("max_output_tokens")),
        (json!({"metadata": {"a": 1}}), 400, json!("metadata.a")),
        (json!({"background": true}), 400, json!("background")),
        (json!({"adapter": "a"}), 501, json!("adapter")),
        (json!({"model": "x"}), 404, json!("model")),
        (json!({"input": "x".repeat(400)}), 400, json!("input")),
    ] {
        let (got, error) = send(&rig, &json!("a"), more.clone()).error();
        assert_eq!((got, &error["param"]), (status, &param), "{more} {error}");
    }
    assert_eq!(ask(&rig, "say: ok", json!({}))["output"][0]["content"][0]["text"], "ok");
}
