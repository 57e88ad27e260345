//! Requests that broke servers: each gets its status, the right envelope, and the next request is served.

use crate::support::{CONTEXT, Connection, MODEL, Response, Rig, Setup, chat};
use insta::assert_snapshot;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use tandem_contracts::model::{Code, Codes, StatePolicy};
use tandem_engine::Config;

/// Status and envelope, in one line.
fn line(response: &Response) -> String {
    let error = response.json()["error"].clone();
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", response.text());
    let part = |name: &str| error[name].as_str().unwrap_or("-").to_owned();
    format!("{} {} {} {}: {}", response.status, part("type"), part("param"), part("code"), part("message"))
}

fn alive(rig: &Rig) {
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
}

#[test]
fn wrong_values_are_400_by_name_and_the_next_request_is_served() {
    let rig = Rig::new();
    let mut lines = String::new();
    for more in [
        json!({"max_tokens": -1}),
        json!({"max_tokens": "ten"}),
        json!({"max_tokens": 1.5}),
        json!({"max_tokens": 0}),
        json!({"temperature": 2.5}),
        json!({"temperature": "NaN"}),
        json!({"top_p": 1.5}),
        json!({"top_k": -1}),
        json!({"presence_penalty": 9}),
        json!({"repetition_penalty": 0}),
        json!({"dry_sequence_breakers": [3]}),
        json!({"n": 0}),
        json!({"n": 65}),
        json!({"stop": 5}),
        json!({"stop": ""}),
        json!({"stop": vec!["a"; 17]}),
        json!({"stream": "yes"}),
        json!({"stream_options": {"include_usage": 1}}),
        json!({"logprobs": true, "top_logprobs": 50}),
        json!({"top_logprobs": 3}),
        json!({"logprobs": 3}),
        json!({"seed": 1.5}),
        json!({"logit_bias": {"9999999": 5}}),
        json!({"logit_bias": {"a": 5}}),
        json!({"logit_bias": {"5": 101}}),
        json!({"logit_bias": [1]}),
        json!({"messages": "hi"}),
        json!({"messages": 123}),
        json!({"messages": []}),
        json!({"messages": [3]}),
        json!({"messages": [{"content": "a"}]}),
        json!({"messages": [{"role": "wizard", "content": "a"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "hologram", "hologram": "x"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        json!({"messages": [{"role": "tool", "content": "a"}]}),
        json!({"chat_template_kwargs": 3}),
        json!({"reasoning_effort": "most"}),
        json!({"response_format": {"type": "poem"}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "poem"}, "strict": true}}}),
        json!({"guided_json": {"properties": {"a": {"pattern": "("}}}}),
        json!({"guided_json": {"items": {"not": {}}}}),
        json!({"guided_regex": "("}),
        json!({"guided_regex": 3}),
        json!({"guided_choice": []}),
        json!({"guided_grammar": "start: \"a"}),
        json!({"guided_regex": "a", "response_format": {"type": "json_object"}}),
        json!({"tools": [{"type": "function"}]}),
        json!({"model": 3}),
    ] {
        let response = rig.chat("hi", more.clone());
        assert_eq!(response.status, 400, "{more}");
        writeln!(lines, "{}", line(&response)).expect("a line");
    }
    assert_snapshot!(lines);
    alive(&rig);
    assert_eq!(rig.engine.metrics().accepted, 1);
}

#[test]
fn what_is_known_and_not_served_is_refused_with_its_name() {
    let rig = Rig::new();
    let lines = line(&rig.chat("hi", json!({"adapter": "a"})));
    assert_snapshot!(lines);
    let off = json!({
        "n": 1, "logprobs": false, "presence_penalty": 0, "response_format": {"type": "text"}, "tools": [],
        "tool_choice": "none", "adapter": "none", "user": "u", "metadata": {"a": "b"}, "store": false,
        "parallel_tool_calls": true, "service_tier": "auto",
    });
    assert_eq!(rig.chat("say: ok", off).content(), "ok");
}

#[test]
fn bodies_that_are_no_json_are_400() {
    let rig = Rig::new();
    let valid = chat("hi", json!({})).to_string();
    let deep =
        |levels: usize| format!("{{\"messages\":[],\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    let wide: Vec<u8> = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut broken = valid.clone().into_bytes();
    broken[30] = 0xFF;
    for body in [
        Vec::new(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"{".to_vec(),
        valid.as_bytes()[..valid.len() - 1].to_vec(),
        b"\0\x01\x02".to_vec(),
        b"{\"messages\": NaN}".to_vec(),
        b"{\"temperature\": 1e999, \"messages\": []}".to_vec(),
        b"{\"seed\": 1180591620717411303424, \"messages\": [{\"role\":\"user\"}]}".to_vec(),
        wide,
        broken,
        deep(10_000).into_bytes(),
        deep(50_000).into_bytes(),
    ] {
        let response = rig.post_bytes("/v1/chat/completions", &body);
        assert_eq!(response.error().0, 400, "{}", String::from_utf8_lossy(&body[..body.len().min(80)]));
    }
    alive(&rig);
}

#[test]
fn bodies_beyond_the_limit_are_413_and_large_ones_are_read() {
    let rig = Rig::new();
    let filler = |bytes: usize| chat("say: ok", json!({"padding": "x".repeat(bytes)})).to_string();
    assert_eq!(rig.post_bytes("/v1/chat/completions", filler(8 << 20).as_bytes()).content(), "ok");
    let refused = "413 invalid_request_error - -: the body is larger than 33554432 bytes";
    let response = rig.post_bytes("/v1/chat/completions", filler(33 << 20).as_bytes());
    assert_eq!(line(&response), refused);
    for head in ["content-length: 99999999", "transfer-encoding: chunked\r\n\r\n2100000\r\n"] {
        let mut connection = rig.connect();
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n");
        connection.send(head.as_bytes());
        if head.contains("chunked") {
            connection.send(&vec![b' '; 0x210_0000]);
        }
        assert_eq!(line(&connection.response()), refused);
    }
    alive(&rig);
}

#[test]
fn a_prompt_beyond_the_context_names_both_numbers() {
    let rig = Rig::new();
    // "user: " and "\nassistant: " are 18 tokens.
    let response = rig.chat(&"x".repeat(CONTEXT + 182), json!({}));
    assert_eq!(
        line(&response),
        "400 invalid_request_error messages context_length_exceeded: this model's context is 300 tokens, the prompt has: 500"
    );
    let response = rig.post("/v1/completions", &json!({"prompt": "x".repeat(CONTEXT)}));
    assert_eq!(response.error().1["param"], "prompt");
    alive(&rig);
}

#[test]
fn models_and_paths_that_are_not_there_are_404() {
    let rig = Rig::new();
    let named = rig.chat("hi", json!({"model": "no-such-model"}));
    assert_eq!(
        line(&named),
        "404 invalid_request_error model model_not_found: there is no model \"no-such-model\"; known: scripted"
    );
    for name in ["../../x", "/etc/passwd", "a\0b", "scripted/"] {
        assert_eq!(rig.chat("hi", json!({"model": name})).status, 404);
    }
    for name in [json!(""), json!("default_model"), json!(null), json!(MODEL)] {
        assert_eq!(rig.chat("say: ok", json!({"model": name})).content(), "ok");
    }
    for path in ["/v1", "/v1/models/no-such-model", "/v1/models/../../x", "/v1/nothing"] {
        assert_eq!(rig.get(path).error().0, 404, "{path}");
    }
    let several = Rig::with(Setup { names: vec!["a", "b"], ..Setup::default() });
    assert_eq!(several.chat("hi", json!({"model": ""})).status, 404);
    assert_eq!(several.chat("say: ok", json!({"model": "b"})).content(), "ok");
}

#[test]
fn other_methods_are_405() {
    let rig = Rig::new();
    let response = rig.get("/v1/chat/completions");
    assert_eq!((response.error().0, response.header("allow")), (405, Some("POST")));
    assert_eq!(rig.post("/health", &json!({})).status, 405);
    for path in ["/tokenize", "/v1/messages", "/v1/responses", "/v1/requests/x/cancel"] {
        let response = rig.connect().exchange("DELETE", path, b"");
        let message = response.json()["error"]["message"].clone();
        assert_eq!((response.status, response.header("allow")), (405, Some("POST")), "{path}");
        assert_eq!(message, format!("another method is needed at: {path}"));
    }
}

#[test]
fn a_full_queue_is_429_with_a_time_to_come_back() {
    let config = Config { max_queued: 1, max_rows: 1, ..Config::default() };
    let rig = Rig::with(Setup { config, ..Setup::default() });
    rig.control.hold(true);
    let body = chat("say: ok", json!({})).to_string();
    let mut waiting: Vec<Connection> = Vec::new();
    // One runs, one waits.
    for queued in [0, 1] {
        let mut connection = rig.connect();
        connection.request("POST", "/v1/chat/completions", body.as_bytes());
        waiting.push(connection);
        rig.await_metrics(|metrics| metrics.accepted == queued + 1 && metrics.queued == queued as usize);
    }
    let response = rig.chat("say: ok", json!({}));
    assert_eq!((response.status, response.header("retry-after")), (429, Some("1")));
    assert_eq!(response.error().1["type"], "rate_limit_error");
    rig.control.release();
    assert!(waiting.iter_mut().all(|connection| connection.response().content() == "ok"));
}

#[test]
fn what_the_model_cannot_run_is_501_with_its_reasons_before_a_stream_opens() {
    let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
    let config = Config { state: StatePolicy::Encoded { codes, start: 0 }, ..Config::default() };
    let rig = Rig::with(Setup { config, ..Setup::default() });
    for more in [json!({}), json!({"stream": true}), json!({"n": 2})] {
        let (status, error) = rig.chat("say: ok", more).error();
        let message = "this model cannot run the request as asked for: turbo-kv-batch-unsupported";
        let expected = json!({
            "message": message, "type": "unsupported_execution", "param": null, "code": "unsupported_execution",
            "reasons": ["turbo-kv-batch-unsupported"],
        });
        assert_eq!((status, error), (501, expected));
    }
    let response = rig.post("/v1/completions", &json!({"prompt": "say: ok\n"}));
    assert_eq!(response.error().1["reasons"], json!(["turbo-kv-batch-unsupported"]));
    // What is wrong in itself is told first.
    let (status, error) = rig.chat(&"long ".repeat(CONTEXT), json!({})).error();
    assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(rig.engine.metrics().accepted, 0);
}

#[test]
fn a_model_without_a_template_takes_raw_prompts_only() {
    let rig = Rig::with(Setup { template: None, ..Setup::default() });
    assert_eq!(
        line(&rig.chat("hi", json!({}))),
        "400 invalid_request_error messages -: this model has no chat template; use a raw prompt"
    );
    let answer: Json = rig.post("/v1/completions", &json!({"prompt": "say: ok\n"})).json();
    assert_eq!(answer["choices"][0]["text"], "ok");
}

#[test]
fn a_step_that_fails_is_500_and_the_next_request_is_served() {
    let rig = Rig::new();
    rig.control.fail_next("as scripted");
    let (status, error) = rig.chat("say: a", json!({})).error();
    assert_eq!((status, &error["type"]), (500, &json!("server_error")));
    alive(&rig);
}

/// The scripted model keeps rows in one way alone, so that the way that a request has chosen shows in its refusal.
#[test]
fn a_request_chooses_how_its_keys_and_values_are_kept() {
    let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
    let encoded = StatePolicy::Encoded { codes, start: 0 };
    let config = Config { states: vec![encoded.clone()], ..Config::default() };
    let states = vec![("off".to_owned(), StatePolicy::Plain), ("k8v3".to_owned(), encoded)];
    let rig = Rig::with(Setup { config, states, ..Setup::default() });
    for more in [json!({}), json!({"kv_quant": null}), json!({"kv_quant": "off"})] {
        assert_eq!(rig.chat("say: ok", more).content(), "ok");
    }
    let (status, error) = rig.chat("say: ok", json!({"kv_quant": "k8v3"})).error();
    assert_eq!((status, &error["reasons"]), (501, &json!(["turbo-kv-batch-unsupported"])));
    for (unknown, told) in [(json!(8), "8"), (json!("on"), "on")] {
        let (status, error) = rig.chat("say: ok", json!({"kv_quant": unknown})).error();
        let message = format!("kv_quant must be one of off, k8v3, got: {told}");
        assert_eq!((status, &error["message"]), (400, &json!(message)));
    }
    let (status, error) = rig.chat("say: ok", json!({"kv_quant": [8]})).error();
    assert_eq!((status, &error["param"]), (400, &json!("kv_quant")));
}
