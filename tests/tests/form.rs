//! Answers that schemas bind, from a model that knows nothing: 200 of them over 25 schemas, sampled in batches through the whole
//! engine, all of which another implementation of JSON Schema finds valid; and the same with any drafts.
//!
//! The model's head is wider than its vocabulary, and some ids of the vocabulary stand for no text.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use serde_json::Value;
use std::sync::Arc;
use tandem_contracts::{
    request::{Event, Outcome, Request},
    sampling::Sampling,
    tensor::{Device, Error, ErrorKind, Precision},
    text::{TokenId, Vocabulary},
};
use tandem_engine::{Config, Draft, Drafting, EngineHandle, Metrics, Runs, Subscription};
use tandem_models::Options;
use tandem_spec::grammar::{Compiled, Compiler, Grammar};
use tandem_tests::{
    device::Backend,
    fixtures,
    host::{Machine, request},
    parity::Case,
};

const SCHEMAS: &str = include_str!("../../crates/spec/tests/data/apis.json");
/// Answers to each schema.
const SEEDS: u64 = 8;
/// Ids of the vocabulary; the head has more.
const IDS: usize = 500;
const END: TokenId = 256;

/// The 256 bytes, an end, a role mark, words that JSON often has, and ids without text.
#[derive(Debug)]
struct Words(Vec<Vec<u8>>);

impl Words {
    fn new() -> Self {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        let marks = ["<|end|>", "<|role|>"];
        let common = [
            "\": ",
            "\", \"",
            "{\"",
            "\"}",
            "\": \"",
            "\": {\"",
            "\": [",
            ", \"",
            "\"]",
            "}]",
            "}}",
            "], \"",
            "}, {\"",
            "true",
            "false",
            "null",
            "name",
            "type",
            "value",
            "code",
            "text",
            "date",
            "at",
            "er",
            "in",
            "on",
            "es",
            "re",
            "an",
            "\\n",
            "\\\"",
            "ä",
            "漢",
            "🦉",
            "   ",
            ": ",
            ", ",
            "[]",
            "{}",
            "null, \"",
            "true, \"",
            "false, \"",
            "-",
            "e+",
        ];
        let pairs = (0..100).map(|pair| format!("{pair:02}"));
        let words = marks.map(str::to_owned).into_iter().chain(common.map(str::to_owned)).chain(pairs);
        let mut words: Vec<Vec<u8>> = bytes.chain(words.map(String::into_bytes)).collect();
        words.resize(IDS, Vec::new());
        Self(words)
    }

    /// What ends strings, lists and objects, or goes on to the next thing.
    fn closing(&self) -> Vec<(TokenId, f32)> {
        let closes = |word: &[u8]| word.iter().any(|byte| b"\"]}".contains(byte));
        let ids = (0..IDS as TokenId).filter(|&id| closes(&self.0[id as usize]));
        ids.map(|id| (id, 2.5)).collect()
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<&[u8]> = tokens.iter().map(|&id| self.0[id as usize].as_slice()).collect();
        String::from_utf8(bytes.concat()).unwrap()
    }
}

impl Vocabulary for Words {
    fn len(&self) -> usize {
        IDS
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.get(token as usize).map(Vec::as_slice).filter(|word| !word.is_empty())
    }

    fn is_special(&self, token: TokenId) -> bool {
        token == END || token == END + 1
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let fits = |&id: &TokenId| {
                let word = &self.0[id as usize];
                !self.is_special(id) && !word.is_empty() && rest.starts_with(word)
            };
            let longest =
                (0..IDS as TokenId).filter(fits).max_by_key(|&id| self.0[id as usize].len()).unwrap();
            tokens.push(longest);
            rest = &rest[self.0[longest as usize].len()..];
        }
        tokens
    }

    fn end_tokens(&self) -> &[TokenId] {
        &[END]
    }
}

fn engine(drafting: Drafting) -> EngineHandle {
    let broken = |error: &dyn ToString| Error::new(ErrorKind::Data, "load", error.to_string());
    let open = Box::new(move || Backend::Cpu.open().map_err(|error| broken(&error)));
    let build = move |device: &Device| {
        let case = Case::read(&fixtures().join("tiny/llama")).map_err(|error| broken(&error))?;
        let options = Options { precision: Some(Precision::Fast), ..Options::default() };
        let checkpoint = case.checkpoint().map_err(|error| broken(&error))?;
        checkpoint.load(device, options).map_err(|error| broken(&error))
    };
    let config =
        Config { drafting, max_rows: 8, max_queued: 256, vocabulary: Some(IDS), ..Config::default() };
    tandem_engine::spawn(open, build, config, Machine::clock()).unwrap()
}

fn wish(words: &Words, compiled: &Compiled, seed: u64) -> Request {
    Request {
        sampling: Sampling { seed, logit_bias: words.closing(), ..Sampling::default() },
        end_tokens: vec![END],
        ignore_end: false,
        grammar: Some(compiled.matcher()),
        ..request(vec![1 + seed as TokenId, 2, 3], 3000)
    }
}

fn answer(mut subscription: Subscription) -> (Vec<TokenId>, Outcome) {
    let mut all = Vec::new();
    while let Some(event) = subscription.recv() {
        match event {
            Event::Delta { tokens, .. } => all.extend(tokens),
            Event::Finished { outcome, .. } => return (all, outcome),
            Event::Progress { .. } | Event::Prompt { .. } => {}
        }
    }
    panic!("no end");
}

/// The answers of all schemas by all seeds, in this order.
fn answers(words: &Words, compiled: &[Compiled], drafting: Drafting) -> (Vec<Vec<TokenId>>, Metrics) {
    let engine = engine(drafting);
    let submit = |grammar: &Compiled, seed| engine.submit(wish(words, grammar, seed)).unwrap();
    let running: Vec<_> =
        compiled.iter().flat_map(|it| (0..SEEDS).map(move |seed| submit(it, seed))).collect();
    let all = running.into_iter().map(|subscription| {
        let (tokens, outcome) = answer(subscription);
        assert_eq!(outcome, Outcome::End, "{}", words.text(&tokens));
        tokens
    });
    let all = all.collect();
    engine.shutdown();
    (all, engine.metrics())
}

#[test]
fn two_hundred_answers_are_valid_and_the_same_with_any_drafts() {
    let words = Arc::new(Words::new());
    let compiler = Compiler::new(Arc::clone(&words) as _).unwrap();
    let schemas: Vec<Value> = serde_json::from_str(SCHEMAS).unwrap();
    let compile = |entry: &Value| compiler.compile(&Grammar::Schema(entry["schema"].clone())).unwrap();
    let compiled: Vec<Compiled> = schemas.iter().map(compile).collect();

    let (plain, _) = answers(&words, &compiled, Drafting::OFF);
    assert_eq!((schemas.len(), plain.len()), (25, 200));
    for (index, tokens) in plain.iter().enumerate() {
        let Value::Object(entry) = &schemas[index / SEEDS as usize] else { panic!("{index}") };
        let text = words.text(tokens);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let validator = jsonschema::options().should_validate_formats(true).build(&entry["schema"]).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}: {text}", entry["name"]);
    }

    let always = Drafting { tokens: 6, adaptive: false, ..Drafting::default() };
    for draft in [Draft::Off, Draft::Past(Runs::default())] {
        let (drafted, metrics) = answers(&words, &compiled, Drafting { draft, ..always });
        assert_eq!(drafted, plain);
        println!("{draft:?}: {} of {} drafts were right", metrics.accepted_tokens, metrics.drafted_tokens);
        assert!(metrics.accepted_tokens > 500);
    }
}
