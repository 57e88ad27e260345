//! `/metrics`: what people chart is counted as it happens.

use crate::support::{Rig, Setup, chat};
use serde_json::json;
use tandem_engine::Config;

/// The value of the only line that begins so.
fn value(rig: &Rig, start: &str) -> Option<f64> {
    let response = rig.get("/metrics");
    let mut lines = response.text().lines().filter(|line| line.starts_with(start));
    let value = lines.next().and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert_eq!(lines.next(), None, "{start}");
    value
}

#[test]
fn requests_tokens_and_outcomes_are_counted() {
    let rig = Rig::new();
    assert_eq!(rig.chat("say: ab", json!({})).content(), "ab");
    assert_eq!(rig.chat("say: ab", json!({"max_tokens": 1, "stream": true})).status, 200);
    assert_eq!(rig.chat("hi", json!({"n": 0})).status, 400);
    assert_eq!(rig.get("/nowhere/at/all").status, 404);
    rig.await_idle();
    let response = rig.get("/metrics");
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    // "user: say: ab\nassistant: " twice; the answer's two bytes with the end token, and one byte.
    for (line, count) in [
        (r#"tandem_rows_ended_total{model="scripted",outcome="end"}"#, 1.0),
        (
            r#"tandem_requests_ended_total{model="scripted",endpoint="/v1/chat/completions",outcome="end"}"#,
            1.0,
        ),
        (
            r#"tandem_requests_ended_total{model="scripted",endpoint="/v1/chat/completions",outcome="length"}"#,
            1.0,
        ),
        (r#"tandem_http_requests_total{endpoint="/v1/chat/completions",status="200"}"#, 2.0),
        (r#"tandem_http_requests_total{endpoint="/v1/chat/completions",status="400"}"#, 1.0),
        (r#"tandem_http_requests_total{endpoint="other",status="404"}"#, 1.0),
        (r#"tandem_tokens_total{model="scripted",kind="prompt"}"#, 50.0),
        (r#"tandem_tokens_total{model="scripted",kind="completion"}"#, 4.0),
        (r#"tandem_prefix_cache_lookups_total{model="scripted"}"#, 2.0),
        (r#"tandem_prefix_cache_hits_total{model="scripted"}"#, 0.0),
        (
            r#"tandem_time_to_first_token_seconds_count{model="scripted",endpoint="/v1/chat/completions"}"#,
            2.0,
        ),
        (r#"tandem_request_duration_seconds_count{model="scripted",endpoint="/v1/chat/completions"}"#, 2.0),
        (r#"tandem_requests_running{model="scripted"}"#, 0.0),
        (r#"tandem_requests_waiting{model="scripted"}"#, 0.0),
    ] {
        assert_eq!(value(&rig, line), Some(count), "{line}: {}", response.text());
    }
}

/// What a client sends is in no label, whatever it sends.
#[test]
fn clients_make_no_series() {
    let rig = Rig::new();
    let lines = || rig.get("/metrics").text().lines().count();
    rig.get("/nowhere/0");
    let before = lines();
    for name in 1..20 {
        rig.get(&format!("/nowhere/{name}"));
        rig.get(&format!("/v1/models/{name}"));
        rig.chat("hi", json!({"model": format!("m{name}")}));
    }
    // The two paths with their new status, and metrics themselves.
    assert!(lines() <= before + 3, "{} more", lines() - before);
}

/// A row that is there and has no token yet has ended its wait; one behind it has not.
#[test]
fn the_time_in_the_queue_ends_with_the_row() {
    let config = Config { max_rows: 1, ..Config::default() };
    let rig = Rig::with(Setup { config, ..Setup::default() });
    rig.control.hold(true);
    let mut connections: Vec<_> = (0..2).map(|_| rig.connect()).collect();
    for (index, connection) in connections.iter_mut().enumerate() {
        let body = chat("say: ab", json!({})).to_string();
        connection.request("POST", "/v1/chat/completions", body.as_bytes());
        rig.await_metrics(|metrics| metrics.accepted == index as u64 + 1);
    }
    let labels = r#"{model="scripted",endpoint="/v1/chat/completions"}"#;
    let (queue, first) = (
        format!("tandem_queue_time_seconds_count{labels}"),
        format!("tandem_time_to_first_token_seconds_count{labels}"),
    );
    while value(&rig, &queue) != Some(1.0) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(value(&rig, &first), Some(0.0));
    rig.control.release();
    connections.iter_mut().for_each(|connection| assert_eq!(connection.response().content(), "ab"));
    assert_eq!((value(&rig, &queue), value(&rig, &first)), (Some(2.0), Some(2.0)));
}

#[test]
fn clients_that_leave_are_told_apart_from_answers_that_end() {
    let rig = Rig::new();
    rig.control.hold(true);
    for stream in [false, true] {
        let mut connection = rig.connect();
        let body = chat("hi", json!({"stream": stream})).to_string();
        connection.request("POST", "/v1/chat/completions", body.as_bytes());
        rig.await_metrics(|metrics| metrics.accepted == 1 + u64::from(stream));
        if stream {
            connection.head();
        }
        connection.leave();
    }
    let ended = r#"tandem_requests_ended_total{model="scripted",endpoint="/v1/chat/completions",outcome="client_gone"}"#;
    while value(&rig, ended) != Some(2.0) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The stream had its status before.
    assert_eq!(
        value(&rig, r#"tandem_http_requests_total{endpoint="/v1/chat/completions",status="499"}"#),
        Some(1.0)
    );
    rig.control.release();
    rig.await_idle();
}
