//! Rows whose requests determine parts of their answers: what is filled in, what ends them, and that company changes nothing.

use super::{
    rig::{Answer, Numbers, Rig, config, read, request},
    session::{CONTEXT, Control, continuation, next_token},
};
use crate::{
    config::{Config, Draft, Drafting, Mixing, PrefixLimits},
    subscription::Subscription,
};
use insta::assert_snapshot;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tandem_contracts::{
    fake::{Fake, Manner},
    fill::{Fill, Kind, Rule},
    model::{Code, Codes, StatePolicy},
    request::{Outcome, Request, Usage},
    sampling::{Penalty, Sampling},
    text::{Delta, StopMatcher, TokenId},
};
use tandem_spec::ngram::Runs;

const PROMPT: [TokenId; 3] = [1, 2, 3];

/// What comes behind the first two tokens of the answer to [`PROMPT`].
const SPAN: [TokenId; 3] = [24, 25, 26];

fn rule(trigger: &[TokenId], emit: &[TokenId]) -> Rule {
    Rule { trigger: trigger.to_vec(), emit: emit.to_vec(), kind: Kind::Scaffold }
}

fn strict(rules: &[Rule]) -> Fill {
    Fill { rules: rules.into(), echo: None }
}

/// A request whose answer goes on with [`SPAN`] behind its second token.
fn filled(max_tokens: usize) -> Request {
    let rules = [rule(&continuation(&PROMPT, 2), &SPAN)];
    Request { fill: Some(strict(&rules)), ..request(&PROMPT, max_tokens) }
}

/// That answer.
fn expected(count: usize) -> Vec<TokenId> {
    let begun = [&continuation(&PROMPT, 2)[..], &SPAN].concat();
    let all = [&PROMPT[..], &begun].concat();
    [begun, continuation(&all, count)].concat()[..count].to_vec()
}

fn rig_on(deferred: bool, config: Config) -> Rig {
    let control = Control::default();
    control.script().registers = deferred;
    control.script().trimmable = true;
    Rig::on(Fake::open_with(Manner { deferred, ..Manner::default() }), config, control)
}

#[test]
fn a_span_is_read_with_its_token_and_only_what_follows_is_chosen() {
    let mut rig = rig_on(false, config());
    let mut subscription = rig.submit(filled(8));
    rig.finish();
    let answer = read(&mut subscription);
    assert_eq!((answer.outcome(), &answer.tokens), (&Outcome::Length, &expected(8)));
    // Of the third step, which reads four tokens, the last alone has logits.
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    0@3+1*
    0@4+4*
    0@8+1*
    0@9+1*
    ");
    let usage = Usage { prompt_tokens: 3, completion_tokens: 8, filled_tokens: 3, ..Usage::default() };
    assert_eq!(answer.usage(), usage);
    let metrics = rig.metrics();
    let fill = &metrics.fill;
    assert_eq!((metrics.filled_tokens, fill.events, fill.injected, fill.wasted_samples), (3, 1, 3, 0));
    // Behind the last token nothing is asked for.
    assert_eq!((fill.spans().collect::<Vec<_>>(), fill.decode_steps), (vec![(3, 1)], 4));
    rig.assert_balanced();
}

/// A device that defers has begun a step by the time that the span is known: what that samples is dropped.
#[test]
fn a_step_that_has_begun_samples_one_token_in_vain() {
    let mut rig = rig_on(true, config());
    let mut subscription = rig.submit(filled(8));
    rig.finish();
    let answer = read(&mut subscription);
    assert_eq!((answer.outcome(), &answer.tokens), (&Outcome::Length, &expected(8)));
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    0@3~*
    0@4~*
    0@5+3*
    0@8~*
    0@9~*
    ");
    assert_eq!(rig.metrics().fill.wasted_samples, 1);
    assert_eq!(rig.fake.counts().hidden_evaluations, 0);
    rig.assert_balanced();
}

#[test]
fn what_ends_a_row_ends_it_inside_a_span() {
    for deferred in [false, true] {
        let mut rig = rig_on(deferred, config());
        let text = |stop, panic| Box::new(Numbers { stop, panic, ..Numbers::default() });
        let mut stopped = rig.submit(Request { text: text(Some(SPAN[1]), None), ..filled(9) });
        let mut broken = rig.submit(Request { text: text(None, Some(SPAN[1])), ..filled(9) });
        let mut short = rig.submit(filled(4));
        // Where one token may come behind the sampled one, nothing is filled in.
        let mut shortest = rig.submit(filled(3));
        // An end token is never filled in, and nothing behind it.
        let mut ending = rig.submit(Request { end_tokens: vec![SPAN[2]], ..filled(6) });
        let mut ignoring = rig.submit(Request { end_tokens: vec![SPAN[2]], ignore_end: true, ..filled(6) });
        rig.finish();
        let (tokens, stopped) = (expected(6), read(&mut stopped));
        assert_eq!((stopped.outcome(), &stopped.tokens[..]), (&Outcome::Stop(3), &tokens[..4]));
        assert_eq!(stopped.usage().completion_tokens, 4);
        assert_eq!(read(&mut broken).failure(), "the answer's text could not be processed");
        let short = read(&mut short);
        assert_eq!((short.outcome(), &short.tokens[..]), (&Outcome::Length, &tokens[..4]));
        assert_eq!((short.usage().completion_tokens, short.usage().filled_tokens), (4, 2));
        assert_eq!(read(&mut shortest).tokens, continuation(&PROMPT, 3));
        let begun = [&PROMPT[..], &tokens[..4]].concat();
        assert_eq!(read(&mut ending).tokens, [&tokens[..4], &continuation(&begun, 2)].concat());
        assert_eq!(read(&mut ignoring).tokens, tokens);
        rig.assert_balanced();
    }
}

/// A matcher whose client goes away at a token.
struct Leaving(Arc<Mutex<Option<Subscription>>>, TokenId);

impl StopMatcher for Leaving {
    fn push(&mut self, token: TokenId) -> Delta {
        if token == self.1 {
            drop(self.0.lock().expect("nobody panicked").take());
        }
        Delta { text: "x".to_owned(), stopped: None }
    }

    fn finish(&mut self) -> Delta {
        Delta::default()
    }
}

#[test]
fn a_client_that_leaves_inside_a_span_ends_its_own_row() {
    for deferred in [false, true] {
        let mut rig = rig_on(deferred, config());
        let client = Arc::new(Mutex::new(None));
        let text = Box::new(Leaving(Arc::clone(&client), SPAN[1]));
        let leaving = rig.submit(Request { text, ..filled(20) });
        *client.lock().expect("nobody panicked") = Some(leaving);
        let mut stays = rig.submit(filled(7));
        rig.finish();
        assert_eq!(read(&mut stays).tokens, expected(7));
        let metrics = rig.metrics();
        assert_eq!((metrics.outcomes.cancelled, metrics.outcomes.length), (1, 1));
        // Two of three tokens, and three.
        assert_eq!((metrics.fill.injected, metrics.completion_tokens), (5, 4 + 7));
        rig.assert_balanced();
    }
}

/// What is kept of a row that was filled in is what a row has whose prompt brought the same tokens.
#[test]
fn rows_go_on_from_what_was_filled_in() {
    for deferred in [false, true] {
        let prefix = PrefixLimits { bytes: 10_000, shortest: 1, boundary: 1 };
        let mut rig = rig_on(deferred, Config { prefix, ..config() });
        let text = Box::new(Numbers { stop: Some(SPAN[1]), ..Numbers::default() });
        let ended = [Request { text, ..filled(9) }, filled(8)].map(|request| rig.submit(request));
        rig.finish();
        let prompt = [&PROMPT[..], &expected(7), &[9]].concat();
        drop(ended);
        let mut next = rig.submit(request(&prompt, 5));
        rig.finish();
        let next = read(&mut next);
        assert_eq!((next.usage().cached_tokens, next.tokens), (10, continuation(&prompt, 5)));
        rig.assert_balanced();
    }
}

#[test]
fn long_spans_are_read_in_chunks_and_no_row_waits_for_them() {
    let span: Vec<TokenId> = (0..20).collect();
    let rules = [rule(&continuation(&PROMPT, 1), &span)];
    let mut rig = rig_on(false, Config { prompt_chunk: 8, step_tokens: 6, ..config() });
    let mut long = rig.submit(Request { fill: Some(strict(&rules)), ..request(&PROMPT, 22) });
    let mut other = rig.submit(request(&[7], 6));
    rig.finish();
    let whole = [&continuation(&PROMPT, 1)[..], &span].concat();
    let last = next_token(&[&PROMPT[..], &whole].concat());
    assert_eq!(read(&mut long).tokens, [whole, vec![last]].concat());
    assert_eq!(read(&mut other).tokens, continuation(&[7], 6));
    assert_snapshot!(rig.steps(), @r"
    0@0+3* 1@0+1*
    0@3+5 1@1+1*
    0@8+5 1@2+1*
    0@13+5 1@3+1*
    0@18+5 1@4+1*
    0@23+1* 1@5+1*
    ");
    rig.assert_balanced();
}

#[test]
fn copies_are_verified_and_change_no_token() {
    // The same token over and over.
    let sampling = Sampling { logit_bias: vec![(5, 50.0)], ..Sampling::greedy() };
    let drafting = Drafting { tokens: 6, adaptive: false, ..Drafting::default() };
    let mut steps = Vec::new();
    for echo in [None, Some(Arc::default())] {
        let mut rig = rig_on(false, Config { drafting, ..config() });
        let fill = echo.map(|echo| Fill { echo: Some(echo), ..Fill::default() });
        let mut subscription =
            rig.submit(Request { fill, sampling: sampling.clone(), ..request(&PROMPT, 30) });
        rig.finish();
        let answer = read(&mut subscription);
        assert_eq!(answer.tokens, [5; 30]);
        let Usage { drafted_tokens, accepted_tokens, filled_tokens, .. } = answer.usage();
        assert_eq!((drafted_tokens, filled_tokens), (accepted_tokens, 0));
        assert_eq!(rig.metrics().fill.verify.accepted, accepted_tokens as u64);
        steps.push(rig.metrics().steps);
        rig.assert_balanced();
    }
    assert!(steps[0] == 30 && steps[1] < 20, "{steps:?}");
}

/// One row of a random batch.
#[derive(Clone, Debug)]
struct Wish {
    prompt: Vec<TokenId>,
    max_tokens: usize,
    end: Option<TokenId>,
    sampling: Sampling,
    encoded: bool,
    rules: Vec<Rule>,
    echo: bool,
}

impl Wish {
    fn request(&self, fill: bool) -> Request {
        let echo = self.echo.then(|| Arc::new([3, 5].into()));
        let fill = fill.then(|| Fill { rules: self.rules.clone().into(), echo });
        Request {
            end_tokens: self.end.into_iter().collect(),
            sampling: self.sampling.clone(),
            state: self.encoded.then(encoded),
            fill,
            ..request(&self.prompt, self.max_tokens)
        }
    }

    fn alone(&self, fill: bool) -> Answer {
        let mut rig = Rig::new(Config { states: vec![encoded()], drafting: Drafting::OFF, ..config() });
        let mut subscription = rig.submit(self.request(fill));
        rig.finish();
        read(&mut subscription)
    }

    /// The answer as it is stated, of a greedy row without an end and penalties.
    fn naive(&self) -> Vec<TokenId> {
        let mut tokens = self.prompt.clone();
        let most = (self.prompt.len() + self.max_tokens).min(CONTEXT);
        while tokens.len() < most {
            tokens.push(next_token(&tokens));
            let fitting = self.rules.iter().rev().filter(|rule| tokens.ends_with(&rule.trigger));
            if let Some(rule) = fitting.max_by_key(|rule| rule.trigger.len()) {
                let span = &rule.emit[..rule.emit.len().min(most - tokens.len())];
                tokens.extend(span.iter().filter(|_| span.len() > 1));
            }
        }
        tokens.split_off(self.prompt.len())
    }

    fn is_plain(&self) -> bool {
        self.sampling.temperature == 0.0 && self.sampling.presence.amount == 0.0 && self.end.is_none()
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
    // So many rules that most answers meet some.
    let rule = (0_u32..30, prop::collection::vec(0_u32..30, 1..9));
    let rules = prop::collection::vec(rule.prop_map(|(last, emit)| rule_of(last, emit)), 0..12);
    let end = prop_oneof![2 => Just(None), 1 => (0_u32..30).prop_map(Some)];
    let prompt = prop::collection::vec(0_u32..6, 1..12);
    (prompt, 1_usize..20, end, sampling, any::<(bool, bool)>(), rules).prop_map(
        |(prompt, max_tokens, end, sampling, (encoded, echo), rules)| Wish {
            prompt,
            max_tokens,
            end,
            sampling,
            encoded,
            rules,
            echo,
        },
    )
}

fn rule_of(last: TokenId, emit: Vec<TokenId>) -> Rule {
    rule(&[last], &emit)
}

proptest! {
    /// Rows that are filled in, that copy, and that do neither, in any company, cut and paced in any way, on devices that read
    /// first and on those that defer.
    #[test]
    fn company_changes_no_answer(
        wishes in prop::collection::vec((wish(), any::<bool>()), 1..8),
        (deferred, past, adaptive, alternating) in any::<(bool, bool, bool, bool)>(),
        (tokens, step_tokens, prompt_chunk) in (1_usize..9, 1_usize..24, 1_usize..12),
        kept in 0_usize..600,
    ) {
        let draft = if past { Draft::Past(Runs::default()) } else { Draft::Off };
        let drafting = Drafting { draft, grammars: true, tokens, adaptive };
        let prefix = PrefixLimits { bytes: kept, shortest: 2, boundary: 3 };
        let mixing = if alternating { Mixing::Alternating } else { config().mixing };
        let all = Config { drafting, states: vec![encoded()], step_tokens, prompt_chunk, prefix, mixing, ..config() };
        let mut rig = rig_on(deferred, all);
        let mut together: Vec<_> = wishes.iter().map(|(wish, fill)| rig.submit(wish.request(*fill))).collect();
        rig.finish();
        for ((wish, fill), subscription) in wishes.iter().zip(&mut together) {
            // What proposes leaves nothing to be filled in.
            let strict = *fill && !past && !wish.echo;
            let (alone, answer) = (wish.alone(strict), read(subscription));
            prop_assert_eq!((&answer.tokens, &answer.text), (&alone.tokens, &alone.text));
            prop_assert_eq!(answer.outcome(), alone.outcome());
            let Usage { cached_tokens, drafted_tokens, accepted_tokens, .. } = answer.usage();
            prop_assert_eq!(answer.usage(), Usage { cached_tokens, drafted_tokens, accepted_tokens, ..alone.usage() });
            prop_assert!(!(strict && wish.is_plain()) || answer.tokens == wish.naive());
        }
        rig.assert_balanced();
    }
}
