//! MLX promises no bits: in company, and in windows of drafts, a request's tokens are those alone until they part, which is
//! where its own numbers decide nothing.
//!
//! Of each place the numbers alone are known: how far apart the two best tokens are. A greedy request takes the best. One that
//! samples takes one of these two, by a number that its seed gives, so that the distance to the other choice is known as well.

use super::setting::{ANSWER, Answer, Proposer, Setting, Wish, answer};
use std::collections::BTreeMap;
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    request::{Score, Scoring},
    sampling::Sampling,
    tensor::{Affine, Precision},
    text::TokenId,
    threefry::threefry,
};
use tandem_engine::{EngineHandle, Mixing};
use tandem_tests::{
    device::Backend,
    fixtures,
    parity::{Case, Tolerances, cases},
};

/// Where a draw decides by less than this, f32 sums of it may decide otherwise.
const EXACT: f32 = 1e-4;

/// How far apart the two best tokens must be for company not to change which is best: twice as far as either may move. Over
/// codes, a key near a tie may take the next one in another company.
fn margin(tolerances: &Tolerances, case: &Case, state: &StatePolicy) -> f32 {
    let tolerance = tolerances.of(Backend::Mlx, &case.family).unwrap();
    match state {
        StatePolicy::Plain => tolerance.margin,
        StatePolicy::Encoded { .. } => 2.0 * tolerance.code_error,
    }
}

/// The number in `[0, 1)` that a request's sample takes, as the sampler documents it.
fn uniform(seed: u64, index: u64) -> f32 {
    let key = seed ^ (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let [word, _] = threefry([(key >> 32) as u32, key as u32], [0, 0]);
    (word >> 8) as f32 / 16_777_216.0
}

/// The token that follows from what the two best tokens of a place are, and by how much their distance may change until
/// another does.
fn decided(wish: &Wish, index: usize, score: &Score) -> (TokenId, f32) {
    let [(best, first), (other, second)] = score.top[..] else { panic!("two were asked for: {score:?}") };
    let gap = first - second;
    if wish.sampling.is_greedy() {
        return (best, gap);
    }
    // The best is taken where the number is below its share of the two, 1 / (1 + exp(-gap)).
    let uniform = uniform(wish.sampling.seed, index as u64);
    let turning = (uniform / (1.0 - uniform)).ln();
    (if gap > turning { best } else { other }, gap.min((gap - turning).abs()))
}

/// Every golden prompt, each other one with a seed, between its two best tokens.
fn wishes(case: &Case, number: usize) -> Vec<Wish> {
    let scoring = Scoring { answer: Some(2), ..Scoring::default() };
    let sampled = |seed| Sampling { seed, top_k: 2, ..Sampling::default() };
    let prompts = case.greedy.values().map(|run| run.prompt.clone());
    let wish = |(prompt, index): (Vec<TokenId>, usize)| {
        let greedy = (index + number).is_multiple_of(2);
        let sampling = if greedy { Sampling::greedy() } else { sampled(index as u64) };
        Wish { prompt, sampling, scoring }
    };
    prompts.zip(0..).map(wish).collect()
}

/// What was asked, and what came of it alone.
struct Alone {
    wish: Wish,
    answer: Answer,
    margin: f32,
}

impl Alone {
    /// Asks for all, one after the other, and holds what was drawn to what the numbers say.
    fn ask(engine: &EngineHandle, (case, number): (&Case, usize), margin: f32) -> Vec<Self> {
        let all = wishes(case, number).into_iter().map(|wish| {
            let answer = answer(wish.submit(engine)).0;
            for (index, (token, score)) in answer.0.iter().zip(&answer.1).enumerate() {
                let (expected, apart) = decided(&wish, index, score);
                assert!(*token == expected || apart < EXACT, "{} {wish:?}: {token} at {index}", case.name);
            }
            Self { wish, answer, margin }
        });
        all.collect()
    }

    /// How many tokens are the same; where they part, the numbers must have decided nothing.
    fn hold(&self, tokens: &[TokenId], what: &str) -> usize {
        let (alone, scores) = &self.answer;
        let same = tokens.iter().zip(alone).take_while(|(got, alone)| got == alone).count();
        let apart = scores.get(same).map_or(0.0, |score| decided(&self.wish, same, score).1);
        assert!(apart < self.margin, "{what} {:?}: parts at {same} by {apart}", self.wish);
        same
    }
}

/// Tokens that were compared, and all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Share(usize, usize);

/// Everybody at once. Nobody asks for scores, so that the device chooses where it can.
fn together(engine: EngineHandle, all: &[Alone], what: &str) -> Share {
    let submit = |it: &Alone| Wish { scoring: Scoring::default(), ..it.wish.clone() }.submit(&engine);
    let running: Vec<_> = all.iter().map(submit).collect();
    let compared = running.into_iter().zip(all).map(|(row, alone)| alone.hold(&answer(row).0.0, what));
    let share = Share(compared.sum(), all.len() * ANSWER);
    engine.shutdown();
    share
}

#[test]
fn a_request_gets_its_tokens_in_any_company_and_with_any_drafts() {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
    let encoded = |code| StatePolicy::Encoded { codes: Codes::Uniform(code), start: 0 };
    let affine = encoded(Code::Affine(Affine { bits: 8, group: 32 }));
    let turbo = encoded(Code::Turbo { keys: 8, values: 8 });
    let (mut shares, mut drafts) = (BTreeMap::<_, Share>::new(), (0, 0));
    for (model, folder) in cases(&fixtures().join("tiny"), None).unwrap().into_iter().enumerate() {
        let case = Case::read(&folder).unwrap();
        for (index, state) in [StatePolicy::Plain, affine.clone(), turbo.clone()].into_iter().enumerate() {
            let number = model + index;
            let margin = margin(&tolerances, &case, &state);
            let (backend, precision) = (Backend::Mlx, Precision::Exact);
            let setting = Setting { backend, folder: folder.clone(), precision, state };
            let Some(engine) = setting.alone() else { continue };
            let all = Alone::ask(&engine, (&case, number), margin);
            engine.shutdown();
            let whole = |it: &Alone| [&it.wish.prompt[..], &it.answer.0].concat();
            let rows: Vec<Vec<TokenId>> = all.iter().map(whole).collect();
            // Nobody's drafts; a row alone with drafts; some rows that draft by their own past or as somebody tells them.
            let turns = [
                (5, Proposer::Nothing),
                (1, Proposer::turn(&rows, number)),
                (2 + number % 7, Proposer::turn(&rows, number + 1 + model % 4)),
            ];
            for (turn, (rows, proposer)) in turns.into_iter().enumerate() {
                let what =
                    format!("{} {:?}, turn {turn}, {rows} rows, {proposer:?}", case.name, setting.state);
                let engine = setting.together(Mixing::default(), rows, proposer).unwrap();
                let share = together(engine.clone(), &all, &what);
                let metrics = engine.metrics();
                drafts = (drafts.0 + metrics.accepted_tokens, drafts.1 + metrics.drafted_tokens);
                let sum = shares.entry((index, turn)).or_default();
                *sum = Share(sum.0 + share.0, sum.1 + share.1);
            }
        }
    }
    println!("mlx: (plain, affine, TurboQuant; company, drafts alone, drafts in company): {shares:?}");
    println!("mlx: drafts accepted, and all: {drafts:?}");
    assert!(shares.len() == 9 && drafts.0 > 1000 && drafts.1 > 2 * drafts.0, "{drafts:?}");
    assert!(shares.values().all(|it| it.0 * 10 >= it.1 * 8), "{shares:?}");
}
