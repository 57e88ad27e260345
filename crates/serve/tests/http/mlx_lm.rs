//! `--compat mlx-lm` beside what `mlx_lm.server` 0.32.2 answered (`tests/mlx_lm/record.py`), and what it adds.

use crate::support::{MODEL, Response, Rig, Setup};
use serde_json::{Map, Value as Json, json};
use tandem_serve::http::{Compat, Keys};

const REQUESTS: &str = include_str!("../mlx_lm/requests.json");
const ANSWERS: &str = include_str!("../mlx_lm/answers.json");

fn read(text: &str) -> Json {
    serde_json::from_str(text).expect("JSON")
}

fn rig() -> Rig {
    let template = read(REQUESTS)["template"].as_str().expect("a template").to_owned();
    // Longer than the 512 tokens that an answer has where nothing is said.
    Rig::with(Setup {
        template: Some(template),
        context: 600,
        compat: Some(Compat::MlxLm),
        ..Setup::default()
    })
}

/// As the recorder: without what differs from run to run.
fn stable(value: &mut Json) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(stable),
        Json::Object(fields) => {
            for (name, value) in fields {
                let differs = match name.as_str() {
                    "id" | "system_fingerprint" => value.is_string(),
                    "created" | "cached_tokens" => value.is_number(),
                    _ => false,
                };
                if differs {
                    *value = Json::Null;
                }
                stable(value);
            }
        }
        _ => {}
    }
}

/// What the recorder would have written.
fn written(response: &Response) -> Json {
    let kind = response.header("content-type").expect("a type");
    let mut written = json!({"status": response.status, "type": kind});
    if kind == "text/event-stream" {
        let chunks = response.chunks().into_iter().chain([json!("[DONE]")]);
        written["events"] = chunks.collect();
    } else {
        match serde_json::from_slice::<Json>(&response.body) {
            Ok(json) => written["json"] = json,
            Err(_) => written["text"] = json!(response.text()),
        }
    }
    stable(&mut written);
    written
}

/// Joins deltas that follow each other: how many tokens share one depends on time.
fn joined(mut answer: Json) -> Json {
    let Some(events) = answer.get_mut("events").and_then(Json::as_array_mut) else { return answer };
    let mut merged: Vec<Json> = Vec::new();
    for event in events.drain(..) {
        let open =
            |chunk: &Json| chunk["choices"][0]["finish_reason"].is_null() && chunk["choices"][0].is_object();
        match merged.last_mut() {
            Some(last) if open(last) && event["choices"][0].is_object() => {
                merge(&mut last["choices"][0], &event["choices"][0])
            }
            _ => merged.push(event),
        }
    }
    answer["events"] = json!(merged);
    answer
}

/// Adds a choice's later fields to its earlier ones.
fn merge(choice: &mut Json, more: &Json) {
    for (name, value) in more.as_object().expect("an object") {
        let place = &mut choice[name];
        match (place.as_str(), value) {
            (Some(text), Json::String(more)) if name != "role" => *place = json!(text.to_owned() + more),
            (_, Json::Object(_)) => merge(place, value),
            (_, value) => *place = value.clone(),
        }
    }
}

/// What is known to differ: marks are several of our tokens and one of theirs; the end token has no score here; Python
/// has its own words for what is no JSON; folders are no names.
fn without_differences(mut answer: Json, request: &Json) -> Json {
    let marked = ["<think>", "<tool_call>"].iter().any(|mark| request.to_string().contains(mark));
    if marked && let Some(usage) = answer["json"].get_mut("usage") {
        usage.take();
    }
    if let Some(scores) = answer.pointer_mut("/json/choices/0/logprobs/content").and_then(Json::as_array_mut)
    {
        scores.retain(|score| score["id"] != 256);
    }
    if let Some(error) = answer.pointer_mut("/json/error")
        && let Some((head, _)) = error.as_str().and_then(|error| error.split_once(": "))
        && head == "Invalid JSON in request body"
    {
        *error = json!(head);
    }
    joined(answer)
}

#[test]
fn recorded_answers_come_again() {
    let (rig, recorded) = (rig(), read(REQUESTS));
    let requests = recorded["requests"].as_array().expect("requests");
    let answers = read(ANSWERS);
    assert_eq!(answers.as_array().map(Vec::len), Some(requests.len()));
    let mut differ = Map::new();
    for (request, recorded) in requests.iter().zip(answers.as_array().expect("answers")) {
        let body = match (&request["text"], request.get("body")) {
            (Json::String(text), _) => text.clone(),
            (_, Some(body)) => body.to_string(),
            _ => String::new(),
        };
        let method = request["method"].as_str().unwrap_or("POST");
        let path = request["path"].as_str().expect("a path");
        let response = rig.connect().exchange(method, path, body.as_bytes());
        let (got, want) = (
            without_differences(written(&response), request),
            without_differences(recorded.clone(), request),
        );
        if got != want {
            differ.insert(request.to_string(), json!([got, want]));
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn likely_tokens_stand_beside_each_as_the_vocabulary_writes_them() {
    let rig = rig();
    let answer = rig.chat("say: a b", json!({"top_logprobs": 11})).json();
    let scores = answer["choices"][0]["logprobs"]["content"].as_array().expect("scores").clone();
    let words: Vec<&Json> = scores.iter().map(|score| &score["token"]).collect();
    assert_eq!(words, ["a", "Ġ", "b"]);
    assert!(scores.iter().all(|score| score["top_logprobs"].as_array().map(Vec::len) == Some(11)));
    assert_eq!(scores[0]["top_logprobs"][0], json!({"id": 97, "token": "a", "logprob": 0.0}));
}

#[test]
fn comments_tell_how_far_the_prompt_is_read() {
    let rig = rig();
    let stream = rig.chat("say: a", json!({"stream": true}));
    // "user: say: a\nassistant: "
    let (comments, _) = stream.text().split_once("\n\ndata: ").expect("data");
    let comments: Vec<&str> = comments.split("\n\n").collect();
    assert!(comments.iter().all(|comment| comment.starts_with(": keepalive ")), "{comments:?}");
    assert_eq!(comments.last(), Some(&": keepalive 24/24"));
}

/// Whoever refuses: the routes, the guards before them, or endpoints that are not that server's.
#[test]
fn refusals_of_every_kind_are_one_string_but_for_anthropics_clients() {
    let setup = |keys| Setup { compat: Some(Compat::MlxLm), keys, ..Setup::default() };
    let refused = |rig: &Rig, host: &str, request: (&str, &str)| {
        let (method, path) = request;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n{{}}");
        let mut connection = rig.connect();
        connection.send(head.as_bytes());
        let response = connection.response();
        let error = response.json()["error"].clone();
        let is_anthropics = path.starts_with("/v1/messages") && error["message"].is_string();
        assert!(error.is_string() || is_anthropics, "{request:?}: {}", response.text());
        response.status
    };
    let open = Rig::with(setup(Keys::default()));
    let kept = Rig::with(setup(Keys::new(["sk-1"])));
    for request in [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/nowhere"),
        ("POST", "/v1/responses"),
        ("POST", "/tokenize"),
        ("POST", "/v1/messages"),
    ] {
        assert_eq!(refused(&open, "evil.org", request), 403, "{request:?}");
        assert_eq!(refused(&kept, "localhost", request), 401, "{request:?}");
    }
    for (request, status) in [
        (("POST", "/v1/responses"), 400),
        (("POST", "/tokenize"), 400),
        (("POST", "/v1/messages"), 400),
        (("GET", "/v1/responses/x"), 404),
        (("POST", "/v1/embeddings"), 501),
    ] {
        assert_eq!(refused(&open, "localhost", request), status, "{request:?}");
    }
    // What that server does not know it answers in plain words.
    for request in [("GET", "/nowhere"), ("GET", "/tokenize"), ("DELETE", "/v1/models")] {
        let response = open.connect().exchange(request.0, request.1, b"");
        assert_eq!((response.status, response.text()), (404, "Not Found"), "{request:?}");
    }
}

/// That server dropped the connection where it should have said no, and missed stops whose own tokens are others than those
/// that the model writes.
#[test]
fn what_broke_that_server_is_answered() {
    let rig = rig();
    let valid = json!({"messages": [{"role": "user", "content": "say: a"}]}).to_string();
    let deep = format!(r#"{{"messages": [], "ignored": {}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    let wide: Vec<u8> = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let seed = valid.replacen('{', r#"{"seed": 1180591620717411303424, "#, 1);
    for body in [&wide[..], b"{\"messages\": \"\xff\"}", deep.as_bytes(), seed.as_bytes()] {
        let response = rig.post_bytes("/v1/chat/completions", body);
        assert_eq!(response.status, 400, "{}", response.text());
        assert!(response.json()["error"].is_string(), "{}", response.text());
    }
    let content = "say: ash oak elm yew";
    let ends = json!({"stop": ["oak elm"]});
    let whole = rig.chat(content, ends.clone()).json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("ash "), &json!("stop")));
    // Every byte is a token.
    assert_eq!(whole["usage"]["completion_tokens"], "ash oak elm".len());
    let mut streamed = ends;
    streamed["stream"] = json!(true);
    let chunks = rig.chat(content, streamed).chunks();
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "ash ");
}

#[test]
fn errors_are_one_string() {
    let rig = rig();
    for (more, status) in [
        (json!({"model": "x"}), 404),
        (json!({"adapters": "x"}), 501),
        (json!({"messages": "hi"}), 404),
        (json!({"messages": []}), 404),
        (json!({"response_format": {"type": "xml"}}), 404),
        (json!({"dry_sequence_breakers": [""]}), 404),
    ] {
        let response = rig.chat("say: a", more.clone());
        assert_eq!(response.status, status, "{more}");
        assert!(response.json()["error"].is_string(), "{}", response.text());
    }
    let wide = json!({"temperature": 1000, "presence_penalty": 500, "xtc_threshold": 0.9, "max_tokens": 1});
    assert_eq!(rig.chat("say: a", wide).status, 200);
    let tandems = rig.post("/v1/responses", &json!({"input": "say: ok", "model": MODEL})).json();
    assert_eq!(tandems["output"][0]["content"][0]["text"], "ok");
    rig.control.fail_next("as scripted");
    let failed = rig.chat("say: a", json!({"stream": true}));
    let last: Json = read(failed.events().last().expect("an event"));
    assert!(last["error"].as_str().is_some_and(|error| error.contains("as scripted")), "{last}");
}
