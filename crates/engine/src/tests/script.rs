//! Random scripts: whatever arrives, leaves and fails, no request is lost and every lease comes back.

use super::{
    rig::{Answer, Rig, config, request},
    session::{Control, TOKEN_BYTES, Trouble},
};
use crate::{
    command::Command,
    config::{Config, Gap, Mixing, PrefixLimits},
    subscription::Subscription,
};
use proptest::prelude::*;
use std::time::Duration;
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    request::{Outcome, Request, RequestId, Scoring, Usage},
    sampling::{Dry, Penalty, Sampling, Xtc},
    tensor::ErrorKind,
    text::TokenId,
};

#[derive(Clone, Debug)]
struct Wish {
    prompt: Vec<TokenId>,
    max_tokens: usize,
    end_tokens: Vec<TokenId>,
    sampling: Sampling,
    /// Whether its keys and values are to be kept in another way than the engine's own.
    encoded: bool,
    scoring: Scoring,
}

impl Wish {
    fn request(&self) -> Request {
        Request {
            scoring: self.scoring,
            end_tokens: self.end_tokens.clone(),
            sampling: self.sampling.clone(),
            state: self.encoded.then(encoded),
            ..request(&self.prompt, self.max_tokens)
        }
    }

    /// The answer of an engine that has nothing else to do and cuts nothing.
    fn alone(&self) -> Answer {
        let mut rig = Rig::new(Config { states: vec![encoded()], ..config() });
        let mut subscription = rig.submit(self.request());
        rig.finish();
        super::rig::read(&mut subscription)
    }
}

#[derive(Clone, Debug)]
enum Action {
    Submit(Box<Wish>),
    Cancel(prop::sample::Index),
    Leave(prop::sample::Index),
    Read(prop::sample::Index),
    Turn,
    Pass(u64),
    Fail(Trouble),
}

/// Another way to keep keys and values.
fn encoded() -> StatePolicy {
    StatePolicy::Encoded { codes: Codes::Uniform(Code::Turbo { keys: 8, values: 3 }), start: 5 }
}

/// Prompts of which many begin alike.
fn prompt() -> impl Strategy<Value = Vec<TokenId>> {
    let beginning = (0_u32..3, 0_usize..16).prop_map(|(first, length)| {
        (0..length as u32).map(|index| (10 * first + index) % 30).collect::<Vec<_>>()
    });
    (beginning, prop::collection::vec(0_u32..30, 1..10))
        .prop_map(|(beginning, end)| [beginning, end].concat())
}

fn wish() -> impl Strategy<Value = Wish> {
    let sampling = (
        prop_oneof![Just(0.0_f32), Just(0.7)],
        any::<u64>(),
        prop_oneof![Just(1.0_f32), Just(0.9)],
        prop_oneof![Just(0.0_f32), Just(1.5)],
        prop_oneof![2 => Just(0.0_f32), 1 => Just(0.8)],
        prop_oneof![2 => Just(0.0_f32), 1 => Just(0.5)],
    );
    let sampling = sampling.prop_map(|(temperature, seed, top_p, presence, dry, xtc)| Sampling {
        temperature,
        seed,
        top_p,
        presence: Penalty { amount: presence, context: 5 },
        dry: Dry { multiplier: dry, ..Dry::default() },
        xtc: Xtc { probability: xtc, threshold: 0.05, ..Xtc::default() },
        ..Sampling::default()
    });
    let scored = || prop_oneof![3 => Just(None), 1 => (0_usize..3).prop_map(Some)];
    let scoring = (scored(), scored()).prop_map(|(answer, prompt)| Scoring { answer, prompt });
    let ends = prop::collection::vec(0_u32..30, 0..3);
    (prompt(), 1_usize..12, ends, sampling, any::<bool>(), scoring).prop_map(
        |(prompt, max_tokens, end_tokens, sampling, encoded, scoring)| Wish {
            prompt,
            max_tokens,
            end_tokens,
            sampling,
            encoded,
            scoring,
        },
    )
}

fn action(faults: bool) -> impl Strategy<Value = Action> {
    let trouble =
        prop_oneof![Just(Trouble::Error(ErrorKind::Device)), Just(Trouble::Error(ErrorKind::Memory))];
    prop_oneof![
        4 => wish().prop_map(|wish| Action::Submit(Box::new(wish))),
        1 => any::<prop::sample::Index>().prop_map(Action::Cancel),
        1 => any::<prop::sample::Index>().prop_map(Action::Leave),
        2 => any::<prop::sample::Index>().prop_map(Action::Read),
        8 => Just(Action::Turn),
        1 => (0_u64..12).prop_map(Action::Pass),
        u32::from(faults) => trouble.prop_map(Action::Fail),
    ]
}

/// An engine: its limits, whether its session's rows can be shortened, and whether steps begin before the last is read.
#[derive(Clone, Debug)]
struct Setting {
    config: Config,
    trimmable: bool,
    registers: bool,
}

fn mixing() -> impl Strategy<Value = Mixing> {
    prop_oneof![
        Just(Mixing::Alternating),
        Just(Mixing::Packed(Gap::Any)),
        (1.0_f32..6.0).prop_map(|times| Mixing::Packed(Gap::Times(times))),
        (0_u64..9).prop_map(|time| Mixing::Packed(Gap::Within(Duration::from_millis(time)))),
    ]
}

fn prefix() -> impl Strategy<Value = PrefixLimits> {
    (0_usize..80, 0_usize..6, 0_usize..12).prop_map(|(tokens, shortest, boundary)| PrefixLimits {
        bytes: tokens * TOKEN_BYTES,
        shortest,
        boundary,
    })
}

fn setting() -> impl Strategy<Value = Setting> {
    let flags = (any::<bool>(), any::<bool>());
    (limits(), mixing(), prefix(), flags).prop_map(|(config, mixing, prefix, (trimmable, registers))| {
        Setting { config: Config { mixing, prefix, states: vec![encoded()], ..config }, trimmable, registers }
    })
}

fn limits() -> impl Strategy<Value = Config> {
    let bytes = prop_oneof![Just(None), (10_usize..80).prop_map(|tokens| Some(tokens * TOKEN_BYTES))];
    (1_usize..5, 1_usize..20, 1_usize..12, bytes).prop_map(
        |(max_rows, step_tokens, prompt_chunk, cache_bytes)| Config {
            max_rows,
            step_tokens,
            prompt_chunk,
            cache_bytes,
            ..config()
        },
    )
}

struct Client {
    wish: Wish,
    subscription: Option<Subscription>,
    answer: Answer,
    cancelled: bool,
}

fn play(setting: &Setting, actions: Vec<Action>) -> (Rig, Vec<Client>) {
    let Setting { config: limits, trimmable, registers } = setting;
    let control = Control::default();
    control.script().trimmable = *trimmable;
    control.script().registers = *registers;
    let mut rig = Rig::over(limits.clone(), control);
    // Steps take between none and four milliseconds.
    let clock = rig.clock.clone();
    rig.control.script().hook = Some(Box::new(move |step| clock.pass_millis((step * 7919 % 5) as u64)));
    let mut clients: Vec<Client> = Vec::new();
    for action in actions {
        match action {
            Action::Submit(wish) => {
                let subscription = Some(rig.submit(wish.request()));
                clients.push(Client {
                    wish: *wish,
                    subscription,
                    answer: Answer::default(),
                    cancelled: false,
                });
            }
            Action::Turn => rig.turn(),
            Action::Pass(seconds) => rig.clock.pass(seconds),
            Action::Fail(trouble) => {
                let mut script = rig.control.script();
                let next = script.steps.len() + 1;
                script.at_step.insert(next, trouble);
            }
            _ if clients.is_empty() => {}
            Action::Cancel(index) => {
                let chosen = index.index(clients.len());
                clients[chosen].cancelled = true;
                rig.send(Command::Cancel(RequestId(chosen as u64)));
            }
            Action::Leave(index) => {
                let chosen = index.index(clients.len());
                clients[chosen].subscription = None;
            }
            Action::Read(index) => {
                let chosen = index.index(clients.len());
                let Client { subscription, answer, .. } = &mut clients[chosen];
                subscription.iter_mut().for_each(|subscription| answer.read(subscription));
            }
        }
        let metrics = rig.metrics();
        assert!(metrics.active <= limits.max_rows);
        assert!(metrics.stored_bytes <= limits.prefix.bytes);
        assert!(limits.cache_bytes.is_none_or(|limit| metrics.cache_bytes + metrics.stored_bytes <= limit));
    }
    rig.finish();
    for Client { subscription, answer, .. } in &mut clients {
        subscription.iter_mut().for_each(|subscription| answer.read(subscription));
    }
    (rig, clients)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_request_ends_once_and_every_lease_comes_back(
        setting in setting(),
        actions in prop::collection::vec(action(true), 0..60),
    ) {
        let (mut rig, clients) = play(&setting, actions);
        rig.assert_balanced();
        prop_assert_eq!(rig.metrics().outcomes.total(), clients.len() as u64);
        for client in clients.iter().filter(|client| client.subscription.is_some()) {
            prop_assert_eq!(client.answer.ends.len(), 1);
        }
    }

    #[test]
    fn a_rows_answer_is_its_answer_alone(
        setting in setting(),
        actions in prop::collection::vec(action(false), 0..60),
    ) {
        let (_, clients) = play(&setting, actions);
        for client in clients.iter().filter(|client| client.subscription.is_some()) {
            let alone = client.wish.alone();
            match client.answer.outcome() {
                Outcome::Cancelled => {
                    prop_assert!(alone.tokens.starts_with(&client.answer.tokens));
                    prop_assert!(alone.scores.starts_with(&client.answer.scores));
                }
                Outcome::Failed(failure) => prop_assert!(failure.message.contains("budget"), "{failure}"),
                outcome => {
                    prop_assert_eq!(outcome, alone.outcome());
                    prop_assert_eq!(&client.answer.tokens, &alone.tokens);
                    prop_assert_eq!(&client.answer.scores, &alone.scores);
                    prop_assert_eq!(&client.answer.prompt_scores, &alone.prompt_scores);
                    prop_assert_eq!(&client.answer.text, &alone.text);
                    let cached_tokens = client.answer.usage().cached_tokens;
                    prop_assert!(cached_tokens < client.wish.prompt.len());
                    prop_assert_eq!(client.answer.usage(), Usage { cached_tokens, ..alone.usage() });
                }
            }
        }
    }
}
