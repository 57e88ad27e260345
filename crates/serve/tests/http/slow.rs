//! Clients that are slow, silent or many: each costs itself, and nobody waits for it.

use crate::support::{Connection, Rig, Setup, alone, chat};
use serde_json::{Value as Json, json};
use std::{
    thread,
    time::{Duration, Instant},
};
use tandem_engine::Config;

const PATIENCE: Duration = Duration::from_secs(1);
/// Requests that are worked at or wait for it at once.
const PLACES: usize = 1024;

fn impatient() -> Rig {
    Rig::with(Setup { patience: PATIENCE, ..Setup::default() })
}

fn alive(rig: &Rig) {
    let begun = Instant::now();
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// How many of so many connections can be open, both ends of each in this process.
fn connections(wanted: usize) -> usize {
    let files = rlimit::increase_nofile_limit(8192).unwrap_or(0);
    usize::try_from(files / 5).unwrap_or(usize::MAX).min(wanted)
}

/// One byte after the other, more often than the server loses patience, for ever.
#[test]
fn a_head_that_trickles_in_is_given_up() {
    let _alone = alone();
    let rig = impatient();
    let mut slow: Vec<Connection> = (0..20).map(|_| rig.connect()).collect();
    let begun = Instant::now();
    for byte in b"GET /health HTTP/1.1\r\nhost: localhost\r\n".iter().cycle().take(12) {
        slow.iter_mut().for_each(|connection| connection.send(&[*byte]));
        thread::sleep(Duration::from_millis(50));
    }
    alive(&rig);
    assert!(slow.iter_mut().all(Connection::is_closed));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_body_that_stops_is_408_and_one_that_goes_on_is_read() {
    let _alone = alone();
    let rig = impatient();
    let body = chat("say: ok", json!({})).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stopped = rig.connect();
    stopped.send(head.as_bytes());
    stopped.send(&body.as_bytes()[..10]);
    let (status, error) = stopped.response().error();
    assert_eq!((status, &error["type"]), (408, &json!("invalid_request_error")));
    let mut slow = rig.connect();
    slow.send(head.as_bytes());
    for part in body.as_bytes().chunks(body.len() / 6) {
        thread::sleep(PATIENCE / 3);
        slow.send(part);
    }
    assert_eq!(slow.response().content(), "ok");
    alive(&rig);
}

/// One byte after the other, more often than the server loses patience: it would take for ever.
#[test]
fn a_body_that_trickles_in_is_given_up() {
    let _alone = alone();
    let rig = impatient();
    let mut slow = rig.connect();
    slow.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n");
    let begun = Instant::now();
    let mut sender = slow.again();
    let sending = thread::spawn(move || {
        for _ in 0..100 {
            sender.send(b"{");
            thread::sleep(PATIENCE / 10);
        }
    });
    assert_eq!(slow.response().error().0, 408);
    let time = begun.elapsed();
    // Four patiences, beside what a busy machine takes.
    assert!(time >= PATIENCE * 3 && time < PATIENCE * 9, "{time:?}");
    alive(&rig);
    slow.leave();
    sending.join().expect("a sender");
}

/// More of them than requests are worked at: bodies that are all but whole have no place yet.
#[test]
fn slow_senders_keep_nobody_out() {
    let _alone = alone();
    let count = connections(1100);
    if count <= PLACES {
        eprintln!(
            "nothing is held here: of more than {PLACES} connections the limit on open files allows {count}"
        );
        return;
    }
    let rig = Rig::new();
    let mut slow: Vec<Connection> = (0..count).map(|_| rig.connect()).collect();
    for connection in &mut slow {
        connection
            .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n{ ");
    }
    alive(&rig);
    // What ends at last is read.
    for connection in slow.iter_mut().step_by(100) {
        connection.send(b"}");
        assert_eq!(connection.response().error().0, 400);
    }
}

/// Large bodies that are all but whole hold what they hold; others are told to come back, and small ones get through.
#[test]
fn large_bodies_at_once_are_bounded() {
    let rig = Rig::with(Setup { bodies: 2 << 20, ..Setup::default() });
    let body = chat("say: ok", json!({"user": "x".repeat(1 << 20)})).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (most, end) = body.as_bytes().split_at(body.len() - 1);
    let mut waiting: Vec<Connection> = (0..2).map(|_| rig.connect()).collect();
    for connection in &mut waiting {
        connection.send(head.as_bytes());
        connection.send(most);
    }
    // Until the server has read what was sent.
    let refused = (0..200).find_map(|_| {
        thread::sleep(Duration::from_millis(20));
        Some(rig.post_bytes("/v1/chat/completions", body.as_bytes())).filter(|it| it.status != 200)
    });
    let refused = refused.expect("a refusal");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    alive(&rig);
    for connection in &mut waiting {
        connection.send(end);
        assert_eq!(connection.response().content(), "ok");
    }
    assert_eq!(rig.post_bytes("/v1/chat/completions", body.as_bytes()).content(), "ok");
}

/// On the wire it is a fraction of what there is; as values it would be all of it.
#[test]
fn bodies_are_bounded_by_what_their_values_take() {
    let rig = Rig::with(Setup { bodies: 2 << 20, ..Setup::default() });
    for nested in ["[0]", "[]", "{\"\":0}"] {
        let metadata: Json =
            serde_json::from_str(&format!("[{}0]", format!("{nested},").repeat(5000))).expect("JSON");
        let body = json!({"metadata": {"a": metadata}});
        assert!(body.to_string().len() < 64 << 10);
        let response = rig.chat("say: ok", body);
        assert_eq!(response.status, 413, "{nested}: {}", response.text());
    }
    let text = "[0],".repeat(5000);
    assert_eq!(rig.chat("say: ok", json!({"metadata": {"a": text}})).content(), "ok");
    alive(&rig);
}

/// More is asked for than sockets hold, and nothing read.
#[test]
fn a_client_that_never_reads_loses_its_rows_and_nobody_waits() {
    let config = Config { max_rows: 32, idle_timeout: Duration::from_secs(60), ..Config::default() };
    let rig = Rig::with(Setup { config, patience: PATIENCE, ..Setup::default() });
    rig.control.pause(Duration::from_millis(8));
    // About 60 KB for each step, of which there are more than 250.
    let body = chat("hi", json!({"stream": true, "n": 24, "logprobs": true, "top_logprobs": 20})).to_string();
    let mut deaf = rig.connect();
    deaf.request("POST", "/v1/chat/completions", body.as_bytes());
    rig.await_metrics(|metrics| metrics.active == 24);
    let begun = Instant::now();
    while rig.engine.metrics().outcomes.cancelled == 0 {
        alive(&rig);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", rig.engine.metrics());
    }
    rig.control.pause(Duration::ZERO);
    rig.await_metrics(|metrics| metrics.outcomes.cancelled == 24 && metrics.active == 0);
    drop(deaf);
    rig.await_idle();
}

#[test]
fn a_thousand_idle_connections_keep_nobody_waiting() {
    let _alone = alone();
    let count = connections(1000);
    let rig = Rig::new();
    let mut idle: Vec<Connection> = (0..count).map(|_| rig.connect()).collect();
    for connection in idle.iter_mut().step_by(2) {
        connection.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost");
    }
    alive(&rig);
    // They are served when they ask after all.
    for connection in idle.iter_mut().skip(1).step_by(50) {
        connection.request("GET", "/health", b"");
        assert_eq!(connection.response().status, 200);
    }
    drop(idle);
    alive(&rig);
    rig.await_idle();
}

#[test]
fn a_connection_on_which_nothing_is_asked_is_closed() {
    let _alone = alone();
    let rig = impatient();
    let mut connection = rig.connect();
    connection.request("GET", "/health", b"");
    assert_eq!(connection.response().status, 200);
    assert!(connection.is_closed());
}
