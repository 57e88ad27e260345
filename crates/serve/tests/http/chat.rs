//! `/v1/chat/completions`: whole answers and streams, byte for byte.

use crate::support::{Rig, Setup, chat, stable};
use insta::assert_snapshot;
use serde_json::{Value as Json, json};
use tandem_contracts::sampling::Sampling;
use tandem_serve::model::Defaults;

fn joined(chunks: &[Json]) -> String {
    let text = |chunk: &Json| chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
    chunks.iter().map(text).collect()
}

fn reasons(chunks: &[Json]) -> Vec<&Json> {
    let choices = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
    choices.map(|choice| &choice["finish_reason"]).collect()
}

#[test]
fn a_whole_answer() {
    let rig = Rig::new();
    let response = rig.chat("say: Paris 🦉", json!({}));
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    assert_snapshot!(stable(response.text()));
    // "user: say: Paris 🦉\nassistant: ": 6 + 15 + 1 + 11 bytes; "Paris 🦉" is 10 bytes, and the end token.
    assert_eq!(response.json()["usage"]["prompt_tokens"], 33);
    assert_eq!(response.json()["usage"]["completion_tokens"], 11);
}

#[test]
fn a_stream_has_a_role_text_one_reason_usage_and_an_end() {
    let rig = Rig::new();
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let response = rig.chat("say: a🦉", usage);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    // How many deltas the engine merges depends on the reader; joined they are the answer.
    let chunks = response.chunks();
    let text: Vec<&Json> =
        chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["content"] != "").collect();
    assert!(text.len() >= 2, "{text:?}");
    assert_eq!(joined(&chunks), "a🦉");
    let others: Vec<String> = [&chunks[0], &chunks[chunks.len() - 2], &chunks[chunks.len() - 1]]
        .iter()
        .map(|chunk| stable(&chunk.to_string()))
        .collect();
    assert_snapshot!(others.join("\n"));
    let expected_nulls = reasons(&chunks).len() - 1;
    assert!(reasons(&chunks)[..expected_nulls].iter().all(|reason| reason.is_null()));
    assert_eq!(reasons(&chunks)[expected_nulls], "stop");
}

#[test]
fn a_stream_without_usage_says_nothing_of_it() {
    let rig = Rig::new();
    let response = rig.chat("say: ab", json!({"stream": true, "max_tokens": 1}));
    let chunks = response.chunks();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(reasons(&chunks).last().copied(), Some(&json!("length")));
    assert_snapshot!(stable(response.text()));
}

#[test]
fn usage_and_reason_are_the_same_in_both_modes() {
    let rig = Rig::new();
    for more in
        [json!({}), json!({"max_tokens": 3}), json!({"stop": "de"}), json!({"max_completion_tokens": 2})]
    {
        let whole = rig.chat("say: abcdef", more.clone()).json();
        let mut streamed = more;
        streamed["stream"] = json!(true);
        streamed["stream_options"] = json!({"include_usage": true});
        let chunks = rig.chat("say: abcdef", streamed).chunks();
        assert_eq!(chunks.last().expect("usage")["usage"], whole["usage"]);
        assert_eq!(reasons(&chunks).last().copied(), Some(&whole["choices"][0]["finish_reason"]));
        assert_eq!(joined(&chunks), whole["choices"][0]["message"]["content"]);
    }
}

#[test]
fn lengths_are_honoured() {
    let rig = Rig::new();
    for (more, count) in [
        (json!({"max_tokens": 5}), 5),
        (json!({"max_completion_tokens": 3}), 3),
        (json!({"max_completion_tokens": 3, "max_tokens": 5}), 3),
        (json!({"max_completion_tokens": null, "max_tokens": 4}), 4),
    ] {
        let answer = rig.chat("hi", more).json();
        assert_eq!(answer["usage"]["completion_tokens"], count);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
    // Without a length an answer goes to the context's end: "user: hi\nassistant: " has 20 tokens.
    let answer = rig.chat("hi", json!({"max_tokens": 999_999_999_999_u64})).json();
    assert_eq!(answer["usage"]["total_tokens"], crate::support::CONTEXT);
}

#[test]
fn the_servers_own_bound_holds_for_all() {
    let defaults = Defaults { sampling: Sampling::greedy(), max_tokens: Some(4) };
    let rig = Rig::with(Setup { defaults, ..Setup::default() });
    for more in [json!({}), json!({"max_tokens": 100})] {
        assert_eq!(rig.chat("hi", more).json()["usage"]["completion_tokens"], 4);
    }
}

#[test]
fn stop_strings_cut_exactly_and_the_earliest_wins() {
    let rig = Rig::new();
    for (stop, text) in [
        (json!("oak elm"), "an "),
        (json!(["elm tree", "oak"]), "an "),
        (json!(["zzzzzz", "m"]), "an oak el"),
        (json!(["k e", "oak elm t"]), "an "),
        (json!([]), "an oak elm tree"),
        (json!(null), "an oak elm tree"),
        (json!("never"), "an oak elm tree"),
    ] {
        let whole = rig.chat("say: an oak elm tree", json!({"stop": stop})).json();
        assert_eq!(whole["choices"][0]["message"]["content"], text, "{stop}");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        let streamed = rig.chat("say: an oak elm tree", json!({"stop": stop, "stream": true})).chunks();
        assert_eq!(joined(&streamed), text, "{stop}");
    }
}

#[test]
fn content_may_have_any_form() {
    let rig = Rig::new();
    let content = |content: Json| {
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
        rig.post("/chat/completions", &body).json()["usage"]["prompt_tokens"].clone()
    };
    let parts = json!([{"type": "text", "text": "Name three"}, {"type": "text", "text": " colours."}]);
    assert_eq!(content(parts), content(json!("Name three colours.")));
    assert_eq!(content(json!(null)), content(json!("")));
    // A developer is a system to a template that does not know it: "system: a\nassistant: ".
    let body = json!({"messages": [{"role": "developer", "content": "a"}], "max_tokens": 1});
    assert_eq!(rig.post("/v1/chat/completions", &body).json()["usage"]["prompt_tokens"], 21);
}

#[test]
fn sampling_fields_reach_the_engine() {
    let sampling = Sampling { temperature: 1.5, ..Sampling::default() };
    let defaults = Defaults { sampling, max_tokens: None };
    let rig = Rig::with(Setup { defaults, ..Setup::default() });
    // A bias of 100 beats the script's 50.
    let biased = json!({"logit_bias": {"33": 100}, "max_tokens": 2, "temperature": 0});
    assert_eq!(rig.chat("say: ab", biased).content(), "!!");
    for more in [
        json!({"seed": -1, "top_p": 0, "top_k": 1, "min_p": 0.5}),
        json!({"seed": 18_446_744_073_709_551_615_u64}),
        json!({"temperature": 2.0, "top_p": 1.0}),
    ] {
        assert_eq!(rig.chat("say: ab", more).content(), "ab");
    }
    assert_eq!(
        rig.chat("say: ab", json!({"ignore_eos": true, "max_tokens": 5})).json()["usage"]["completion_tokens"],
        5
    );
}

#[test]
fn penalties_reach_the_engine_and_look_as_far_as_they_are_told() {
    let rig = Rig::new();
    // The script's 50, divided by 100 and less 2, is below all others; of those the smallest id comes first.
    let penalties = json!({
        "repetition_penalty": 100, "repetition_context_size": 1, "presence_penalty": 2, "presence_context_size": 1,
    });
    assert_eq!(rig.chat("say: aab", penalties).content(), "a\0b");
    // What the prompt says may not be said again, but behind a breaker.
    let dry = |breakers: Json| {
        let dry = json!({"dry_multiplier": 90, "dry_sequence_breakers": breakers, "max_tokens": 4});
        rig.chat("say: abcd", dry).content()
    };
    // ": a" and "bcd" are in the prompt.
    assert_eq!(dry(json!([])), "\0bc\0");
    assert_eq!(dry(json!(["c"])), "\0bcd");
}

#[test]
fn template_variables_come_from_the_request() {
    let rig = Rig::new();
    let rendered = |more: Json| rig.post("/apply-template", &chat("a", more)).json()["prompt"].clone();
    assert_eq!(rendered(json!({})), "user: a\nassistant: ");
    let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
    assert_eq!(rendered(off), "user: a\nthink: False\nassistant: ");
    assert_eq!(rendered(json!({"reasoning_effort": "none"})), "user: a\nthink: False\nassistant: ");
    let (status, error) = rig.chat("a", json!({"reasoning_effort": "high"})).error();
    assert_eq!((status, &error["param"]), (400, &json!("reasoning_effort")));
}

#[test]
fn several_choices_come_whole_and_as_streams() {
    let rig = Rig::new();
    let whole = rig.chat("say: ab", json!({"n": 3})).json();
    let choices = whole["choices"].as_array().expect("choices");
    let texts: Vec<&Json> = choices.iter().map(|choice| &choice["message"]["content"]).collect();
    assert_eq!(texts, ["ab"; 3]);
    // One prompt, three answers of two tokens and an end: "user: say: ab\nassistant: " has 25 tokens.
    assert_eq!(
        (&whole["usage"]["prompt_tokens"], &whole["usage"]["completion_tokens"]),
        (&json!(25), &json!(9))
    );
    let more = json!({"n": 2, "stream": true, "stream_options": {"include_usage": true}});
    let chunks = rig.chat("say: ab", more).chunks();
    for index in 0..2 {
        let own: Vec<Json> =
            chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index).cloned().collect();
        assert_eq!(
            (joined(&own).as_str(), own[0]["choices"][0]["delta"]["role"].as_str()),
            ("ab", Some("assistant"))
        );
        let reasons = reasons(&own);
        assert_eq!(reasons.iter().filter(|reason| !reason.is_null()).count(), 1);
        assert_eq!(reasons.last().copied(), Some(&json!("stop")));
    }
    assert_eq!(chunks.last().expect("usage")["usage"]["total_tokens"], 31);
}

#[test]
fn many_clients_are_answered_together() {
    let rig = Rig::new();
    rig.control.hold(true);
    let mut connections: Vec<_> = (0..8)
        .map(|index| {
            let mut connection = rig.connect();
            let body = chat(&format!("say: answer {index}"), json!({})).to_string();
            connection.request("POST", "/v1/chat/completions", body.as_bytes());
            connection
        })
        .collect();
    rig.await_metrics(|metrics| metrics.accepted == 8);
    rig.control.release();
    let answers: Vec<String> =
        connections.iter_mut().map(|connection| connection.response().content()).collect();
    let want: Vec<String> = (0..8).map(|index| format!("answer {index}")).collect();
    assert_eq!(answers, want);
    assert!(rig.control.steps().iter().any(|&rows| rows >= 7));
    let ids: std::collections::BTreeSet<String> =
        (0..3).map(|_| rig.chat("say: a", json!({})).json()["id"].to_string()).collect();
    assert_eq!(ids.len(), 3);
}
