//! The endpoints beside chat.

use crate::support::{MODEL, Rig, Setup, stable};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use insta::assert_snapshot;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

#[test]
fn models_are_listed_and_shown() {
    let rig = Rig::with(Setup { names: vec![MODEL, "vendor/name"], ..Setup::default() });
    assert_snapshot!(rig.get("/v1/models").text());
    let shown = rig.get("/v1/models/vendor/name");
    assert_eq!((shown.status, &shown.json()["id"]), (200, &json!("vendor/name")));
    assert_eq!(rig.get("/v1/models/vendor%2Fname").json()["id"], "vendor/name");
    assert_eq!(rig.get("/v1/models/x").error().1["code"], "model_not_found");
}

#[test]
fn a_path_that_is_no_text_is_400_in_the_envelope() {
    let rig = Rig::new();
    for (method, path) in [
        ("GET", "/v1/models/%ff"),
        ("POST", "/v1/requests/%ff/cancel"),
        ("GET", "/v1/responses/%ff"),
        ("DELETE", "/v1/responses/%ff"),
    ] {
        let (status, error) = rig.connect().exchange(method, path, b"").error();
        assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")), "{method} {path}");
    }
}

#[test]
fn what_no_model_does_is_501_with_the_reason() {
    let rig = Rig::new();
    let body = json!({"model": MODEL, "input": "a"});
    for (method, path) in [("POST", "/v1/embeddings"), ("POST", "/v1/adapters"), ("DELETE", "/v1/adapters")] {
        let (status, error) = rig.connect().exchange(method, path, body.to_string().as_bytes()).error();
        assert_eq!((status, &error["code"]), (501, &json!("unsupported_execution")), "{method} {path}");
        assert!(
            error["message"].as_str().is_some_and(|message| message.starts_with("this server ")),
            "{error}"
        );
    }
    assert_eq!(rig.get("/v1/adapters").json(), json!({"object": "list", "data": []}));
}

#[test]
fn health_is_ok_while_requests_are_taken() {
    let health = Rig::new().get("/health");
    assert_eq!((health.status, health.json()), (200, json!({"status": "ok"})));
}

#[test]
fn completions_continue_texts_and_tokens() {
    let rig = Rig::new();
    let whole = rig.post("/v1/completions", &json!({"prompt": "say: ok\n", "max_tokens": 16}));
    assert_snapshot!(stable(whole.text()));
    let tokens: Vec<u8> = b"say: ok\n".to_vec();
    let same = rig.post("/v1/completions", &json!({"prompt": tokens, "max_tokens": 16}));
    assert_eq!(stable(same.text()), stable(whole.text()));
    let body = json!({"prompt": "say: ok\n", "stream": true, "max_tokens": 1, "stream_options": {"include_usage": true}});
    assert_snapshot!(stable(rig.post("/v1/completions", &body).text()));
}

#[test]
fn several_prompts_and_choices_have_indices() {
    let rig = Rig::new();
    let texts = |body: Json| {
        let answer = rig.post("/v1/completions", &body).json();
        let choices = answer["choices"].as_array().expect("choices").iter().enumerate();
        let texts: Vec<String> = choices
            .map(|(index, choice)| {
                assert_eq!(choice["index"], index);
                choice["text"].as_str().expect("a text").to_owned()
            })
            .collect();
        (texts, answer["usage"]["prompt_tokens"].as_u64().expect("a count"))
    };
    assert_eq!(texts(json!({"prompt": ["say: a\n", "say: bc\n"]})), (vec!["a".into(), "bc".into()], 15));
    assert_eq!(
        texts(json!({"prompt": [[115, 97, 121, 58, 32, 97, 10], [97]], "max_tokens": 1})).0,
        ["a", "a"]
    );
    assert_eq!(
        texts(json!({"prompt": ["say: a\n", "say: b\n"], "n": 2, "echo": true})),
        (vec!["say: a\na".into(), "say: a\na".into(), "say: b\nb".into(), "say: b\nb".into()], 14)
    );
    assert_eq!(texts(json!({"prompt": [97, 256], "echo": true, "max_tokens": 2})).0, ["a<|end|>ab"]);
    let body = json!({"prompt": ["say: a\n", "say: bc\n"], "echo": true, "stream": true});
    let mut streamed = vec![String::new(); 2];
    for chunk in rig.post("/v1/completions", &body).chunks() {
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().expect("an index") as usize;
        streamed[index].push_str(choice["text"].as_str().expect("a text"));
    }
    assert_eq!(streamed, ["say: a\na", "say: bc\nbc"]);
}

#[test]
fn completions_refuse_what_they_cannot_do() {
    let rig = Rig::new();
    for (body, status, param) in [
        (json!({}), 400, json!(null)),
        (json!({"prompt": ""}), 400, json!("prompt")),
        (json!({"prompt": []}), 400, json!("prompt")),
        (json!({"prompt": [-1]}), 400, json!("prompt")),
        (json!({"prompt": [9_999_999]}), 400, json!("prompt")),
        (json!({"prompt": ["a", ""]}), 400, json!("prompt")),
        (json!({"prompt": ["a", 3]}), 400, json!("prompt")),
        (json!({"prompt": vec!["a"; 129]}), 400, json!("prompt")),
        (json!({"prompt": "a", "suffix": "b"}), 400, json!("suffix")),
        (json!({"prompt": "a", "best_of": 2}), 400, json!("best_of")),
        (json!({"prompt": "a", "logprobs": 6}), 400, json!("logprobs")),
        (json!({"prompt": "a", "max_tokens": 0}), 400, json!("max_tokens")),
        (json!({"prompt": "a", "temperature": 9}), 400, json!("temperature")),
    ] {
        let (got, error) = rig.post("/v1/completions", &body).error();
        assert_eq!((got, &error["param"]), (status, &param), "{body}");
    }
    let next: Json = rig.post("/v1/completions", &json!({"prompt": "say: ok\n"})).json();
    assert_eq!(next["choices"][0]["text"], "ok");
}

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let rig = Rig::new();
    let tokenize = |body: Json| rig.post("/tokenize", &body).json()["tokens"].clone();
    assert_eq!(tokenize(json!({"content": "aé"})), json!([97, 195, 169]));
    assert_eq!(
        tokenize(json!({"content": "aé", "with_pieces": true, "add_special": true})),
        json!([{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}])
    );
    let detokenize = |tokens: Json| rig.post("/detokenize", &json!({"tokens": tokens})).json();
    assert_eq!(detokenize(json!([97, 195, 169, 256])), json!({"content": "aé<|end|>"}));
    assert_eq!(detokenize(json!([]))["content"], "");
    assert_eq!(detokenize(json!([257]))["error"]["param"], "tokens");
    // A context of 300 tokens of at most 7 bytes, and four times as much for what is composed.
    let (most, more) = (json!([97].repeat(300 * 7 * 4)), json!([97].repeat(300 * 7 * 4 + 1)));
    assert_eq!(detokenize(most)["content"].as_str().map(str::len), Some(8400));
    assert_eq!(detokenize(more)["error"]["code"], "context_length_exceeded");
    let (status, error) = rig.post("/tokenize", &json!({"content": "a", "parse_special": false})).error();
    assert_eq!((status, &error["param"]), (400, &json!("parse_special")));
}

/// The policy names the hashes of what stands between the tags, as the browser will compute them.
#[test]
fn the_page_is_whole_and_may_run_nothing_but_its_own_script() {
    let page = Rig::new().get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let (policy, html) = (page.header("content-security-policy").expect("a policy"), page.text());
    for (directive, open, close) in
        [("script-src", "<script type=\"module\">", "</script>"), ("style-src", "<style>", "</style>")]
    {
        let parts: Vec<_> = html.split(open).collect();
        let [_, rest] = parts[..] else { panic!("{open} stands once") };
        let (inner, _) = rest.split_once(close).expect(close);
        let hash = STANDARD.encode(Sha256::digest(inner));
        assert!(policy.contains(&format!("; {directive} 'sha256-{hash}';")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    for foreign in [" src=\"", "url(", "@import", "innerHTML"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
}
