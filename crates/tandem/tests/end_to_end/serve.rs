//! The running server, from outside: answers, refusals, clients that leave, and a clean end.

use crate::support::{Server, post, tiny_model};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn chat(stream: bool) -> Value {
    json!({
        "model": "default_model", "stream": stream, "temperature": 0, "max_tokens": 24,
        "messages": [{"role": "user", "content": "Tell me about owls."}],
        "stream_options": if stream { json!({"include_usage": true}) } else { Value::Null },
    })
}

#[test]
fn a_stream_says_what_a_whole_answer_says() {
    let model = tiny_model("whole");
    let server = Server::start(model.path(), &[]);
    let whole = server.post("/v1/chat/completions", chat(false).to_string());
    assert_eq!(whole.status, 200, "{}", whole.body);
    let whole = whole.json();
    let streamed = server.post("/v1/chat/completions", chat(true).to_string());
    assert_eq!(streamed.status, 200, "{}", streamed.body);

    assert_eq!(json!(streamed.streamed_text()), whole["choices"][0]["message"]["content"]);
    let events = streamed.events();
    let reasons: Vec<_> =
        events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, [whole["choices"][0]["finish_reason"].as_str().unwrap()]);
    let usage = &events.last().unwrap()["usage"];
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(usage[field], whole["usage"][field], "{field}");
    }
}

#[test]
fn the_servers_settings_hold_for_requests_that_name_none() {
    let model = tiny_model("settings");
    let server = Server::start(model.path(), &["--temperature", "0"]);
    let greedy = server.post("/v1/chat/completions", chat(false).to_string()).json();
    let mut body = chat(false);
    body.as_object_mut().unwrap().remove("temperature");
    let unnamed = server.post("/v1/chat/completions", body.to_string()).json();
    assert_eq!(unnamed["choices"], greedy["choices"]);
}

#[test]
fn what_is_malformed_is_refused_and_the_next_request_is_served() {
    let model = tiny_model("refused");
    let server = Server::start(model.path(), &[]);
    let long = json!({"messages": [{"role": "user", "content": "a".repeat(5000)}]}).to_string();
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let cases: [(&[u8], u16, &str); 8] = [
        (b"not json", 400, ""),
        (b"\xff\xfe{\x00}\x00", 400, ""),
        (deep.as_bytes(), 400, ""),
        (br#"{"messages": "hi"}"#, 400, "messages"),
        (br#"{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}"#, 400, "temperature"),
        (br#"{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1}"#, 400, "max_tokens"),
        (br#"{"model": "gpt-17", "messages": [{"role": "user", "content": "x"}]}"#, 404, "gpt-17"),
        (long.as_bytes(), 400, "4096"),
    ];
    for (body, status, mentioned) in cases {
        let answer = server.post("/v1/chat/completions", body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(answer.status, status, "{shown}: {}", answer.body);
        assert!(
            answer.json()["error"]["message"].as_str().unwrap().contains(mentioned),
            "{shown}: {}",
            answer.body
        );
    }
    assert_eq!(server.post("/v1/chat/completions", chat(false).to_string()).status, 200);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/nowhere").status, 404);
}

#[test]
fn a_client_that_leaves_costs_nobody_anything() {
    let model = tiny_model("leaves");
    let server = Server::start(model.path(), &[]);
    let long = json!({"stream": true, "max_tokens": 4000, "temperature": 0, "ignore_eos": true,
                      "messages": [{"role": "user", "content": "Go on for ever."}]});
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&post("/v1/chat/completions", long.to_string().as_bytes())).unwrap();
        let mut first = [0; 64];
        assert!(stream.read(&mut first).unwrap() > 0);
    }
    let answer = server.post("/v1/chat/completions", chat(false).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn the_server_drains_and_ends_when_asked_to() {
    let model = tiny_model("drains");
    let server = Server::start(model.path(), &[]);
    assert_eq!(server.get("/v1/models").status, 200);
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
}
