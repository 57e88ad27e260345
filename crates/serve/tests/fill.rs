//! Rules of calls held to the templates that they are cut from: what is filled in is what the template itself writes.
//!
//! Of each template calls are rendered whole, in conversations with and without words before them, one and several in a turn,
//! with values of all kinds. Their tokens are pushed one by one, as if a model had sampled them; every span that is then filled in
//! must be the tokens that come next.

use serde_json::{Map, Value as Json, json};
use std::{collections::BTreeMap, fs, path::PathBuf};
use tandem_contracts::{
    fill::{Fill, Kind, Rule},
    text::{TokenId, Vocabulary},
};
use tandem_serve::text::{
    SpecialTokens, Tokenizer,
    fill::{Calls, rules},
    reply::{Functions, Style},
    template::{ChatTemplate, Conversation, Moment},
};
use tandem_spec::fill::{Limits, Session};

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(path)
}

fn tokenizer(name: &str, end: &str) -> Tokenizer {
    let bytes = fs::read(fixture(&format!("tokenizers/huggingface/{name}.json"))).expect(name);
    let special = SpecialTokens { end: Some(end.to_owned()), ..SpecialTokens::default() };
    Tokenizer::from_json(&bytes, special).expect(name)
}

/// A template with a tokeniser, be it of the same family or not.
struct Model<'a> {
    name: String,
    template: ChatTemplate,
    style: Style,
    tokenizer: &'a Tokenizer,
}

impl<'a> Model<'a> {
    fn read(name: &str, tokenizer: &'a Tokenizer) -> Self {
        let source = fs::read_to_string(fixture(&format!("templates/{name}.jinja"))).expect(name);
        let goldens: Json =
            serde_json::from_slice(&fs::read(fixture("templates/conversations.json")).expect("goldens"))
                .expect("JSON");
        let special = goldens["meta"]["variables"].as_object().expect("variables").iter();
        let special = special.map(|(name, text)| (name.clone(), text.as_str().expect("a text").to_owned()));
        let template = ChatTemplate::new(&source, special.collect()).expect(name);
        Self { name: name.to_owned(), template, style: Style::of(&source), tokenizer }
    }

    /// A turn that says something and ends with these calls; none is the conversation before it.
    fn render(&self, said: &str, calls: Option<Vec<Json>>, tools: Option<Vec<Json>>) -> Option<String> {
        let opened = calls.is_none();
        let mut messages = vec![json!({"role": "user", "content": "Hello"})];
        messages
            .extend(calls.map(|calls| json!({"role": "assistant", "content": said, "tool_calls": calls})));
        let conversation =
            Conversation { messages, tools, add_generation_prompt: opened, variables: Map::new() };
        self.template.render(&conversation, &Moment::utc((2026, 1, 15), (9, 30, 0))).ok()
    }

    fn rules(&self, functions: &Functions, several: bool) -> Vec<Rule> {
        let calls = Calls { functions, style: self.style, several };
        rules(self.tokenizer, &calls, &|calls| {
            [None, Some(Vec::new())].into_iter().find_map(|tools| self.render("", calls.clone(), tools))
        })
    }

    fn call(&self, name: &str, arguments: &Json, index: usize) -> Json {
        let id = self.style.call_id(name, index, 77 + index as u64);
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    /// Tokens of a turn with these calls that are filled in, of each kind. Panics where others are than come.
    fn follow(&self, rules: &[Rule], said: &str, calls: Vec<Json>, tools: &[Json]) -> BTreeMap<Kind, usize> {
        let mut filled = BTreeMap::new();
        let before = self.render(said, None, Some(tools.to_vec()));
        let whole = self.render(said, Some(calls), Some(tools.to_vec()));
        // Some templates refuse such a conversation.
        let Some((before, whole)) = before.zip(whole) else { return filled };
        let encode = |text: &str| self.tokenizer.encode_chat(text).expect("tokens");
        let (before, whole) = (encode(&before), encode(&whole));
        let begin = before.iter().zip(&whole).take_while(|(one, other)| one == other).count();
        let fill = Fill { rules: rules.into(), echo: None };
        let ends = self.tokenizer.end_tokens();
        let mut session = Session::new(&fill, &whole[..begin], ends, Limits::default());
        let mut place = begin;
        while place < whole.len() && !ends.contains(&whole[place]) {
            let span = session.push(whole[place], 1000).expect("settled");
            place += 1;
            if let Some(span) = span {
                let next = &whole[place..whole.len().min(place + span.ids.len())];
                let text = |ids: &[TokenId]| {
                    let bytes: Vec<u8> = ids
                        .iter()
                        .flat_map(|id| self.tokenizer.token_bytes(*id).unwrap_or_default().to_vec())
                        .collect();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                assert_eq!(
                    span.ids,
                    next,
                    "{}: {:?} {:?}, behind {:?} comes {:?}",
                    self.name,
                    span.origin,
                    text(&span.ids),
                    text(&whole[begin..place]),
                    text(next)
                );
                session.commit(span.ids.len()).expect("a span");
                place += span.ids.len();
                if let tandem_spec::fill::Origin::Rule(kind) = span.origin {
                    *filled.entry(kind).or_insert(0) += span.ids.len();
                }
            }
        }
        filled
    }
}

/// Functions with their parameters, and arguments of calls of them.
fn declarations() -> Vec<(&'static str, Json, Vec<Json>)> {
    let object = |properties: Json, required: Json| json!({"type": "object", "properties": properties, "required": required});
    let text = || json!({"type": "string"});
    vec![
        (
            "get_weather",
            object(json!({"city": text(), "unit": {"type": "string", "enum": ["C", "F"]}}), json!(["city"])),
            vec![
                json!({"city": "San José"}),
                json!({"city": "\"}}\n</tool_call>"}),
                json!({"city": "{\"a\": {\"b\": \"c\"}}", "unit": "F"}),
            ],
        ),
        (
            "get_time",
            object(json!({"zone": text()}), json!(["zone"])),
            vec![json!({"zone": "/etc"}), json!({"zone": ""})],
        ),
        (
            "search",
            object(json!({"query": text()}), json!(["query"])),
            vec![json!({"query": "a } b"}), json!({"query": ".\n"})],
        ),
    ]
}

/// The same with arguments of other types, in another order, and without any.
fn mixed() -> Vec<(&'static str, Json, Vec<Json>)> {
    let object = |properties: Json, required: Json| json!({"type": "object", "properties": properties, "required": required});
    let point = json!({"type": "object", "properties": {"x": {"type": "number"}}});
    vec![
        ("stop", object(json!({}), json!([])), vec![json!({})]),
        (
            "move",
            object(json!({"slowly": {"type": "boolean"}, "to": point, "by": {}}), json!(["to", "by"])),
            vec![json!({"to": {"x": 1.5}, "by": "}}"}), json!({"slowly": true, "to": {}, "by": null})],
        ),
        ("move_all", object(json!({"by": {"type": "integer"}}), json!(["by"])), vec![json!({"by": -12})]),
        ("anything", json!({"type": "object"}), vec![json!({}), json!({"name": "stop"})]),
    ]
}

/// Holds the rules of some functions, and counts the tokens that are filled in, of each kind.
fn hold(model: &Model<'_>, declared: &[(&str, Json, Vec<Json>)]) -> BTreeMap<Kind, usize> {
    let functions =
        Functions::new(declared.iter().map(|(name, schema, _)| ((*name).to_owned(), schema.clone())));
    let tool = |(name, schema, _): &(&str, Json, Vec<Json>)| json!({"type": "function", "function": {"name": name, "description": "…", "parameters": schema}});
    let tools: Vec<Json> = declared.iter().map(tool).collect();
    let mut filled = BTreeMap::new();
    for several in [true, false] {
        let rules = model.rules(&functions, several);
        let calls =
            declared.iter().flat_map(|(name, _, all)| all.iter().map(move |arguments| (*name, arguments)));
        for (name, arguments) in calls {
            let one = |index| model.call(name, arguments, index);
            let mut turns = vec![("", vec![one(0)]), ("Well, then.", vec![one(0)])];
            if several {
                let (other, _, others) = &declared[0];
                turns.push(("", vec![one(0), model.call(other, &others[0], 1), one(2)]));
            }
            for (said, calls) in turns {
                for (kind, count) in model.follow(&rules, said, calls, &tools) {
                    *filled.entry(kind).or_insert(0) += count;
                }
            }
        }
    }
    filled
}

#[test]
fn what_is_filled_in_is_what_every_template_writes() {
    let qwen = tokenizer("qwen3", "<|im_end|>");
    let mut names: Vec<String> = fs::read_dir(fixture("templates"))
        .expect("templates")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".jinja")?.to_owned()))
        .collect();
    names.sort();
    let mut filling = Vec::new();
    for name in &names {
        let model = Model::read(name, &qwen);
        if !model.style.calls() || !model.template.reads("tools") {
            continue;
        }
        let filled = hold(&model, &declarations());
        let others = hold(&model, &mixed());
        println!("{name}: {filled:?}, {others:?}");
        filling.extend((!filled.is_empty()).then_some(name));
    }
    // Half of them; the others have no calls, none that can be told from words, or refuse such a turn.
    assert!(filling.len() >= 36, "{filling:?}");
}

#[test]
fn families_with_their_own_tokenisers_are_filled_in() {
    for (template, vocabulary, end) in [
        ("lcpp__Qwen-Qwen3-0.6B", "qwen3", "<|im_end|>"),
        ("lcpp__Qwen3-Coder", "qwen3", "<|im_end|>"),
        ("lcpp__NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "llama3_1", "<|eot_id|>"),
    ] {
        let tokenizer = tokenizer(vocabulary, end);
        let model = Model::read(template, &tokenizer);
        let filled = hold(&model, &declarations());
        println!("{template}: {filled:?}");
        assert!(
            filled.contains_key(&Kind::Scaffold) && filled.contains_key(&Kind::Name),
            "{template} {filled:?}"
        );
        hold(&model, &mixed());
    }
}
