//! The engine over the golden models: whoever shares the device, a request gets the tokens that it gets alone.
//!
//! Every request runs alone on a fresh engine that keeps nothing, and then together with all others, in several orders, on one
//! with few rows, short steps and kept states: so rows join and leave in the middle of each other's prompts, begin with what
//! others have computed, and go on from states of ended ones. Half of them sample, by a seed; every third comes with
//! log-probabilities, each of which is made of all logits of its place, so that these are held to the bit. In some rounds rows
//! are verified in windows of drafts: from their own past, from one that knows the answers, always, never or now and then
//! tells them, and from the model itself.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

#[cfg(feature = "mlx")]
mod mlx;
mod setting;

use setting::{ANSWER, Answer, Proposer, Setting, Wish, answer};
use std::collections::BTreeMap;
use tandem_contracts::{
    fake,
    model::{Code, Codes, StatePolicy},
    request::Scoring,
    sampling::Sampling,
    tensor::{Affine, Device, Error, ErrorKind, Precision},
    text::TokenId,
};
use tandem_engine::{Config, Gap, Mixing, PrefixLimits};
use tandem_models::Options;
use tandem_tests::{
    device::Backend,
    fixtures,
    host::{Machine, request},
    parity::{Case, Tolerances, cases},
};

/// The golden prompts, some of them with other ends, greedy and sampled.
fn wishes(case: &Case) -> Vec<Wish> {
    let mut prompts: Vec<Vec<TokenId>> = case.greedy.values().map(|run| run.prompt.clone()).collect();
    for (index, prompt) in prompts.clone().iter().enumerate() {
        let mut other = prompt.clone();
        let half = other.len() / 2;
        other[half + index % (half.max(1))] ^= 1;
        prompts.push(other);
    }
    let seeded = |seed| Sampling { seed, ..Sampling::default() };
    let sampling =
        |index: usize| if index.is_multiple_of(2) { Sampling::greedy() } else { seeded(index as u64) };
    let scoring =
        |index: usize| Scoring { answer: index.is_multiple_of(3).then_some(2), ..Scoring::default() };
    prompts
        .into_iter()
        .enumerate()
        .map(|(index, prompt)| Wish { prompt, sampling: sampling(index), scoring: scoring(index) })
        .collect()
}

/// Whether the model can be kept so; and how many drafts were right. By `number` the number of rows and what proposes change:
/// two of five in turn.
fn hold(setting: &Setting, case: &Case, number: usize) -> Option<u64> {
    let wishes = wishes(case);
    let engine = setting.alone()?;
    let alone: Vec<_> = wishes.iter().map(|wish| answer(wish.submit(&engine)).0).collect();
    engine.shutdown();
    let whole = |(wish, answer): (&Wish, &Answer)| [&wish.prompt[..], &answer.0].concat();
    let rows: Vec<Vec<TokenId>> = wishes.iter().zip(&alone).map(whole).collect();
    let proposer = |number| Proposer::turn(&rows, number);
    let pace = [
        (Mixing::Packed(Gap::Any), proposer(2 * number)),
        (Mixing::Packed(Gap::Times(2.0)), Proposer::Nothing),
        (Mixing::Alternating, proposer(2 * number + 1)),
    ];
    let mut accepted = 0;
    for (turn, (mixing, proposer)) in pace.into_iter().enumerate() {
        let what = format!("{} {setting:?}, {mixing:?}, number {number}", case.name);
        let engine = setting.together(mixing, 2 + (number + turn) % 7, proposer).unwrap();
        // The second round finds what the first has left.
        for round in 0..2 {
            let mut order: Vec<usize> = (0..wishes.len()).collect();
            order.rotate_left((3 * turn + 5 * round) % wishes.len());
            let running: Vec<_> = order.iter().map(|&index| (index, wishes[index].submit(&engine))).collect();
            for (index, subscription) in running {
                let (tokens_and_scores, usage) = answer(subscription);
                let what = format!("{what}, round {round}, request {index}");
                assert_eq!(tokens_and_scores, alone[index], "{what}");
                assert!(round == 0 || usage.cached_tokens > 0, "{what}: nothing was kept");
            }
        }
        engine.drain();
        engine.shutdown();
        let metrics = engine.metrics();
        assert_eq!((metrics.active, metrics.queued, metrics.cache_bytes), (0, 0, 0));
        accepted += metrics.accepted_tokens;
    }
    Some(accepted)
}

fn policies() -> [StatePolicy; 4] {
    let encoded = |code, start| StatePolicy::Encoded { codes: Codes::Uniform(code), start };
    let affine = |bits| Code::Affine(Affine { bits, group: 32 });
    [
        StatePolicy::Plain,
        encoded(affine(8), 0),
        encoded(affine(4), 16),
        encoded(Code::Turbo { keys: 8, values: 3 }, 9),
    ]
}

#[test]
fn in_any_company_a_request_gets_its_tokens_alone() {
    let (mut held, mut accepted) = (BTreeMap::new(), 0);
    for (model, folder) in cases(&fixtures().join("tiny"), None).unwrap().into_iter().enumerate() {
        let case = Case::read(&folder).unwrap();
        for (index, state) in policies().into_iter().enumerate() {
            for (turn, precision) in [Precision::Exact, Precision::Fast].into_iter().enumerate() {
                let state = state.clone();
                let setting = Setting { backend: Backend::Cpu, folder: folder.clone(), precision, state };
                let right = hold(&setting, &case, model + 3 * index + turn);
                accepted += right.unwrap_or(0);
                *held.entry(index).or_insert(0) += usize::from(right.is_some());
            }
        }
    }
    // Every model plain and in affine codes; TurboQuant where heads are 64 wide or more.
    println!("settings held by policy: {held:?}, right drafts: {accepted}");
    assert!(accepted > 1000, "{accepted}");
    assert!(held[&0] >= 80 && held[&1] >= 70 && held[&3] >= 10, "{held:?}");
}

/// Greedy tokens of all prompts together, as far as the golden margins decide.
fn hold_goldens(backend: Backend) {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
    let (mut compared, mut all) = (0, 0);
    for folder in cases(&fixtures().join("tiny"), None).unwrap() {
        let case = Case::read(&folder).unwrap();
        let margin = tolerances.of(backend, &case.family).unwrap().margin;
        let setting = Setting { backend, folder, precision: Precision::Exact, state: StatePolicy::Plain };
        let engine = setting.together(Mixing::default(), 5, Proposer::Nothing).unwrap();
        let greedy = |prompt: &[TokenId]| engine.submit(request(prompt.to_vec(), ANSWER)).unwrap();
        for round in 0..2 {
            let running: Vec<_> = case.greedy.values().map(|run| (run, greedy(&run.prompt))).collect();
            for (run, subscription) in running {
                let ((tokens, _), _) = answer(subscription);
                let decided = run.margins.iter().take(ANSWER).take_while(|it| **it >= margin).count();
                assert_eq!(tokens[..decided], run.tokens[..decided], "{}, round {round}", case.name);
                (compared, all) = (compared + decided, all + ANSWER);
            }
        }
        engine.shutdown();
    }
    println!("{backend}: {compared} of {all} tokens are decided");
    assert!(compared * 10 >= all * 8, "{compared} of {all}");
}

#[test]
fn cpu_answers_as_the_goldens_do() {
    hold_goldens(Backend::Cpu);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_answers_as_the_goldens_do() {
    hold_goldens(Backend::Mlx);
}

/// On a device that defers, what is kept of rows is computed when it is kept: it holds no plane that they have shared.
#[test]
fn what_is_kept_of_rows_holds_nothing_of_their_company() {
    let case = Case::read(&fixtures().join("tiny/llama")).unwrap();
    let left = |prefix: PrefixLimits| {
        let folder = fixtures().join("tiny/llama");
        let build = move |device: &Device| {
            let broken = |error: &dyn ToString| Error::new(ErrorKind::Data, "load", error.to_string());
            let case = Case::read(&folder).map_err(|error| broken(&error))?;
            let checkpoint = case.checkpoint().map_err(|error| broken(&error))?;
            checkpoint.load(device, Options::default()).map_err(|error| broken(&error))
        };
        let open = Box::new(|| Ok(fake::open_for_shared_planes()));
        let config = Config { prefix, ..Config::default() };
        let engine = tandem_engine::spawn(open, build, config, Machine::clock()).unwrap();
        let running: Vec<_> = wishes(&case).iter().map(|wish| wish.submit(&engine)).collect();
        running.into_iter().for_each(|row| drop(answer(row)));
        engine.drain();
        engine.shutdown();
        let metrics = engine.metrics();
        (metrics.memory.active, metrics.stored_bytes)
    };
    let (nothing, _) = left(PrefixLimits::OFF);
    let (kept, stored) = left(PrefixLimits { bytes: 64 << 20, shortest: 2, boundary: 4 });
    // Planes of eight rows are eight times those of one.
    assert!(stored > 0 && kept - nothing < 2 * stored, "{kept} beside {nothing}, stored: {stored}");
}
