//! Log-probabilities on the wire, of chats and completions, whole and streamed.
//!
//! The scripted model gives its next byte 50 and every other of 257 tokens 0, so that the next byte's log-probability is
//! 0 to within 1e-19, and every other's is -50.

use crate::support::Rig;
use serde_json::{Value as Json, json};

/// Tokens and log-probabilities of a list of entries.
fn entries(list: &Json) -> Vec<(String, f64, Json)> {
    let entry = |entry: &Json| {
        let token = entry["token"].as_str().expect("a token").to_owned();
        (token, entry["logprob"].as_f64().expect("a number"), entry["bytes"].clone())
    };
    list.as_array().expect("a list").iter().map(entry).collect()
}

fn tokens(list: &Json) -> String {
    entries(list).into_iter().map(|entry| entry.0).collect()
}

#[test]
fn chats_have_the_tokens_that_were_asked_for() {
    let rig = Rig::new();
    let choice = |more: Json| rig.chat("say: aé", more).json()["choices"][0].clone();
    assert_eq!(choice(json!({}))["logprobs"], Json::Null);
    assert_eq!(choice(json!({"logprobs": false}))["logprobs"], Json::Null);
    let plain = choice(json!({"logprobs": true}));
    let content = &plain["logprobs"]["content"];
    // The bytes of a character that is in two tokens are the tokens' own.
    let want = [("a", json!([97])), ("\u{FFFD}", json!([0xC3])), ("\u{FFFD}", json!([0xA9]))];
    let want: Vec<_> = want.into_iter().map(|(token, bytes)| (token.to_owned(), 0.0, bytes)).collect();
    assert_eq!(entries(content), want);
    assert!(content.as_array().expect("a list").iter().all(|entry| entry["top_logprobs"] == json!([])));
    let likely = choice(json!({"logprobs": true, "top_logprobs": 2}))["logprobs"]["content"][0].clone();
    // Of those that are equally unlikely, the smallest id comes first.
    let want = [("a".to_owned(), 0.0, json!([97])), ("\0".to_owned(), -50.0, json!([0]))];
    assert_eq!(entries(&likely["top_logprobs"]), want);
}

#[test]
fn streams_carry_the_same_entries_in_the_same_order() {
    let rig = Rig::new();
    for more in [json!({}), json!({"stop": "ef"}), json!({"max_tokens": 3}), json!({"stop": "fg"})] {
        let mut body = more;
        body["logprobs"] = json!(true);
        body["top_logprobs"] = json!(1);
        let whole = rig.chat("say: abcdéfef", body.clone()).json()["choices"][0].clone();
        body["stream"] = json!(true);
        let mut streamed = Vec::new();
        for chunk in rig.chat("say: abcdéfef", body).chunks() {
            let content = &chunk["choices"][0]["logprobs"]["content"];
            streamed.extend(content.as_array().cloned().unwrap_or_default());
        }
        assert_eq!(Json::Array(streamed), whole["logprobs"]["content"]);
    }
}

#[test]
fn tokens_behind_a_stop_string_are_left_out_as_their_text_is() {
    let rig = Rig::new();
    let cut = rig.chat("say: an oak elm tree", json!({"stop": "oak elm", "logprobs": true})).json();
    let choice = &cut["choices"][0];
    assert_eq!(choice["message"]["content"], "an ");
    assert_eq!(tokens(&choice["logprobs"]["content"]), "an ");
    // They were paid for.
    assert_eq!(cut["usage"]["completion_tokens"], 10);
}

#[test]
fn choices_have_their_own() {
    let rig = Rig::new();
    let all = rig.chat("say: ab", json!({"n": 2, "logprobs": true})).json();
    for choice in all["choices"].as_array().expect("choices") {
        assert_eq!(tokens(&choice["logprobs"]["content"]), "ab");
    }
}

#[test]
fn completions_have_the_older_shape() {
    let rig = Rig::new();
    let body = json!({"prompt": "say: aé\n", "logprobs": 1, "max_tokens": 9});
    let logprobs = rig.post("/v1/completions", &body).json()["choices"][0]["logprobs"].clone();
    let want = json!({
        "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9"],
        "token_logprobs": [0.0, 0.0, 0.0],
        "top_logprobs": [{"a": 0.0}, {"bytes:\\xc3": 0.0}, {"bytes:\\xa9": 0.0}],
        "text_offset": [0, 1, 1],
    });
    assert_eq!(logprobs, want);
    let none = rig.post("/v1/completions", &json!({"prompt": "say: a\n"})).json();
    assert_eq!(none["choices"][0]["logprobs"], Json::Null);
}

#[test]
fn an_echo_scores_the_prompt_before_the_answer() {
    let rig = Rig::new();
    let body = json!({"prompt": "aab", "echo": true, "logprobs": 1, "max_tokens": 1});
    let whole = rig.post("/v1/completions", &body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["text"], "aaba");
    // The model expects "aa" and then "aaa"; the alphabet begins with "a".
    let want = json!({
        "tokens": ["a", "a", "b", "a"],
        "token_logprobs": [null, 0.0, -50.0, 0.0],
        "top_logprobs": [null, {"a": 0.0}, {"a": 0.0, "b": -50.0}, {"a": 0.0}],
        "text_offset": [0, 1, 2, 3],
    });
    assert_eq!(choice["logprobs"], want);
    // Scored once, it stands before each of several choices.
    for n in [2, 3] {
        let mut several = body.clone();
        several["n"] = json!(n);
        let several = rig.post("/v1/completions", &several).json();
        let choices = several["choices"].as_array().expect("choices");
        assert_eq!(choices.len(), n);
        choices
            .iter()
            .for_each(|choice| assert_eq!((&choice["text"], &choice["logprobs"]), (&json!("aaba"), &want)));
    }
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let (mut text, mut offsets) = (String::new(), Vec::new());
    for chunk in rig.post("/v1/completions", &streamed).chunks() {
        let choice = &chunk["choices"][0];
        text.push_str(choice["text"].as_str().expect("a text"));
        offsets.extend(choice["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default());
    }
    assert_eq!((text.as_str(), json!(offsets)), ("aaba", json!([0, 1, 2, 3])));
}

#[test]
fn a_prompt_alone_is_scored_where_nothing_more_is_asked_for() {
    let rig = Rig::new();
    // As evaluation harnesses ask: token ids, several prompts, one of a single token.
    let body = json!({
        "prompt": [[97, 97, 256], [98]], "echo": true, "logprobs": 1, "max_tokens": 0, "temperature": 0,
    });
    let scored = rig.post("/v1/completions", &body).json();
    let choices = &scored["choices"];
    assert_eq!((&choices[0]["text"], &choices[1]["text"]), (&json!("aa<|end|>"), &json!("b")));
    assert_eq!(choices[0]["logprobs"]["token_logprobs"], json!([null, 0.0, -50.0]));
    assert_eq!(choices[0]["logprobs"]["text_offset"], json!([0, 1, 2]));
    assert_eq!(choices[1]["logprobs"]["token_logprobs"], json!([null]));
    assert_eq!(choices[0]["finish_reason"], "length");
    assert_eq!(
        (&scored["usage"]["prompt_tokens"], &scored["usage"]["completion_tokens"]),
        (&json!(4), &json!(0))
    );
    let shown = rig.post("/v1/completions", &json!({"prompt": "ab", "echo": true, "max_tokens": 0})).json();
    assert_eq!((&shown["choices"][0]["text"], &shown["choices"][0]["logprobs"]), (&json!("ab"), &Json::Null));
}
