//! Rows beside others: each is chosen as it asks for, whatever its neighbours ask; and many in a row leave no memory behind.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use tandem_contracts::{
    request::{Event, Outcome, Request},
    sampling::{Penalty, Sampling},
    tensor::{Device, Error, ErrorKind},
    text::TokenId,
};
use tandem_engine::{Config, EngineHandle, Metrics, PrefixLimits, Subscription};
use tandem_models::Options;
use tandem_tests::{
    device::Backend,
    fixtures,
    host::{Machine, request},
    parity::Case,
};

/// Tokens of an answer.
const ANSWER: usize = 12;
/// Prompts that follow each other, after so many that warm up.
const PROMPTS: usize = 200;
const WARM: usize = 20;
/// Most that the device's memory may have grown after the warm-up, of what it was: what the allocator rounds.
const GROWTH: f64 = 0.02;

fn engine(model: &str, config: Config) -> EngineHandle {
    let folder = fixtures().join("tiny").join(model);
    let broken = |error: &dyn ToString| Error::new(ErrorKind::Data, "load", error.to_string());
    let build = move |device: &Device| {
        let case = Case::read(&folder).map_err(|error| broken(&error))?;
        let checkpoint = case.checkpoint().map_err(|error| broken(&error))?;
        checkpoint.load(device, Options::default()).map_err(|error| broken(&error))
    };
    let open = Box::new(move || Backend::Cpu.open().map_err(|error| broken(&error)));
    tandem_engine::spawn(open, build, config, Machine::clock()).unwrap()
}

fn tokens(mut subscription: Subscription) -> Vec<TokenId> {
    let mut all = Vec::new();
    while let Some(event) = subscription.recv() {
        if let Event::Delta { tokens, .. } = event {
            all.extend(tokens);
        }
    }
    assert_eq!(all.len(), ANSWER);
    all
}

fn prompts(model: &str) -> Vec<Vec<TokenId>> {
    let case = Case::read(&fixtures().join("tiny").join(model)).unwrap();
    case.greedy.into_values().map(|run| run.prompt).collect()
}

/// One of the most likely tokens is the most likely one, at any temperature.
#[test]
fn a_row_that_takes_one_candidate_is_greedy_whatever_others_ask() {
    let hot = |seed| Sampling { temperature: 1.5, seed, ..Sampling::default() };
    let one = |seed| Sampling { top_k: 1, ..hot(seed) };
    let neighbours = [
        hot(1),
        Sampling { min_p: 0.2, ..hot(2) },
        Sampling { top_k: 3, top_p: 0.5, ..hot(3) },
        Sampling { presence: Penalty { amount: 2.0, context: 20 }, ..hot(4) },
        Sampling::greedy(),
    ];
    let config = || Config { prefix: PrefixLimits::OFF, ..Config::default() };
    let mut differ = 0;
    for prompt in prompts("llama") {
        let ask = |engine: &EngineHandle, sampling| {
            engine.submit(Request { sampling, ..request(prompt.clone(), ANSWER) }).unwrap()
        };
        let alone = engine("llama", config());
        let greedy = tokens(ask(&alone, Sampling::greedy()));
        alone.shutdown();
        for (seed, neighbour) in (10..).zip(&neighbours) {
            let engine = engine("llama", config());
            let (one, other) = match seed % 2 {
                0 => (ask(&engine, one(seed)), ask(&engine, neighbour.clone())),
                _ => {
                    let other = ask(&engine, neighbour.clone());
                    (ask(&engine, one(seed)), other)
                }
            };
            assert_eq!(tokens(one), greedy, "{neighbour:?}");
            differ += usize::from(tokens(other) != greedy);
            engine.shutdown();
        }
    }
    // The neighbours were not greedy themselves.
    assert!(differ > neighbours.len(), "{differ}");
}

/// The middle one of three ends is met where the reference's answer has it first, and no row runs on because others do.
#[test]
fn any_end_of_a_list_ends_its_row_alone_and_in_company() {
    let case = Case::read(&fixtures().join("tiny").join("llama")).unwrap();
    let wishes: Vec<_> = (3..)
        .zip(case.greedy.into_values())
        .map(|(place, golden)| {
            let end = golden.tokens[place];
            let place = golden.tokens.iter().position(|token| *token == end).unwrap();
            let others: Vec<TokenId> = (0..).filter(|id| !golden.tokens.contains(id)).take(2).collect();
            (golden.prompt, vec![others[0], end, others[1]], golden.tokens[..place].to_vec())
        })
        .collect();
    for max_rows in [1, wishes.len()] {
        let engine = engine("llama", Config { max_rows, ..Config::default() });
        let ask = |(prompt, ends, _): &(Vec<TokenId>, Vec<TokenId>, _)| {
            let asked = request(prompt.clone(), ANSWER);
            engine.submit(Request { end_tokens: ends.clone(), ignore_end: false, ..asked }).unwrap()
        };
        let running: Vec<_> = wishes.iter().map(ask).collect();
        for (mut row, (_, ends, expected)) in running.into_iter().zip(&wishes) {
            let (mut tokens, mut outcome) = (Vec::new(), None);
            while let Some(event) = row.recv() {
                match event {
                    Event::Delta { tokens: more, .. } => tokens.extend(more),
                    Event::Finished { outcome: last, .. } => outcome = Some(last),
                    _ => {}
                }
            }
            assert_eq!(
                (tokens, outcome),
                (expected.clone(), Some(Outcome::End)),
                "{max_rows} rows, {ends:?}"
            );
        }
        engine.shutdown();
    }
}

/// Bytes of the device that are neither weights nor stored states: weights are what was there before, all in all.
fn held(metrics: &Metrics) -> f64 {
    metrics.memory.active.saturating_sub(metrics.stored_bytes) as f64
}

fn flat(model: &str, prefix: PrefixLimits) {
    let engine = engine(model, Config { prefix, ..Config::default() });
    let beginnings = prompts(model);
    let vocabulary = engine.capabilities().unwrap().vocabulary;
    let ask = |index: usize| {
        // No two are alike in their first four tokens.
        let digits = [1, 10, 100, 1000].map(|place| (index / place % 10 % vocabulary) as TokenId);
        let prompt = [&digits[..], &beginnings[index % beginnings.len()]].concat();
        tokens(engine.submit(request(prompt, ANSWER)).unwrap());
    };
    (0..WARM).for_each(ask);
    let before = engine.metrics();
    (WARM..WARM + PROMPTS).for_each(ask);
    // An end is told before the row has left.
    engine.drain();
    let after = engine.metrics();
    assert_eq!((after.active, after.queued, after.cache_bytes), (0, 0, 0), "{model}");
    assert!(held(&after) <= held(&before) * (1.0 + GROWTH), "{model}: {before:?} {after:?}");
    assert!(after.stored_bytes <= prefix.bytes, "{model}: {after:?}");
    assert!(prefix.bytes == 0 || after.stored_states > 0, "{model}: {after:?}");
    engine.shutdown();
}

#[test]
fn two_hundred_prompts_leave_no_memory_behind() {
    let some = PrefixLimits { bytes: 256 << 10, shortest: 8, boundary: 8 };
    // Keys and values; these beside recurrent states; recurrent states alone.
    for model in ["llama", "qwen3_5", "lfm2", "mamba2"] {
        for prefix in [PrefixLimits::OFF, some] {
            flat(model, prefix);
        }
    }
}
