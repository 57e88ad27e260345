//! Answers of which parts are filled in: what a model says that keeps to its own template, it says in fewer steps.

use crate::support::{Rig, Setup};
use serde_json::{Value as Json, json};
use tandem_engine::{Config, Draft, Drafting, Metrics};
use tandem_serve::model::Filling;

/// Renders calls as Hermes does, on one line: the scripted model says one.
const TEMPLATE: &str = "{#- tool_calls -#}{% if tools %}{{ tools | length }} tools\n{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call> \
    {\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}} </tool_call>{% endfor %}\
    {{ '\\n' }}{% endfor %}assistant: ";

/// What the model says.
const CALL: &str = "<tool_call> {\"name\": \"look\", \"arguments\": {\"city\": \"Rome\"}} </tool_call>";

fn rig(fill: Filling, draft: Draft) -> Rig {
    let drafting = Drafting { draft, tokens: 6, adaptive: false, ..Drafting::default() };
    let config = Config { drafting, ..Config::default() };
    Rig::with(Setup { config, template: Some(TEMPLATE.to_owned()), fill, context: 2000, ..Setup::default() })
}

/// A chat with two functions, each of which has one argument that must be given.
fn tools(more: Json) -> Json {
    let function = |name: &str, argument: &str| {
        json!({"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}}})
    };
    let mut fields = json!({"tools": [function("look", "city"), function("listen", "city")]});
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    fields
}

/// Words, calls and reason.
fn said(answer: &Json) -> Json {
    let choice = &answer["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<&Json> = calls.map(|call| &call["function"]).collect();
    json!([choice["message"]["content"], calls, choice["finish_reason"]])
}

/// What one chat comes to, with the engine's counts.
fn run(fill: Filling, say: &str, more: &Json) -> (Json, Json, Metrics) {
    let rig = rig(fill, Draft::Off);
    let answer = rig.chat(&format!("say: {say}"), more.clone()).json();
    rig.await_idle();
    (said(&answer), answer["usage"].clone(), rig.engine.metrics())
}

#[test]
fn a_call_comes_out_in_fewer_steps() {
    let say = format!("Well. {CALL}");
    let (plain, usage, without) = run(Filling::Off, &say, &tools(json!({})));
    let function = json!({"name": "look", "arguments": "{\"city\": \"Rome\"}"});
    assert_eq!(plain, json!(["Well.", [function], "tool_calls"]));
    assert!(usage.get("tandem").is_none());
    let (filled, usage, with) = run(Filling::Strict, &say, &tools(json!({})));
    assert_eq!(filled, plain);
    // ` {"name": "l` and `ok", "arguments": {"city": "`: 12 and 28 bytes. Where bytes are tokens, what closes a call is no other
    // than what stands behind an escaped quotation mark.
    assert_eq!(usage["tandem"], json!({"filled_tokens": 40}));
    assert_eq!(
        (with.filled_tokens, with.fill.events, with.completion_tokens),
        (40, 2, without.completion_tokens)
    );
    assert_eq!(with.steps + 40, without.steps);
}

#[test]
fn words_are_never_filled_in_and_calls_only_where_they_may_be() {
    let json_in_words = "Write {\"city\": {\"a\": \"b\"}} and go on.";
    for (say, more) in [
        (json_in_words, tools(json!({}))),
        (CALL, json!({})),
        (CALL, tools(json!({"tool_choice": "none"}))),
        (CALL, tools(json!({"logprobs": true}))),
        (
            "{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\"}}",
            tools(json!({"tool_choice": "required"})),
        ),
    ] {
        let (plain, _, _) = run(Filling::Off, say, &more);
        let (filled, _, metrics) = run(Filling::Strict, say, &more);
        assert_eq!((filled, metrics.filled_tokens), (plain, 0), "{more}");
    }
}

#[test]
fn stops_and_lengths_inside_of_what_is_filled_in_cut_as_without() {
    for more in [
        json!({"max_tokens": 13}),
        json!({"max_tokens": 14}),
        json!({"max_tokens": 30}),
        json!({"stop": ["name"]}),
        json!({"stop": ["\": {"]}),
        json!({"parallel_tool_calls": false}),
        json!({"temperature": 1, "seed": 7, "presence_penalty": 1.0}),
    ] {
        let more = tools(more);
        let (plain, _, without) = run(Filling::Off, CALL, &more);
        let (filled, usage, with) = run(Filling::Strict, CALL, &more);
        assert_eq!(filled, plain, "{more}");
        assert_eq!(
            (usage["completion_tokens"].as_u64(), with.outcomes),
            (Some(without.completion_tokens), without.outcomes)
        );
    }
}

#[test]
fn what_is_proposed_instead_changes_nothing() {
    let say = format!("{CALL}{CALL}{CALL}");
    let (plain, _, without) = run(Filling::Off, &say, &tools(json!({})));
    let (echoed, usage, with) = run(Filling::Echo, &say, &tools(json!({})));
    assert_eq!(echoed, plain);
    assert_eq!((with.filled_tokens, &usage["tandem"]["filled_tokens"]), (0, &Json::Null));
    assert!(with.fill.verify.accepted > 60 && with.steps * 2 < without.steps, "{with:?}");
    // What does not call is copied too.
    let rig = rig(Filling::Echo, Draft::Off);
    let row = ["a long enough row of words"; 4].join(", ");
    let content = rig.chat(&format!("say: {row}"), json!({})).content();
    assert_eq!(content, row);
    let body = json!({"prompt": format!("say: {row}"), "max_tokens": 200});
    assert_eq!(rig.post("/v1/completions", &body).json()["choices"][0]["text"], json!(row));
    rig.await_metrics(|metrics| metrics.accepted_tokens > 100);
}

#[test]
fn what_was_filled_in_is_counted() {
    let rig = rig(Filling::Strict, Draft::Off);
    rig.chat(&format!("say: {CALL}"), tools(json!({}))).json();
    rig.await_idle();
    let metrics = rig.get("/metrics");
    let text = metrics.text();
    for line in [
        "tandem_tokens_total{model=\"scripted\",kind=\"filled\"} 40",
        "tandem_fill_spans_total{model=\"scripted\",became=\"filled\"} 2",
        "tandem_fill_wasted_samples_total{model=\"scripted\"} 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
}
