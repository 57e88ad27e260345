//! The server as those see it who run it: keys, its end, its log, and answers that do not depend on what it keeps.

use crate::support::{Answer, Folder, Server, post, tandem, tiny_model};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

fn with_key(server: &Server, key: &str) -> Answer {
    let head = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    server.raw(format!("{head}Authorization: Bearer {key}\r\n\r\n").as_bytes())
}

/// A stream as long as the context allows, of which the first bytes have come.
fn long(server: &Server) -> TcpStream {
    let body = json!({"stream": true, "max_tokens": 4000, "temperature": 0, "ignore_eos": true,
                      "messages": [{"role": "user", "content": "Go on for ever."}]});
    let mut stream = server.connect();
    stream.write_all(&post("/v1/chat/completions", body.to_string().as_bytes())).unwrap();
    assert!(stream.read(&mut [0; 16]).unwrap() > 0);
    stream
}

#[test]
fn keys_are_typed_or_in_a_file() {
    let model = tiny_model("keys");
    let file = model.path().join("keys");
    fs::write(&file, "# for the office\nsk-office\n").unwrap();
    let server = Server::start(
        model.path(),
        &["--api-key", "sk-typed,sk-other", "--api-key-file", file.to_str().unwrap()],
    );
    assert_eq!((server.get("/health").status, server.get("/v1/models").status), (200, 401));
    let statuses = ["sk-typed", "sk-other", "sk-office", "sk", "# for the office"]
        .map(|key| with_key(&server, key).status);
    assert_eq!(statuses, [200, 200, 200, 401, 401]);
}

#[test]
fn what_would_leave_the_server_open_or_shut_is_refused_at_the_start() {
    let folder = Folder::new("open");
    let empty = folder.path().join("empty");
    fs::write(&empty, "# none yet\n").unwrap();
    let empty = empty.to_str().unwrap();
    for (more, reason) in [
        (&["--host", "0.0.0.0"][..], "there is no key\nhint: set TANDEM_API_KEY"),
        (&["--api-key-file", empty], "a key is one or more visible ASCII characters"),
        (&["--api-key-file", "/nowhere/keys"], "/nowhere/keys"),
        (&["--api-key", ""], "a key is one or more"),
        (&["--api-key", "sk one"], "a key is one or more"),
        (&["--cors-origin", "a.org"], "expected * or an origin"),
    ] {
        let output = tandem(&[&["serve", "--model", "/nowhere"], more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(reason), "{more:?}: {error}");
        assert!(!error.contains("sk one"), "a key is shown: {error}");
    }
}

#[test]
fn running_answers_end_before_the_server_does() {
    let model = tiny_model("running");
    let server = Server::start(model.path(), &[]);
    let mut stream = long(&server);
    server.ask_to_end();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn asked_twice_the_server_ends_at_once() {
    let model = tiny_model("twice");
    let server = Server::start(model.path(), &["--drain-timeout", "600"]);
    let streams: Vec<TcpStream> = (0..16).map(|_| long(&server)).collect();
    server.ask_to_end();
    // Two signals at once may be one.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    server.ask_to_end();
    assert_eq!(server.wait().code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(60), "far less than the time to drain");
    drop(streams);
}

#[test]
fn each_request_leaves_a_line_without_its_words() {
    let model = tiny_model("log");
    let path = model.path().join("log");
    let server = Server::logging(model.path(), File::create(&path).unwrap());
    let body =
        json!({"max_tokens": 5, "ignore_eos": true, "messages": [{"role": "user", "content": "Of owls."}]});
    assert_eq!(server.post("/v1/chat/completions", body.to_string()).status, 200);
    assert_eq!(server.terminate().code(), Some(0));
    let log = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("request ended")).collect();
    let [line] = lines.as_slice() else { panic!("{log}") };
    // "user: Of owls.\nassistant: " are 26 bytes, each a token.
    for field in [
        "id=\"chatcmpl-",
        "endpoint=\"/v1/chat/completions\"",
        "outcome=\"length\"",
        "prompt_tokens=26",
        "completion_tokens=5",
        "first_token_ms=",
        "duration_ms=",
    ] {
        assert!(line.contains(field), "{field}: {line}");
    }
    assert!(!log.contains("owls"), "{log}");
}

/// What chats share is taken from where it was computed, up to where they part, and never their last token.
#[test]
fn what_is_kept_of_prompts_changes_no_answer() {
    let model = tiny_model("kept");
    let (warm, cold) =
        (Server::start(model.path(), &[]), Server::start(model.path(), &["--prefix-cache", "0"]));
    let ask = |server: &Server, text: &str| {
        let system = "You are an owl that answers briefly, kindly, and never at noon.";
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": text}]);
        let body = json!({"messages": messages, "max_tokens": 24, "temperature": 0, "ignore_eos": true});
        let answer = server.post("/v1/chat/completions", body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let mut reused = Vec::new();
    for text in ["What do owls eat?", "What do owls eat?", "What do owls eat?", "What do owls hear?", "Who?"]
    {
        let (kept, fresh) = (ask(&warm, text), ask(&cold, text));
        assert_eq!(kept["choices"][0]["message"], fresh["choices"][0]["message"], "{text}");
        assert!(cached(&kept) < kept["usage"]["prompt_tokens"].as_u64().unwrap());
        assert_eq!(cached(&fresh), 0);
        reused.push(cached(&kept));
    }
    // Of bytes: "system: … noon.\nuser: " are 78, to the end of "assistant: " 107, to "What do owls " 91, to "Wh" 80.
    assert_eq!(reused, [0, 106, 106, 91, 80]);
}

/// Drafts come several to a step, in which a stop string may end.
#[test]
fn counts_are_the_same_whole_and_as_a_stream_with_drafts_and_a_stop() {
    let model = tiny_model("counts");
    let (plain, drafting) =
        (Server::start(model.path(), &[]), Server::start(model.path(), &["--draft", "ngram"]));
    let body = |stop: &str, stream: bool| {
        let stop = if stop.is_empty() { Value::Null } else { json!(stop) };
        json!({"messages": [{"role": "user", "content": "abcabcabcabc"}], "max_tokens": 160, "temperature": 0,
               "ignore_eos": true, "stop": stop, "stream": stream, "stream_options": {"include_usage": true}})
    };
    let ask = |server: &Server, stop: &str| {
        let whole = server.post("/v1/chat/completions", body(stop, false).to_string()).json();
        let streamed = server.post("/v1/chat/completions", body(stop, true).to_string());
        let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(streamed.streamed_text(), text);
        let usage = |usage: &Value| {
            ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| usage[name].clone())
        };
        let counts = usage(&whole["usage"]);
        assert_eq!(usage(&streamed.events().last().unwrap()["usage"]), counts);
        (text, counts)
    };
    let (text, _) = ask(&plain, "");
    let words: Vec<char> = text.chars().collect();
    for start in [words.len() / 3, words.len() / 2, words.len() * 3 / 4] {
        let stop: String = words[start..start + 3].iter().collect();
        let stopped = ask(&plain, &stop);
        assert_eq!(stopped.0, text.split(&stop).next().unwrap());
        assert_eq!(ask(&drafting, &stop), stopped, "{stop:?}");
    }
}
