//! Rows with drafts: whatever is proposed, the answers are those of rows without.

use super::{
    rig::{Answer, Numbers, Rig, config, read, request},
    session::{CONTEXT, Control, Trouble, VOCABULARY, continuation},
    structure::{Climb, bound},
};
use crate::{
    config::{Config, Draft, Drafting, PrefixLimits},
    executor::Drafting as Providing,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tandem_contracts::{
    model::{Code, Codes, Slot, StatePolicy},
    request::{Outcome, Request, Scoring, Usage},
    sampling::{Penalty, Sampling},
    tensor::ErrorKind,
    text::TokenId,
};
use tandem_spec::{
    draft::{Ask, DraftProvider, Guess},
    ngram::Runs,
};

/// Proposes what rows are known to go on with, and something else at some places.
#[derive(Debug, Default)]
struct Prophet {
    /// Whole rows: prompts with their answers.
    rows: Vec<Vec<TokenId>>,
    /// Of a hundred proposals, how many are wrong.
    wrong: u64,
    histories: BTreeMap<Slot, Vec<TokenId>>,
}

impl DraftProvider for Prophet {
    fn namespace(&self) -> String {
        "prophet".to_owned()
    }

    fn adapters(&self) -> bool {
        true
    }

    fn open(&mut self, slot: Slot, history: &[TokenId]) {
        self.histories.insert(slot, history.to_vec());
    }

    fn commit(&mut self, slot: Slot, tokens: &[TokenId]) {
        self.histories.get_mut(&slot).expect("an open row").extend(tokens);
    }

    fn propose(&mut self, asks: &[Ask]) -> Vec<Guess> {
        let propose = |ask: &Ask| {
            let history = &self.histories[&ask.slot];
            let known = self.rows.iter().find(|row| row.len() > history.len() && row.starts_with(history));
            let rest = known.map_or(&[][..], |row| &row[history.len()..]);
            let spoilt = |(index, &token): (usize, &TokenId)| {
                let dice = (history.len() + index) as u64 * 7919 % 100;
                if dice < self.wrong { (token + 1) % VOCABULARY as TokenId } else { token }
            };
            Guess {
                tokens: rest.iter().enumerate().map(spoilt).take(ask.most).collect(),
                sort: history.len(),
            }
        };
        asks.iter().map(propose).collect()
    }

    fn close(&mut self, slot: Slot) {
        self.histories.remove(&slot);
    }
}

fn drafting(config: Config) -> Config {
    let drafting =
        Drafting { draft: Draft::Past(Runs::default()), tokens: 4, adaptive: false, ..Drafting::default() };
    Config { drafting, ..config }
}

/// A rig whose proposals are those of a prophet, of rows `prompt` with their greedy continuations.
fn foretold(config: Config, rows: Vec<Vec<TokenId>>, wrong: u64) -> Rig {
    let mut rig = Rig::new(drafting(config));
    rig.executor.provide(Providing::with(Box::new(Prophet { rows, wrong, histories: BTreeMap::new() })));
    rig
}

fn row(prompt: &[TokenId]) -> Vec<TokenId> {
    [prompt.to_vec(), continuation(prompt, CONTEXT - prompt.len())].concat()
}

const PROMPT: [TokenId; 3] = [1, 2, 3];

#[test]
fn right_drafts_save_steps_and_wrong_ones_cost_none() {
    for (wrong, steps, drafted, accepted) in [
        // The last token is never a draft.
        (0, "0@0+3*\n0@3+5**\n0@8+4**", 7, 7),
        (
            100,
            "0@0+3*\n0@3+5**\n0@4+5**\n0@5+5**\n0@6+5**\n0@7+5**\n0@8+4**\n0@9+3**\n0@10+2**\n0@11+1*",
            0,
            0,
        ),
    ] {
        let mut rig = foretold(config(), vec![row(&PROMPT)], wrong);
        let mut subscription = rig.submit(request(&PROMPT, 10));
        rig.finish();
        let answer = read(&mut subscription);
        assert_eq!(answer.tokens, continuation(&PROMPT, 10));
        assert_eq!(rig.steps(), steps);
        let usage = answer.usage();
        assert_eq!(usage.accepted_tokens, accepted);
        assert!(drafted == 0 || usage.drafted_tokens == drafted);
        assert_eq!(usage.completion_tokens, 10);
        rig.assert_balanced();
    }
}

#[test]
fn an_end_among_accepted_drafts_is_no_part_of_the_answer_nor_of_what_is_kept() {
    let prefix = PrefixLimits { bytes: 10_000, shortest: 1, boundary: 1 };
    for trimmable in [false, true] {
        let control = Control::default();
        control.script().trimmable = trimmable;
        let mut rig = Rig::over(drafting(Config { prefix, ..config() }), control);
        let rows = vec![row(&PROMPT)];
        rig.executor.provide(Providing::with(Box::new(Prophet { rows, ..Prophet::default() })));
        let tokens = continuation(&PROMPT, 10);
        let end_tokens = vec![tokens[3]];
        let mut subscription = rig.submit(Request { end_tokens, ..request(&PROMPT, 10) });
        rig.finish();
        let answer = read(&mut subscription);
        assert_eq!((answer.outcome(), &answer.tokens[..]), (&Outcome::End, &tokens[..3]));
        assert_eq!(answer.usage().completion_tokens, 4);
        // A row that goes on from what is kept goes on as one that begins empty.
        let prompt = [&PROMPT[..], &tokens[..3], &[9]].concat();
        let mut next = rig.submit(request(&prompt, 5));
        rig.finish();
        let next = read(&mut next);
        assert_eq!(next.tokens, continuation(&prompt, 5));
        assert_eq!(next.usage().cached_tokens, 6);
        rig.assert_balanced();
    }
}

#[test]
fn stops_lengths_and_readers_that_leave_end_a_window() {
    let tokens = continuation(&PROMPT, 10);
    let mut rig = foretold(config(), vec![row(&PROMPT)], 0);
    let text = Box::new(Numbers { stop: Some(tokens[1]), ..Numbers::default() });
    let mut stopped = rig.submit(Request { text, ..request(&PROMPT, 10) });
    let mut short = rig.submit(request(&PROMPT, 3));
    let text = Box::new(Numbers { panic: Some(tokens[1]), ..Numbers::default() });
    let mut broken = rig.submit(Request { text, ..request(&PROMPT, 10) });
    let gone = rig.submit(request(&PROMPT, 10));
    rig.turn();
    drop(gone);
    rig.finish();
    let stopped = read(&mut stopped);
    assert_eq!((stopped.outcome(), &stopped.tokens[..]), (&Outcome::Stop(3), &tokens[..2]));
    let short = read(&mut short);
    assert_eq!((short.outcome(), &short.tokens[..]), (&Outcome::Length, &tokens[..3]));
    assert_eq!(read(&mut broken).failure(), "the answer's text could not be processed");
    rig.assert_balanced();
}

#[test]
fn the_context_ends_a_window() {
    let prompt: Vec<TokenId> = (0..CONTEXT as TokenId - 6).map(|token| token % 30).collect();
    let mut rig = foretold(config(), vec![row(&prompt)], 0);
    let mut subscription = rig.submit(request(&prompt, 100));
    rig.finish();
    let answer = read(&mut subscription);
    assert_eq!((answer.outcome(), &answer.tokens), (&Outcome::Length, &continuation(&prompt, 6)));
    rig.assert_balanced();
}

#[test]
fn rows_that_cannot_be_shortened_again_fail_alone() {
    let mut rig = foretold(config(), vec![row(&PROMPT), row(&[7, 8])], 100);
    let mut lost = rig.submit(request(&PROMPT, 10));
    let mut other = rig.submit(request(&[7, 8], 10));
    rig.turn();
    rig.control.script().at_trim = Some(Trouble::Error(ErrorKind::Device));
    rig.finish();
    assert!(read(&mut lost).failure().starts_with("the model failed: "));
    assert_eq!(read(&mut other).tokens, continuation(&[7, 8], 10));
    rig.assert_balanced();
}

#[test]
fn what_a_grammar_leaves_no_choice_of_is_proposed() {
    let grammar = Climb { strict: true, ..Climb::new(5, 9) };
    let mut answers = Vec::new();
    for grammars in [false, true] {
        let drafting = Drafting { grammars, tokens: 4, adaptive: false, ..Drafting::default() };
        let mut rig = Rig::new(Config { drafting, ..config() });
        let mut subscription = rig.submit(bound(request(&PROMPT, 20), grammar.clone()));
        rig.finish();
        let answer = read(&mut subscription);
        assert_eq!(answer.outcome(), &Outcome::End);
        assert_eq!(answer.usage().accepted_tokens > 0, grammars);
        assert_eq!(rig.metrics().steps, if grammars { 3 } else { 9 });
        answers.push(answer.tokens);
        rig.assert_balanced();
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].len(), 9);
}

#[test]
fn drafts_that_do_not_pay_are_not_tried() {
    let mut steps = Vec::new();
    for millis_of_a_token in [0, 60] {
        let mut rig = foretold(config(), vec![row(&PROMPT)], 0);
        let clock = rig.clock.clone();
        rig.control.script().cost = Some(Box::new(move |tokens| {
            clock.pass_millis(100 + (tokens as u64 - 1) * 2 * millis_of_a_token)
        }));
        rig.executor.adapt();
        let mut subscription = rig.submit(request(&PROMPT, 40));
        rig.finish();
        assert_eq!(read(&mut subscription).tokens, continuation(&PROMPT, 40));
        steps.push(rig.metrics().steps);
    }
    assert!(steps[0] < 16, "{steps:?}");
    assert!(steps[1] > 30, "{steps:?}");
}

/// One row of a random batch.
#[derive(Clone, Debug)]
struct Wish {
    prompt: Vec<TokenId>,
    max_tokens: usize,
    end: Option<TokenId>,
    sampling: Sampling,
    encoded: bool,
    scoring: Scoring,
    grammar: Option<Climb>,
}

impl Wish {
    fn request(&self) -> Request {
        let request = Request {
            end_tokens: self.end.into_iter().collect(),
            sampling: self.sampling.clone(),
            state: self.encoded.then(encoded),
            scoring: self.scoring,
            ..request(&self.prompt, self.max_tokens)
        };
        match &self.grammar {
            Some(grammar) => bound(request, grammar.clone()),
            None => request,
        }
    }

    fn plain(&self) -> Answer {
        let mut rig = Rig::new(Config { states: vec![encoded()], drafting: Drafting::OFF, ..config() });
        let mut subscription = rig.submit(self.request());
        rig.finish();
        read(&mut subscription)
    }
}

fn encoded() -> StatePolicy {
    StatePolicy::Encoded { codes: Codes::Uniform(Code::Turbo { keys: 8, values: 3 }), start: 11 }
}

fn wish() -> impl Strategy<Value = Wish> {
    let sampling =
        (prop_oneof![Just(0.0_f32), Just(0.7)], any::<u64>(), prop_oneof![Just(0.0_f32), Just(1.5)]);
    let sampling = sampling.prop_map(|(temperature, seed, presence)| Sampling {
        temperature,
        seed,
        presence: Penalty { amount: presence, context: 5 },
        ..Sampling::default()
    });
    let grammar = prop_oneof![
        2 => Just(None),
        1 => (1_u32..9, 1_usize..9, any::<bool>()).prop_map(|(step, length, strict)| Some(Climb { strict, ..Climb::new(step, length) })),
    ];
    let scored = || prop_oneof![3 => Just(None), 1 => (0_usize..3).prop_map(Some)];
    let scoring = (scored(), scored()).prop_map(|(answer, prompt)| Scoring { answer, prompt });
    let prompt = prop::collection::vec(0_u32..6, 1..12);
    (
        prompt,
        1_usize..14,
        prop_oneof![2 => Just(None), 1 => (0_u32..30).prop_map(Some)],
        sampling,
        any::<bool>(),
        scoring,
        grammar,
    )
        .prop_map(|(prompt, max_tokens, end, sampling, encoded, scoring, grammar)| Wish {
            prompt,
            max_tokens,
            end,
            sampling,
            encoded,
            scoring,
            grammar,
        })
}

proptest! {
    /// Drafts of every kind, right and wrong, in any company, over rows that can be shortened and rows that cannot.
    #[test]
    fn answers_are_those_of_rows_without_drafts(
        wishes in prop::collection::vec(wish(), 1..6),
        wrong in prop_oneof![Just(0_u64), Just(100), 0_u64..100],
        (past, grammars, trimmable, adaptive) in any::<(bool, bool, bool, bool)>(),
        (tokens, step_tokens, prompt_chunk) in (1_usize..9, 1_usize..24, 1_usize..12),
        kept in 0_usize..600,
    ) {
        let plain: Vec<Answer> = wishes.iter().map(Wish::plain).collect();
        let control = Control::default();
        control.script().trimmable = trimmable;
        let draft = Draft::Past(Runs::default());
        let drafting = Drafting { draft, grammars, tokens, adaptive };
        let prefix = PrefixLimits { bytes: kept, shortest: 2, boundary: 3 };
        let mut rig = Rig::over(
            Config { drafting, states: vec![encoded()], step_tokens, prompt_chunk, prefix, ..config() },
            control,
        );
        if !past {
            let whole = |(wish, answer): (&Wish, &Answer)| [&wish.prompt[..], &answer.tokens].concat();
            let rows = wishes.iter().zip(&plain).map(whole).collect();
            rig.executor.provide(Providing::with(Box::new(Prophet { rows, wrong, histories: BTreeMap::new() })));
        }
        let mut together: Vec<_> = wishes.iter().map(|wish| rig.submit(wish.request())).collect();
        rig.finish();
        for (expected, subscription) in plain.iter().zip(&mut together) {
            let answer = read(subscription);
            prop_assert_eq!(&answer.tokens, &expected.tokens);
            prop_assert_eq!((&answer.text, &answer.scores, &answer.prompt_scores), (&expected.text, &expected.scores, &expected.prompt_scores));
            prop_assert_eq!(answer.outcome(), expected.outcome());
            let Usage { cached_tokens, drafted_tokens, accepted_tokens, .. } = answer.usage();
            prop_assert!(accepted_tokens <= drafted_tokens);
            prop_assert_eq!(answer.usage(), Usage { cached_tokens, drafted_tokens, accepted_tokens, ..expected.usage() });
        }
        rig.assert_balanced();
    }
}
