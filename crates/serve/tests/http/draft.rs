//! Answers with drafts: text, usage and reason are those of answers without.

use crate::support::{Rig, Setup};
use serde_json::{Value as Json, json};
use std::thread;
use tandem_engine::{Config, Draft, Drafting, Runs};

fn rig(draft: Draft) -> Rig {
    let drafting = Drafting { draft, tokens: 6, adaptive: false, ..Drafting::default() };
    Rig::with(Setup { config: Config { drafting, ..Config::default() }, ..Setup::default() })
}

fn past() -> Draft {
    Draft::Past(Runs::default())
}

/// What an answer says and costs, but for what tells of drafts.
fn said(answer: &Json) -> (Json, Json) {
    let choice = &answer["choices"][0];
    let mut usage = answer["usage"].clone();
    usage.as_object_mut().expect("usage").remove("tandem");
    (json!([choice["message"]["content"], choice["finish_reason"]]), usage)
}

#[test]
fn stops_lengths_and_ends_inside_of_windows_cut_as_without_drafts() {
    let (plain, drafting) = (rig(Draft::Off), rig(past()));
    let say = "say: abcabcabcabcabc, abcabcabcabcabc; the end";
    let accepted = |rig: &Rig| rig.engine.metrics().accepted_tokens;
    for more in [
        json!({}),
        json!({"stop": ["cab", "bcabca"]}),
        json!({"stop": ["c, abca"]}),
        json!({"stop": [";"]}),
        json!({"max_tokens": 11}),
        json!({"max_tokens": 12}),
        json!({"max_tokens": 13}),
        json!({"repetition_penalty": 1.3, "temperature": 1, "seed": 3}),
        json!({"presence_penalty": 1.5, "frequency_penalty": 0.5}),
        json!({"logprobs": true, "top_logprobs": 2}),
    ] {
        let (expected, whole) =
            (plain.chat(say, more.clone()).json(), drafting.chat(say, more.clone()).json());
        assert_eq!(said(&whole), said(&expected), "{more}");
        assert_eq!(whole["choices"][0]["logprobs"], expected["choices"][0]["logprobs"]);
        let mut streamed = more.clone();
        streamed["stream"] = json!(true);
        streamed["stream_options"] = json!({"include_usage": true});
        let chunks = drafting.chat(say, streamed).chunks();
        let (last, deltas) = chunks.split_last().expect("chunks");
        let text: String =
            deltas.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        let reason =
            deltas.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).find(|it| !it.is_null());
        let message = json!({"message": {"content": text}, "finish_reason": reason});
        let joined = json!({"choices": [message], "usage": last["usage"]});
        assert_eq!(said(&joined), said(&expected), "{more}, streamed");
    }
    assert!(accepted(&drafting) > 50 && accepted(&plain) == 0, "{}", accepted(&drafting));
}

#[test]
fn eight_forms_at_once_with_drafts_are_all_filled_in() {
    let schema = json!({
        "type": "object", "properties": {"kind": {"enum": ["first-choice", "second-choice"]}, "sure": {"type": "boolean"}},
        "required": ["kind", "sure"], "additionalProperties": false,
    });
    for draft in [past(), Draft::Off] {
        let rig = rig(draft);
        let ask = |seed: u64| {
            let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
            let more = json!({"response_format": format, "temperature": 1, "seed": seed});
            let content = rig.chat("say: kind sure kind sure", more).content();
            let value: Json = serde_json::from_str(&content).expect(&content);
            assert!(
                value["sure"].is_boolean()
                    && value["kind"].as_str().is_some_and(|it| it.ends_with("-choice"))
            );
        };
        thread::scope(|scope| {
            for seed in 0..8 {
                let ask = &ask;
                scope.spawn(move || ask(seed));
            }
        });
        rig.await_metrics(|metrics| metrics.outcomes.end == 8 && metrics.accepted_tokens > 0);
    }
}

#[test]
fn a_client_that_leaves_inside_of_a_burst_ends_its_own_row() {
    let rig = rig(past());
    let mut leaver = rig.connect();
    let say = format!("say: {}", "abc".repeat(60));
    let body = crate::support::chat(&say, json!({"stream": true}));
    leaver.request("POST", "/v1/chat/completions", body.to_string().as_bytes());
    assert_eq!(leaver.head().0, 200);
    assert!(leaver.chunk().is_some());
    rig.control.hold(true);
    let stays = thread::scope(|scope| {
        let stays = scope.spawn(|| rig.chat("say: xyxyxyxyxy", json!({})).content());
        leaver.leave();
        rig.control.release();
        stays.join().expect("an answer")
    });
    assert_eq!(stays, "xyxyxyxyxy");
    rig.await_metrics(|metrics| metrics.active == 0 && metrics.outcomes.total() == 2);
}
