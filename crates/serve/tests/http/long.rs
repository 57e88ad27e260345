//! Requests and answers that take long to read or to write: whoever else asks is answered meanwhile.

use crate::support::{Connection, Response, Rig, Setup, alone, chat};
use serde_json::{Map, Value as Json, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// A server with one thread for everybody.
fn narrow() -> Rig {
    Rig::with(Setup { threads: Some(1), context: 1 << 20, ..Setup::default() })
}

/// Asks for something that takes long, and sees that nobody else waits for a good part of it. A machine that has other things
/// to do makes everybody wait now and then, so one of a few times will do.
fn aside(rig: &Rig, what: &str, path: &str, body: &Json) -> Response {
    let body = body.to_string();
    let mut waited = Vec::new();
    for _ in 0..5 {
        let (response, whole, longest) = beside(rig, path, body.as_bytes());
        if longest < whole / 8 {
            return response;
        }
        waited.push((longest, whole));
    }
    panic!("{what}: {waited:?}");
}

/// An answer, the time that it took, and the longest that anybody else waited for one meanwhile.
fn beside(rig: &Rig, path: &str, body: &[u8]) -> (Response, Duration, Duration) {
    thread::scope(|scope| {
        let begun = Instant::now();
        let asking = scope.spawn(move || (rig.post_bytes(path, body), begun.elapsed()));
        let (mut other, mut longest) = (rig.connect(), Duration::ZERO);
        while !asking.is_finished() {
            let asked = Instant::now();
            health(&mut other);
            longest = longest.max(asked.elapsed());
        }
        let (response, whole) = asking.join().expect("an answer");
        (response, whole, longest)
    })
}

fn health(connection: &mut Connection) {
    connection.request("GET", "/health", b"");
    assert_eq!(connection.response().status, 200);
}

/// So many strings by their numbers.
fn many(count: usize) -> Map<String, Json> {
    (0..count).map(|index| (index.to_string(), json!("x"))).collect()
}

#[test]
fn declarations_are_checked_aside() {
    let _alone = alone();
    let rig = narrow();
    let function = |index: usize| json!({"type": "function", "function": {"name": format!("f{index}"), "parameters": {"properties": many(1000)}}});
    let tools: Vec<Json> = (0..300).map(function).collect();
    let choice = json!({"type": "function", "function": {"name": "g"}});
    let response = aside(
        &rig,
        "tools",
        "/v1/chat/completions",
        &chat("hi", json!({"tools": tools, "tool_choice": choice})),
    );
    assert_eq!(response.error().1["param"], "tool_choice");
    let prompts = vec!["a"; 700_000];
    let response = aside(&rig, "prompts", "/v1/completions", &json!({"prompt": prompts, "suffix": "b"}));
    assert_eq!(response.error().1["param"], "suffix");
}

#[test]
fn tokens_and_texts_are_written_aside() {
    let _alone = alone();
    let rig = narrow();
    let content = "x".repeat(256 << 10);
    let response = aside(&rig, "tokenize", "/tokenize", &json!({"content": content, "with_pieces": true}));
    assert_eq!(response.json()["tokens"].as_array().map(Vec::len), Some(256 << 10));
}

#[test]
fn scores_are_written_aside() {
    let _alone = alone();
    let rig = narrow();
    let scored = json!({"n": 24, "logprobs": true, "top_logprobs": 20, "max_tokens": 600});
    let response = aside(&rig, "chat", "/v1/chat/completions", &chat("hi", scored)).json();
    assert_eq!(response["choices"][23]["logprobs"]["content"].as_array().map(Vec::len), Some(600));
    let prompt = "x".repeat(20_000);
    for stream in [false, true] {
        let body =
            json!({"prompt": prompt, "echo": true, "logprobs": 5, "max_tokens": 1, "n": 4, "stream": stream});
        let response = aside(&rig, "echo", "/v1/completions", &body);
        assert_eq!(response.status, 200, "{}", response.text());
    }
}

#[test]
fn responses_are_written_and_kept_aside() {
    let _alone = alone();
    let rig = narrow();
    for stream in [false, true] {
        let body = json!({"input": "say: ok", "metadata": many(200_000), "stream": stream});
        let response = aside(&rig, "response", "/v1/responses", &body);
        assert!(response.text().contains("\"199999\""));
    }
}

/// What is wrong is said, and not repeated as a whole.
#[test]
fn what_is_wrong_is_named_in_few_words() {
    let rig = Rig::new();
    let long = "é".repeat(1 << 20);
    for more in [
        json!({"messages": long}),
        json!({"model": long}),
        json!({"reasoning_effort": long}),
        json!({"logit_bias": {long.clone(): 1}}),
    ] {
        let response = rig.chat("hi", more);
        assert!((400..=404).contains(&response.status), "{}", response.status);
        assert!(response.body.len() < 10_000, "{}", response.body.len());
        assert!(response.error().1["message"].as_str().is_some_and(|message| message.ends_with('…')));
    }
}
