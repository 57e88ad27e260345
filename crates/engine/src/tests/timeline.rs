//! Scripted arrivals, rendered as the steps that they cause: `slot@position+tokens`, `*` where a token is sampled.

use super::{
    rig::{Rig, config, read, request},
    session::{TOKEN_BYTES, continuation},
};
use crate::{
    command::{Command, Waiter},
    config::{Config, Gap, Mixing},
    executor::Course,
};
use insta::assert_snapshot;
use std::sync::{Arc, mpsc};
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    request::{Outcome, Request},
    text::TokenId,
};

fn prompt(length: usize, first: TokenId) -> Vec<TokenId> {
    (0..length as u32).map(|index| (first + index) % 30).collect()
}

fn small() -> Config {
    Config { step_tokens: 8, prompt_chunk: 4, ..config() }
}

#[test]
fn one_request_alone() {
    let mut rig = Rig::new(small());
    let mut subscription = rig.submit(request(&prompt(6, 1), 3));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+2*
    0@6+1*
    0@7+1*
    ");
    let answer = read(&mut subscription);
    assert_eq!(answer.tokens, continuation(&prompt(6, 1), 3));
    assert_eq!((answer.progress, answer.ends.len()), (vec![(6, 6)], 1));
    rig.assert_balanced();
}

#[test]
fn a_late_prompt_shares_steps_with_a_decoding_row() {
    let mut rig = Rig::new(small());
    let first = rig.submit(request(&prompt(2, 1), 5));
    rig.turn();
    let second = rig.submit(request(&prompt(10, 3), 2));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2*
    0@2+1* 1@0+4
    0@3+1* 1@4+4
    0@4+1* 1@8+2*
    0@5+1* 1@10+1*
    ");
    drop((first, second));
}

#[test]
fn several_prompts_share_a_step_the_oldest_first() {
    let mut rig = Rig::new(small());
    let all: Vec<_> = [9, 3, 5].map(|length| rig.submit(request(&prompt(length, 2), 1))).into();
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4 1@0+3* 2@0+1
    0@4+4 2@1+4*
    0@8+1*
    ");
    drop(all);
}

#[test]
fn a_row_that_ends_gives_its_slot_to_the_next_in_order() {
    let mut rig = Rig::new(Config { max_rows: 2, ..small() });
    let all: Vec<_> = [1, 3, 2, 1].map(|tokens| rig.submit(request(&[5, 6], tokens))).into();
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2* 1@0+2*
    1@2+1* 0@0+2*
    1@3+1* 0@2+1*
    0@0+2*
    ");
    assert_eq!(rig.metrics().outcomes.length, 4);
    rig.assert_balanced();
    drop(all);
}

#[test]
fn the_head_of_the_queue_waits_for_bytes_and_nobody_passes_it() {
    let budget = Some(12 * TOKEN_BYTES);
    let mut rig = Rig::new(Config { cache_bytes: budget, ..small() });
    // Of 6, 10 and 3 tokens in full: the second waits for the first, the third for the second.
    let mut all = [request(&[1, 2, 3], 3), request(&[1, 2, 3, 4, 5, 6], 4), request(&[1, 2], 1)]
        .map(|request| rig.submit(request));
    rig.turn();
    assert_eq!((rig.metrics().queued, rig.metrics().cache_bytes), (2, 6 * TOKEN_BYTES));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    0@3+1*
    0@4+1*
    0@0+4
    0@4+2*
    0@6+1*
    0@7+1*
    0@8+1*
    0@0+2*
    ");
    for subscription in &mut all {
        assert_eq!(read(subscription).outcome(), &Outcome::Length);
    }
    rig.assert_balanced();
}

#[test]
fn what_can_never_fit_fails_at_once_and_blocks_nobody() {
    let mut rig = Rig::new(Config { cache_bytes: Some(5 * TOKEN_BYTES), ..small() });
    let mut large = rig.submit(request(&[1, 2, 3], 3));
    let mut fitting = rig.submit(request(&[1, 2, 3], 2));
    rig.finish();
    assert_snapshot!(read(&mut large).failure(), @"the request's cache may take 60 bytes, a shorter prompt or a lower max_tokens takes less, the device's budget is: 50");
    assert_eq!(read(&mut fitting).outcome(), &Outcome::Length);
    rig.assert_balanced();
}

/// A pool of ten tokens: what finds no place in it waits, and what never will is refused; nobody else notices.
#[test]
fn what_cannot_be_kept_together_waits() {
    let mut rig = Rig::new(small());
    rig.control.script().pool = Some(10);
    let mut all = [request(&[1, 2, 3], 3), request(&[1, 2, 3, 4, 5, 6], 5), request(&[1, 2, 3], 4)]
        .map(|request| rig.submit(request));
    rig.turn();
    assert_eq!((rig.metrics().queued, rig.metrics().cache_bytes), (1, 6 * TOKEN_BYTES));
    rig.finish();
    let [first, never, last] = &mut all;
    assert_eq!(read(first).outcome(), &Outcome::Length);
    assert_snapshot!(read(never).failure(), @"the request is longer than all that can be cached, a shorter prompt or a lower max_tokens takes less");
    assert_eq!(read(last).outcome(), &Outcome::Length);
    rig.assert_balanced();
}

#[test]
fn a_projection_ends_at_the_context() {
    let mut rig = Rig::new(Config { cache_bytes: Some(64 * TOKEN_BYTES), ..small() });
    let mut endless = rig.submit(request(&[1, 2], usize::MAX));
    rig.finish();
    let answer = read(&mut endless);
    assert_eq!((answer.outcome(), answer.tokens.len()), (&Outcome::Length, 62));
    rig.assert_balanced();
}

#[test]
fn cancels_in_the_queue_in_a_prompt_and_while_decoding() {
    let mut rig = Rig::new(Config { max_rows: 2, ..small() });
    let mut decoding = rig.submit(request(&[1, 2], 9));
    let mut preparing = rig.submit(request(&prompt(20, 4), 9));
    let mut queued = rig.submit(request(&[3], 1));
    let mut last = rig.submit(request(&[4], 2));
    rig.turn();
    rig.turn();
    rig.send(Command::Cancel(queued.id()));
    rig.turn();
    rig.send(Command::Cancel(preparing.id()));
    rig.turn();
    rig.send(Command::Cancel(decoding.id()));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2* 1@0+4
    0@2+1* 1@4+4
    0@3+1* 1@8+4
    0@4+1* 1@0+1*
    1@1+1*
    ");
    for subscription in [&mut queued, &mut preparing, &mut decoding] {
        assert_eq!(read(subscription).outcome(), &Outcome::Cancelled);
    }
    assert_eq!(read(&mut last).outcome(), &Outcome::Length);
    assert_eq!(rig.metrics().outcomes.cancelled, 3);
    rig.assert_balanced();
}

fn encoded(start: usize) -> StatePolicy {
    StatePolicy::Encoded { codes: Codes::Uniform(Code::Turbo { keys: 8, values: 3 }), start }
}

#[test]
fn rows_that_are_kept_in_different_ways_take_turns() {
    let mut rig = Rig::new(Config { states: vec![encoded(4)], ..small() });
    let plain = [1, 5].map(|first| rig.submit(request(&prompt(3, first), 4)));
    let mut other = rig.submit(Request { state: Some(encoded(4)), ..request(&prompt(6, 9), 2) });
    rig.finish();
    // The two rows take two steps of three; the precision of the third changes at four.
    assert_snapshot!(rig.steps(), @r"
    0@0+3* 1@0+3*
    2@0+4
    0@3+1* 1@3+1*
    0@4+1* 1@4+1*
    2@4+2*
    0@5+1* 1@5+1*
    2@6+1*
    ");
    assert_eq!(read(&mut other).tokens, continuation(&prompt(6, 9), 2));
    rig.assert_balanced();
    drop(plain);
}

#[test]
fn prompts_and_answers_alternate_where_that_is_asked_for() {
    let mut rig = Rig::new(Config { mixing: Mixing::Alternating, ..small() });
    let first = rig.submit(request(&prompt(2, 1), 4));
    rig.turn();
    let second = rig.submit(request(&prompt(9, 3), 2));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2*
    1@0+4
    0@2+1*
    1@4+4
    0@3+1* 1@8+1*
    0@4+1* 1@9+1*
    ");
    drop((first, second));
}

/// Every token of a step takes a millisecond, so that a row that decodes alone lets four pass for three tokens of a prompt.
#[test]
fn a_prompt_leaves_decoding_rows_their_gap() {
    let mixing = Mixing::Packed(Gap::Times(4.0));
    let mut rig = Rig::new(Config { mixing, step_tokens: 64, prompt_chunk: 64, ..config() });
    let (clock, control) = (rig.clock.clone(), Arc::clone(&rig.control));
    control.script().cost = Some(Box::new(move |tokens| clock.pass_millis(tokens as u64)));
    let first = rig.submit(request(&prompt(1, 1), 12));
    rig.turn();
    rig.turn();
    let second = rig.submit(request(&prompt(20, 3), 1));
    rig.finish();
    // As long as nothing is known of prompts, one begins with four tokens.
    assert_snapshot!(rig.steps(), @r"
    0@0+1*
    0@1+1*
    0@2+1* 1@0+4
    0@3+1* 1@4+3
    0@4+1* 1@7+3
    0@5+1* 1@10+3
    0@6+1* 1@13+3
    0@7+1* 1@16+3
    0@8+1* 1@19+1*
    0@9+1*
    0@10+1*
    0@11+1*
    ");
    drop((first, second));
}

#[test]
fn who_waits_for_the_device_gets_it_between_rows() {
    let mut rig = Rig::new(small());
    let mut running = rig.submit(request(&[1, 2], 3));
    rig.turn();
    let waiters = [50, 51].map(|number| {
        let (granted, wait) = mpsc::channel();
        rig.send(Command::Hold(Waiter { number, granted }));
        wait
    });
    let mut queued = rig.submit(request(&[3, 4], 1));
    rig.turn();
    assert_eq!(waiters[0].try_recv(), Err(mpsc::TryRecvError::Empty));
    rig.finish();
    // The first has it, the second and the request wait.
    assert_eq!((waiters[0].try_recv(), waiters[1].try_recv()), (Ok(()), Err(mpsc::TryRecvError::Empty)));
    assert_eq!(rig.metrics().queued, 1);
    rig.send(Command::Release(50));
    rig.finish();
    assert_eq!(waiters[1].try_recv(), Ok(()));
    rig.send(Command::Release(51));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2*
    0@2+1*
    0@3+1*
    0@0+2*
    ");
    for subscription in [&mut running, &mut queued] {
        assert_eq!(read(subscription).outcome(), &Outcome::Length);
    }
    rig.assert_balanced();
}

#[test]
fn who_has_given_up_waiting_holds_nobody() {
    let mut rig = Rig::new(small());
    let (granted, wait) = mpsc::channel();
    rig.send(Command::Hold(Waiter { number: 9, granted }));
    drop(wait);
    let mut subscription = rig.submit(request(&[1, 2], 1));
    rig.turn();
    rig.finish();
    assert_eq!(read(&mut subscription).outcome(), &Outcome::Length);
}

#[test]
fn a_drain_finishes_rows_and_starts_nothing() {
    let mut rig = Rig::new(Config { max_rows: 1, ..small() });
    let mut running = rig.submit(request(&[1, 2], 3));
    let mut queued = rig.submit(request(&[1, 2], 3));
    rig.turn();
    let (reply, drained) = mpsc::channel();
    rig.send(Command::Drain(reply));
    let mut late = rig.submit(request(&[1, 2], 3));
    rig.turn();
    assert_eq!(drained.try_recv(), Err(mpsc::TryRecvError::Empty));
    rig.finish();
    assert_eq!(drained.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert_snapshot!(rig.steps(), @r"
    0@0+2*
    0@2+1*
    0@3+1*
    ");
    assert_eq!(read(&mut running).outcome(), &Outcome::Length);
    let message = "the engine is shutting down, the request had not started";
    assert_eq!(read(&mut queued).failure(), message);
    assert_eq!(read(&mut late).failure(), "the engine is shutting down");
    rig.assert_balanced();
}

#[test]
fn a_shutdown_ends_rows_and_queue_between_two_steps() {
    let mut rig = Rig::new(Config { max_rows: 1, ..small() });
    let mut all = [request(&[1, 2], 3), request(&[1, 2], 3)].map(|request| rig.submit(request));
    rig.turn();
    rig.send(Command::Shutdown);
    // Whatever still comes does not bring it back.
    let (reply, drained) = mpsc::channel();
    rig.send(Command::Drain(reply));
    rig.turn();
    assert_eq!(rig.executor.course(), Course::Stopped);
    assert_eq!(drained.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert_snapshot!(rig.steps(), @"0@0+2*");
    for subscription in &mut all {
        assert!(read(subscription).failure().starts_with("the engine is shutting down"));
    }
    rig.assert_balanced();
}
