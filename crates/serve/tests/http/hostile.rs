//! Bodies that no client of good will sends: each is answered, none is the server's fault, and nothing of them stays.

use crate::support::{MODEL, Response, Rig, Setup, chat};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::sync::LazyLock;

/// Fields of chats, and what they may be: a string, a number, a boolean, an array, an object.
const CHAT: &[(&str, &str)] = &[
    ("model", "s"),
    ("messages", "a"),
    ("stream", "b"),
    ("stream_options", "o"),
    ("chat_template_kwargs", "o"),
    ("reasoning_effort", "s"),
    ("tools", "a"),
    ("tool_choice", "so"),
    ("parallel_tool_calls", "b"),
    ("response_format", "o"),
    ("logprobs", "b"),
    ("top_logprobs", "n"),
    ("guided_regex", "s"),
    ("guided_choice", "a"),
    ("guided_grammar", "s"),
];

/// Fields of completions.
const COMPLETION: &[(&str, &str)] = &[
    ("model", "s"),
    ("prompt", "sa"),
    ("stream", "b"),
    ("stream_options", "o"),
    ("echo", "b"),
    ("logprobs", "n"),
    ("suffix", "s"),
    ("best_of", "n"),
];

/// Fields of both.
const SHARED: &[(&str, &str)] = &[
    ("max_tokens", "n"),
    ("max_completion_tokens", "n"),
    ("seed", "n"),
    ("logit_bias", "o"),
    ("stop", "sa"),
    ("ignore_eos", "b"),
    ("n", "n"),
    ("adapter", "s"),
    ("user", "s"),
    ("session_id", "s"),
    ("metadata", "o"),
    ("kv_quant", "sn"),
    ("temperature", "n"),
    ("top_p", "n"),
    ("top_k", "n"),
    ("min_p", "n"),
    ("typical_p", "n"),
    ("xtc_probability", "n"),
    ("xtc_threshold", "n"),
    ("repetition_penalty", "n"),
    ("repetition_context_size", "n"),
    ("presence_penalty", "n"),
    ("frequency_penalty", "n"),
    ("dry_multiplier", "n"),
    ("dry_base", "n"),
    ("dry_allowed_length", "n"),
    ("dry_sequence_breakers", "a"),
];

/// A value of each kind, as it stands in a body.
const KINDS: &[(char, &str)] = &[
    ('s', "\"NaN\""),
    ('s', "\"1\""),
    ('n', "1"),
    ('n', "-1.5"),
    ('n', "1e300"),
    ('b', "true"),
    ('a', "[[[]]]"),
    ('o', "{\"a\": {\"b\": 1}}"),
];

static RIG: LazyLock<Rig> = LazyLock::new(Rig::new);

fn alive(rig: &Rig) {
    assert_eq!(rig.chat("say: alive", json!({})).content(), "alive");
    rig.await_idle();
}

/// A valid body whose field has this text for its value, whether the field was there or not.
fn with(valid: &Json, field: &str, value: &str) -> String {
    let mut body = valid.clone();
    body.as_object_mut().expect("an object").remove(field);
    let body = body.to_string();
    format!("{{\"{field}\": {value}, {}", &body[1..])
}

#[test]
fn every_field_of_a_wrong_type_is_400_and_named() {
    let rig = Rig::new();
    let completion = json!({"model": MODEL, "prompt": "say: ok\n", "max_tokens": 3});
    let mut wrong = 0;
    for (path, valid, own) in [
        ("/v1/chat/completions", chat("say: ok", json!({"max_tokens": 3})), CHAT),
        ("/v1/completions", completion, COMPLETION),
    ] {
        for (field, kinds) in own.iter().chain(SHARED) {
            for (_, value) in KINDS.iter().filter(|(kind, _)| !kinds.contains(*kind)) {
                let response = rig.post_bytes(path, with(&valid, field, value).as_bytes());
                let (status, error) = response.error();
                assert_eq!(status, 400, "{path} {field}: {value}: {}", response.text());
                let named = error["param"].as_str().is_some_and(|param| param.starts_with(field));
                assert!(named, "{path} {field}: {value}: {error}");
                wrong += 1;
            }
        }
    }
    // What is wrong reached no engine.
    assert!(wrong > 300, "{wrong}");
    assert_eq!(rig.engine.metrics().accepted, 0);
    alive(&rig);
}

#[test]
fn anthropics_fields_of_a_wrong_type_are_400_in_its_envelope() {
    let rig = Rig::new();
    let valid =
        json!({"model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": "say: ok"}]});
    for (field, kinds) in [
        ("messages", "a"),
        ("max_tokens", "n"),
        ("system", "sa"),
        ("stop_sequences", "a"),
        ("stream", "b"),
        ("temperature", "n"),
        ("top_p", "n"),
        ("top_k", "n"),
        ("tools", "a"),
        ("tool_choice", "o"),
    ] {
        for (_, value) in KINDS.iter().filter(|(kind, _)| !kinds.contains(*kind)) {
            let response = rig.post_bytes("/v1/messages", with(&valid, field, value).as_bytes());
            assert_eq!(
                (response.status, &response.json()["type"]),
                (400, &json!("error")),
                "{field}: {value}"
            );
        }
    }
    alive(&rig);
}

#[test]
fn numbers_beyond_every_range_are_400_or_bounded() {
    let rig = Rig::new();
    let valid = chat("say: ok", json!({}));
    let numbers = SHARED.iter().filter(|(_, kinds)| *kinds == "n");
    for (field, _) in numbers.chain(&[("top_logprobs", "n")]) {
        for value in [
            "1e308",
            "-1e308",
            "1e400",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775809",
            "0.1e-320",
            "NaN",
            "Infinity",
            "-0",
        ] {
            let response = rig.post_bytes("/v1/chat/completions", with(&valid, field, value).as_bytes());
            let bounded = response.status == 200 && response.content() == "ok";
            assert!(bounded || response.status == 400, "{field}: {value}: {}", response.text());
        }
    }
    alive(&rig);
}

#[test]
fn ten_thousand_levels_are_400_wherever_they_stand() {
    let rig = Rig::new();
    let deep = |open: &str, close: &str| open.repeat(10_000) + &close.repeat(10_000);
    let (arrays, objects) = (deep("[", "]"), format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000)));
    for (path, valid) in [
        ("/v1/chat/completions", chat("say: ok", json!({}))),
        ("/v1/messages", chat("say: ok", json!({"max_tokens": 3}))),
        ("/v1/completions", json!({"prompt": "say: ok\n"})),
        ("/tokenize", json!({"content": "a"})),
        ("/detokenize", json!({"tokens": [97]})),
    ] {
        for field in ["messages", "tools", "guided_json", "metadata", "prompt", "content", "tokens"] {
            for value in [&arrays, &objects] {
                assert_eq!(
                    rig.post_bytes(path, with(&valid, field, value).as_bytes()).status,
                    400,
                    "{path} {field}"
                );
            }
        }
    }
    // As deep as JSON is read; and in a string, where only what a template sees of it is read.
    let schema = format!("{}{{\"type\": \"string\"}}{}", "{\"items\": ".repeat(120), "}".repeat(120));
    let response = rig.post_bytes(
        "/v1/chat/completions",
        with(&chat("say: ok", json!({"max_tokens": 3})), "guided_json", &schema).as_bytes(),
    );
    assert!(matches!(response.status, 200 | 400), "{}", response.text());
    let call = json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": arrays}}]);
    let messages = json!([{"role": "assistant", "content": null, "tool_calls": call}, {"role": "user", "content": "say: ok"}]);
    assert_eq!(rig.chat("", json!({"messages": messages})).content(), "ok");
    alive(&rig);
}

#[test]
fn a_body_of_just_the_limit_is_read_and_one_byte_more_is_413() {
    const LIMIT: usize = 32 << 20;
    let rig = Rig::new();
    let of = |bytes: usize| {
        let empty = chat("say: ok", json!({"user": ""})).to_string().len();
        chat("say: ok", json!({"user": "x".repeat(bytes - empty)})).to_string()
    };
    assert_eq!(of(LIMIT).len(), LIMIT);
    assert_eq!(rig.post_bytes("/v1/chat/completions", of(LIMIT).as_bytes()).content(), "ok");
    for path in ["/v1/chat/completions", "/v1/messages", "/tokenize"] {
        assert_eq!(rig.post_bytes(path, of(LIMIT + 1).as_bytes()).status, 413, "{path}");
    }
    // A prompt as long as that is refused before it costs a token.
    let words = "x".repeat(LIMIT - 200);
    for response in [rig.post("/v1/completions", &json!({"prompt": words})), rig.chat(&words, json!({}))] {
        assert_eq!((response.status, &response.error().1["code"]), (400, &json!("context_length_exceeded")));
    }
    alive(&rig);
}

#[test]
fn text_that_is_no_utf_8_is_400() {
    let rig = Rig::new();
    for bytes in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"] {
        let body = [b"{\"messages\": [{\"role\": \"user\", \"content\": \"", bytes, b"\"}]}"].concat();
        assert_eq!(rig.post_bytes("/v1/chat/completions", &body).status, 400, "{bytes:?}");
    }
    // Half of a surrogate pair is no character, in whatever spelling.
    let half = br#"{"messages": [{"role": "user", "content": "\ud83e"}]}"#;
    assert_eq!(rig.post_bytes("/v1/chat/completions", half).status, 400);
    for path in ["/v1/models/%ff", "/v1/requests/%ff/cancel", "/%00", "/v1/models/..%2f..%2fetc%2fpasswd"] {
        let status = rig.get(path).status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    alive(&rig);
}

#[test]
fn the_last_of_equal_keys_counts() {
    let rig = Rig::new();
    let body = r#"{"messages": "no", "max_tokens": -1, "messages": [{"role": "user", "content": "no", "content": "say: abc"}],
        "max_tokens": 2, "temperature": "hot", "temperature": 0}"#;
    let response = rig.post_bytes("/v1/chat/completions", body.as_bytes());
    assert_eq!(response.content(), "ab");
    alive(&rig);
}

#[test]
fn a_template_refuses_before_a_stream_opens() {
    let template = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
        {% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ";
    let rig = Rig::with(Setup { template: Some(template.to_owned()), ..Setup::default() });
    let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "say: ok"}]);
    let refused = |response: &Response| {
        let (status, error) = response.error();
        assert_eq!(
            (status, &error["message"]),
            (400, &json!("System role not supported")),
            "{}",
            response.text()
        );
    };
    for stream in [false, true] {
        refused(&rig.chat("", json!({"messages": messages, "stream": stream})));
    }
    alive(&rig);
}

/// Any JSON, four levels deep.
fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-3_i64..20).prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        prop_oneof![".{0,8}", "(user|assistant|tool|system|text|function|auto|json_object|\\(|\\[)"]
            .prop_map(Json::from),
    ];
    let key =
        "(role|content|type|text|function|name|parameters|properties|items|arguments|schema|[a-z0-9]{1,3})";
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the fields are, the answer is one or says what is wrong, in the envelope, and is never the server's fault.
    #[test]
    fn no_field_is_a_fault(index in 0..CHAT.len() + SHARED.len(), value in any_json(), deep in any::<bool>()) {
        let (field, _) = CHAT.iter().chain(SHARED).nth(index).copied().unwrap_or_default();
        let value = match field {
            // Arrays of objects are what these hold.
            "messages" | "tools" if deep => json!([value]),
            _ => value,
        };
        let response = RIG.chat("say: ok", json!({"max_tokens": 3, field: value}));
        // What is not served is 501.
        prop_assert!(response.status <= 501 && response.status != 500, "{}", response.text());
        if response.status != 200 {
            prop_assert!(response.error().1["message"].is_string(), "{}", response.text());
        }
    }
}
