//! Streams that break, clients that leave, models that load, servers that end.

use crate::support::{Connection, Rig, Setup, chat};
use serde_json::{Value as Json, json};
use std::{thread, time::Duration};

fn stream(rig: &Rig, content: &str) -> Connection {
    let mut connection = rig.connect();
    let body = chat(content, json!({"stream": true})).to_string();
    connection.request("POST", "/v1/chat/completions", body.as_bytes());
    connection
}

fn text(chunk: Option<Vec<u8>>) -> String {
    String::from_utf8(chunk.expect("a chunk")).expect("text")
}

#[test]
fn a_failure_after_the_stream_has_opened_is_one_error_event() {
    let rig = Rig::new();
    rig.control.hold(true);
    let mut connection = stream(&rig, "say: ab");
    assert_eq!(connection.head().0, 200);
    assert!(text(connection.chunk()).contains("\"role\":\"assistant\""));
    rig.control.fail_next("as scripted");
    rig.control.release();
    let event = text(connection.chunk());
    let error: Json =
        serde_json::from_str(event.strip_prefix("data: ").expect("an event").trim()).expect("JSON");
    assert_eq!(error["error"]["type"], "server_error");
    assert_eq!(connection.chunk(), None);
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
}

#[test]
fn silence_is_filled_with_comments() {
    let rig = Rig::with(Setup { keep_alive: Duration::from_millis(50), ..Setup::default() });
    rig.control.hold(true);
    let mut connection = stream(&rig, "say: ab");
    connection.head();
    assert!(text(connection.chunk()).starts_with("data: "));
    assert_eq!(text(connection.chunk()), ": keep-alive\n\n");
    assert_eq!(text(connection.chunk()), ": keep-alive\n\n");
    rig.control.release();
    let rest: String = std::iter::from_fn(|| connection.chunk()).map(|chunk| text(Some(chunk))).collect();
    assert!(rest.ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_client_that_leaves_frees_its_row() {
    let rig = Rig::new();
    rig.control.hold(true);
    let mut streaming = stream(&rig, "hi");
    streaming.head();
    let mut waiting = rig.connect();
    waiting.request("POST", "/v1/chat/completions", chat("hi", json!({})).to_string().as_bytes());
    let mut company = rig.connect();
    company.request("POST", "/v1/chat/completions", chat("say: company", json!({})).to_string().as_bytes());
    rig.await_metrics(|metrics| metrics.accepted == 3);
    streaming.leave();
    waiting.leave();
    // The server learns of it from the sockets, then the engine from the server.
    thread::sleep(Duration::from_secs(1));
    rig.control.release();
    rig.await_metrics(|metrics| metrics.outcomes.cancelled == 2);
    assert_eq!(company.response().content(), "company");
    rig.await_metrics(|metrics| metrics.active == 0 && metrics.outcomes.end == 1);
}

#[test]
fn a_request_is_cancelled_by_the_id_of_its_answer() {
    let rig = Rig::new();
    rig.control.hold(true);
    let mut connection = rig.connect();
    let body = chat("hi", json!({"stream": true, "n": 2, "max_tokens": 100})).to_string();
    connection.request("POST", "/v1/chat/completions", body.as_bytes());
    connection.head();
    let opening = text(connection.chunk());
    let opening: Json =
        serde_json::from_str(opening.strip_prefix("data: ").expect("an event").trim()).expect("JSON");
    let id = opening["id"].as_str().expect("an id").to_owned();
    let cancel = format!("/v1/requests/{id}/cancel");
    let told = rig.post(&cancel, &json!({}));
    assert_eq!((told.status, told.json()), (200, json!({"id": id, "cancelled": true})));
    rig.control.release();
    rig.await_metrics(|metrics| metrics.outcomes.cancelled == 2);
    let rest: String = std::iter::from_fn(|| connection.chunk()).map(|chunk| text(Some(chunk))).collect();
    assert!(rest.contains("request_cancelled") && !rest.contains("[DONE]"), "{rest}");
    assert_eq!(rig.post(&cancel, &json!({})).error().0, 404);
    assert_eq!(rig.post("/v1/requests/nobody/cancel", &json!({})).error().0, 404);
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
}

#[test]
fn a_body_cut_midway_harms_nobody() {
    let rig = Rig::new();
    for bytes in [
        &b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"messages\""[..],
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"mes\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET /health HTTP/1.1\r\nho",
    ] {
        let mut connection = rig.connect();
        connection.send(bytes);
        connection.leave();
    }
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
}

#[test]
fn connections_are_reused() {
    let rig = Rig::new();
    let mut connection = rig.connect();
    for _ in 0..3 {
        connection.request("POST", "/v1/chat/completions", chat("say: ok", json!({})).to_string().as_bytes());
        assert_eq!(connection.response().content(), "ok");
    }
}

#[test]
fn a_loading_model_is_503_and_then_serves() {
    let rig = Rig::with(Setup { loading: true, ..Setup::default() });
    let health = rig.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({"status": "loading"})));
    let (status, error) = rig.chat("say: ok", json!({})).error();
    assert_eq!((status, &error["type"]), (503, &json!("server_error")));
    assert_eq!(rig.get("/v1/models").json()["data"][0]["context_window"], json!(null));
    rig.control.release();
    while rig.get("/health").status != 200 {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(rig.chat("say: ok", json!({})).content(), "ok");
}

#[test]
fn shutdown_lets_running_answers_end_and_takes_nothing_new() {
    let mut rig = Rig::new();
    rig.control.hold(true);
    let mut running = stream(&rig, "say: goodbye");
    running.head();
    // The row is in a step, not only in the queue.
    while rig.control.steps().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    rig.begin_shutdown();
    while rig.get("/health").status == 200 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.get("/health").json(), json!({"status": "draining"}));
    assert_eq!(rig.chat("say: no", json!({})).status, 503);
    rig.control.release();
    let rest: String = std::iter::from_fn(|| running.chunk()).map(|chunk| text(Some(chunk))).collect();
    assert!(rest.contains("\"finish_reason\":\"stop\"") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(running.is_closed());
    rig.finish();
}

#[test]
fn shutdown_does_not_wait_for_ever() {
    let mut rig = Rig::with(Setup { drain_timeout: Duration::from_millis(100), ..Setup::default() });
    // A step of half a second, again and again: the answer is longer than the time to drain.
    let control = std::sync::Arc::clone(&rig.control);
    rig.control.hold(true);
    let mut running = stream(&rig, "hi");
    running.head();
    while rig.control.steps().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let mut whole = rig.connect();
    whole.request("POST", "/v1/chat/completions", chat("hi", json!({})).to_string().as_bytes());
    rig.await_metrics(|metrics| metrics.accepted == 2);
    rig.begin_shutdown();
    thread::sleep(Duration::from_millis(300));
    control.release();
    let rest: String = std::iter::from_fn(|| running.chunk()).map(|chunk| text(Some(chunk))).collect();
    assert!(rest.contains("the server is shutting down") && !rest.contains("[DONE]"), "{rest}");
    let (status, error) = whole.response().error();
    assert_eq!((status, &error["message"]), (503, &json!("the server is shutting down")));
    rig.finish();
}

/// The first model is busy all the time.
#[test]
fn all_models_drain_together() {
    let mut rig = Rig::with(Setup { names: vec!["one", "two"], apart: true, ..Setup::default() });
    rig.control.hold(true);
    let mut running = rig.connect();
    let body = chat("say: goodbye", json!({"model": "one", "stream": true})).to_string();
    running.request("POST", "/v1/chat/completions", body.as_bytes());
    running.head();
    while rig.control.steps().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    rig.begin_shutdown();
    while rig.get("/health").status == 200 {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(50));
    for model in ["one", "two"] {
        assert_eq!(rig.chat("say: no", json!({"model": model})).status, 503, "{model}");
    }
    rig.control.release();
    let rest: String = std::iter::from_fn(|| running.chunk()).map(|chunk| text(Some(chunk))).collect();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    rig.finish();
}

#[test]
fn a_dead_engine_is_503() {
    let rig = Rig::new();
    rig.engine.shutdown();
    assert_eq!((rig.get("/health").status, rig.chat("hi", json!({})).status), (503, 503));
}
