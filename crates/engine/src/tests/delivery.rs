//! What consumers see: the order of ends, counts, texts, and readers that are slow or gone.

use super::{
    rig::{Answer, Numbers, Rig, config, read, request},
    session::{CONTEXT, continuation},
};
use crate::{command::Command, config::Config};
use std::collections::BTreeSet;
use tandem_contracts::{
    request::{Event, Outcome, Request, Scoring, Usage},
    sampling::{Penalty, Sampling},
    text::TokenId,
};

const PROMPT: [TokenId; 3] = [7, 8, 9];

/// The greedy answer, of which these tests need the first tokens to be different.
fn answer() -> Vec<TokenId> {
    let tokens = continuation(&PROMPT, 6);
    let distinct: BTreeSet<_> = tokens[..4].iter().collect();
    assert_eq!(distinct.len(), 4, "{tokens:?}");
    tokens
}

fn run(request: Request) -> Answer {
    let mut rig = Rig::new(config());
    let mut subscription = rig.submit(request);
    rig.finish();
    rig.assert_balanced();
    read(&mut subscription)
}

fn text(tokens: &[TokenId]) -> String {
    tokens.iter().map(TokenId::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_end_token_is_counted_and_not_delivered() {
    let tokens = answer();
    let seen = run(Request { end_tokens: vec![30, tokens[2]], ..request(&PROMPT, 6) });
    assert_eq!((seen.outcome(), &seen.tokens[..]), (&Outcome::End, &tokens[..2]));
    assert_eq!(seen.usage(), Usage { prompt_tokens: 3, completion_tokens: 3, ..Usage::default() });
    // The matcher's held space came with the end.
    assert_eq!(seen.text, text(&tokens[..2]) + " ");
}

#[test]
fn an_end_token_may_be_ignored() {
    let tokens = answer();
    let request = Request { end_tokens: vec![tokens[2]], ignore_end: true, ..request(&PROMPT, 6) };
    assert_eq!(run(request).tokens, tokens);
}

#[test]
fn a_stop_string_ends_the_row_without_the_held_text() {
    let tokens = answer();
    let matcher = Numbers { stop: Some(tokens[1]), ..Numbers::default() };
    let seen = run(Request { text: Box::new(matcher), ..request(&PROMPT, 6) });
    assert_eq!((seen.outcome(), &seen.tokens[..]), (&Outcome::Stop(3), &tokens[..2]));
    assert_eq!((seen.text, seen.ends[0].1.completion_tokens), (text(&tokens[..1]), 2));
    // Also where it is the first thing that is said.
    let matcher = Numbers { stop: Some(tokens[0]), ..Numbers::default() };
    let seen = run(Request { text: Box::new(matcher), ..request(&PROMPT, 6) });
    assert_eq!((seen.outcome(), &seen.tokens[..], &*seen.text), (&Outcome::Stop(3), &tokens[..1], ""));
}

#[test]
fn the_end_of_the_text_may_complete_a_stop_string() {
    let matcher = || Box::new(Numbers { ends_with: Some(2), ..Numbers::default() });
    let seen = run(Request { text: matcher(), ..request(&PROMPT, 2) });
    assert_eq!((seen.outcome(), &seen.text), (&Outcome::Stop(2), &(text(&answer()[..2]) + " ")));
    let ending = Request { end_tokens: vec![answer()[1]], text: matcher(), ..request(&PROMPT, 9) };
    assert_eq!(run(ending).outcome(), &Outcome::Stop(2));
}

#[test]
fn of_several_ends_at_one_token_the_first_in_order_counts() {
    let tokens = answer();
    let stop = || Box::new(Numbers { stop: Some(tokens[1]), ..Numbers::default() });
    let all = Request { end_tokens: vec![tokens[1]], text: stop(), ..request(&PROMPT, 2) };
    assert_eq!(run(all).outcome(), &Outcome::End);
    let stop_and_length = Request { text: stop(), ..request(&PROMPT, 2) };
    assert_eq!(run(stop_and_length).outcome(), &Outcome::Stop(3));
    assert_eq!(run(request(&PROMPT, 2)).outcome(), &Outcome::Length);
}

#[test]
fn prompt_and_answer_fill_the_context_exactly() {
    let prompt: Vec<TokenId> = (0..CONTEXT as u32 - 4).map(|index| index % 29).collect();
    let seen = run(request(&prompt, 1_000));
    assert_eq!((seen.outcome(), &seen.tokens), (&Outcome::Length, &continuation(&prompt, 4)));
    let seen = run(request(&prompt, 4));
    assert_eq!(seen.tokens.len(), 4);
}

#[test]
fn penalties_look_at_the_prompt_and_the_answer() {
    // Whatever has been said can be said no more.
    let presence = Penalty { amount: 100.0, context: 0 };
    let sampling = Sampling { presence, ..Sampling::greedy() };
    let seen = run(Request { sampling, ..request(&PROMPT, 25) });
    let mut all: Vec<TokenId> = [&PROMPT, &seen.tokens[..]].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), seen.tokens.len()), (28, 25));
}

#[test]
fn scores_come_with_their_tokens_and_only_where_they_are_asked_for() {
    let plain = run(request(&PROMPT, 6));
    assert_eq!(plain.scores, []);
    let scored = run(Request { scoring: Scoring { answer: Some(2), prompt: None }, ..request(&PROMPT, 6) });
    assert_eq!((&scored.tokens, &scored.text), (&plain.tokens, &plain.text));
    assert_eq!(scored.scores.len(), 6);
    for (score, &token) in scored.scores.iter().zip(&scored.tokens) {
        // A greedy token is the best one; the two paddings of the head, which would beat it, are no tokens.
        assert_eq!((score.top[0], score.top.len()), ((token, score.log_probability), 2));
        assert!(score.top[1].1 < score.log_probability && score.log_probability < 0.0);
    }
}

#[test]
fn a_scored_prompt_has_a_score_for_each_token_but_its_first_in_whatever_chunks() {
    let prompt = [&PROMPT, &answer()[..]].concat();
    let scoring = Scoring { answer: None, prompt: Some(1) };
    let whole = run(Request { scoring, max_tokens: 0, ..request(&prompt, 1) });
    assert_eq!(
        (whole.outcome(), &whole.tokens[..], whole.prompt_scores.len()),
        (&Outcome::Length, &[][..], 8)
    );
    assert_eq!(whole.usage(), Usage { prompt_tokens: 9, completion_tokens: 0, ..Usage::default() });
    for (index, score) in whole.prompt_scores.iter().enumerate() {
        // From its fourth token on, the prompt is the greedy continuation of the three before.
        let (likely, log_probability) = score.top[0];
        assert_eq!(likely, continuation(&prompt[..=index], 1)[0]);
        assert_eq!(likely == prompt[index + 1], score.log_probability == log_probability);
        assert!(index < 2 || likely == prompt[index + 1]);
    }
    let mut rig = Rig::new(Config { prompt_chunk: 2, ..config() });
    let biased = Sampling { logit_bias: vec![(3, 50.0)], ..Sampling::default() };
    let mut subscription = rig.submit(Request { scoring, sampling: biased, ..request(&prompt, 2) });
    rig.finish();
    let cut = read(&mut subscription);
    // What is done to the answer's logits is not done to the prompt's.
    assert_eq!((cut.prompt_scores, &cut.tokens[..]), (whole.prompt_scores, &[3, 3][..]));
    assert_eq!(rig.steps(), "0@0+2**\n0@2+2**\n0@4+2**\n0@6+2**\n0@8+1**\n0@9+1*");
}

#[test]
fn a_cancel_during_the_step_comes_before_its_token() {
    let mut rig = Rig::new(config());
    let mut subscription = rig.submit(request(&PROMPT, 6));
    let (id, commands) = (subscription.id(), rig.commands.clone());
    rig.control.script().hook = Some(Box::new(move |step| {
        if step == 3 {
            commands.send(Command::Cancel(id)).expect("the inbox lives");
        }
    }));
    rig.finish();
    let seen = read(&mut subscription);
    assert_eq!((seen.outcome(), &seen.tokens[..]), (&Outcome::Cancelled, &answer()[..2]));
    // The third token was sampled and paid for.
    assert_eq!(seen.usage().completion_tokens, 3);
    rig.assert_balanced();
}

#[test]
fn a_closed_consumer_frees_its_row_within_a_step_and_touches_nobody() {
    let mut rig = Rig::new(config());
    let leaving = rig.submit(request(&[1, 2, 3, 4], 20));
    let mut staying = rig.submit(request(&PROMPT, 6));
    rig.turn();
    drop(leaving);
    rig.turn();
    assert_eq!(rig.metrics().active, 1);
    rig.finish();
    assert_eq!(read(&mut staying).tokens, answer());
    assert_eq!(rig.metrics().outcomes.cancelled, 1);
    rig.assert_balanced();
}

#[test]
fn a_consumer_that_leaves_before_its_turn_is_never_run() {
    let mut rig = Rig::new(config());
    drop(rig.submit(request(&PROMPT, 6)));
    rig.finish();
    assert_eq!((rig.steps(), rig.metrics().outcomes.cancelled), (String::new(), 1));
    rig.assert_balanced();
}

#[test]
fn a_silent_reader_is_cancelled_after_the_timeout_and_nobody_waits_for_it() {
    let mut rig = Rig::new(config());
    let mut silent = rig.submit(request(&[1, 2, 3, 4], 50));
    let mut reading = rig.submit(request(&[4, 3, 2, 1], 50));
    let mut seen = Answer::default();
    for turn in 0..=30 {
        rig.turn();
        seen.read(&mut reading);
        assert_eq!(rig.metrics().active, if turn < 30 { 2 } else { 1 }, "turn {turn}");
        rig.clock.pass(1);
    }
    rig.finish();
    seen.read(&mut reading);
    assert_eq!((seen.outcome(), seen.tokens.len()), (&Outcome::Length, 50));
    // What waited is one event of each kind: the deltas were merged.
    let events: Vec<Event> = std::iter::from_fn(|| silent.recv()).collect();
    assert!(
        matches!(
            events.as_slice(),
            [
                Event::Progress { done: 4, total: 4 },
                Event::Delta { tokens, .. },
                Event::Finished { outcome: Outcome::Cancelled, .. },
            ] if tokens.len() == 31
        ),
        "{events:?}"
    );
    rig.assert_balanced();
}

#[test]
fn progress_is_told_chunk_by_chunk_to_one_who_reads() {
    let mut rig = Rig::new(Config { prompt_chunk: 4, ..config() });
    let prompt: Vec<TokenId> = (0..10).collect();
    let mut subscription = rig.submit(request(&prompt, 1));
    let mut seen = Answer::default();
    while seen.ends.is_empty() {
        rig.turn();
        seen.read(&mut subscription);
    }
    assert_eq!(seen.progress, [(4, 10), (8, 10), (10, 10)]);
    assert_eq!(seen.usage(), Usage { prompt_tokens: 10, completion_tokens: 1, ..Usage::default() });
}

#[test]
fn a_request_cancelled_in_its_prompt_counts_what_was_processed() {
    let mut rig = Rig::new(Config { prompt_chunk: 4, ..config() });
    let mut subscription = rig.submit(request(&[1; 10], 1));
    rig.turn();
    rig.send(Command::Cancel(subscription.id()));
    rig.finish();
    let usage = Usage { prompt_tokens: 4, completion_tokens: 0, ..Usage::default() };
    assert_eq!(read(&mut subscription).usage(), usage);
}

#[test]
fn every_iteration_is_one_evaluation() {
    let mut rig = Rig::new(Config { prompt_chunk: 2, ..config() });
    let mut sampled = request(&[1, 2, 3, 4, 5], 6);
    sampled.sampling.temperature = 1.0;
    let both = (rig.submit(request(&PROMPT, 6)), rig.submit(sampled));
    rig.finish();
    let (metrics, counts) = (rig.metrics(), rig.fake.counts());
    assert_eq!((counts.evaluations, counts.hidden_evaluations), (metrics.steps, 0));
    assert_eq!((metrics.prompt_tokens, metrics.completion_tokens), (8, 12));
    drop(both);
}
