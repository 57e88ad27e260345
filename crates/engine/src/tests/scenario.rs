//! More scripted arrivals: joins and leaves in other orders, pressure from both sides, groups, budgets, holds.

use super::{
    rig::{Rig, config, read, request},
    session::{TOKEN_BYTES, Trouble, continuation},
};
use crate::{
    command::{Command, Waiter},
    config::{Config, Gap, Mixing},
    subscription::Subscription,
};
use insta::assert_snapshot;
use std::sync::mpsc;
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    request::{Outcome, Request},
    tensor::ErrorKind,
    text::TokenId,
};

fn prompt(length: usize, first: TokenId) -> Vec<TokenId> {
    (0..length as u32).map(|index| (first + index) % 30).collect()
}

fn small() -> Config {
    Config { step_tokens: 8, prompt_chunk: 4, ..config() }
}

fn encoded() -> StatePolicy {
    StatePolicy::Encoded { codes: Codes::Uniform(Code::Turbo { keys: 8, values: 3 }), start: 0 }
}

fn length(subscription: &mut Subscription) {
    assert_eq!(read(subscription).outcome(), &Outcome::Length);
}

#[test]
fn three_rows_leave_in_the_order_opposite_to_their_coming() {
    let mut rig = Rig::new(small());
    let mut all = [4, 3, 2].map(|tokens| rig.submit(request(&prompt(2, 1), tokens)));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2* 1@0+2* 2@0+2*
    0@2+1* 1@2+1* 2@2+1*
    0@3+1* 1@3+1*
    0@4+1*
    ");
    all.iter_mut().for_each(length);
    rig.assert_balanced();
}

#[test]
fn a_row_joins_in_the_step_in_which_another_leaves() {
    let mut rig = Rig::new(Config { max_rows: 2, ..small() });
    let mut all =
        [(2, 2), (3, 4), (6, 2), (1, 1)].map(|(size, tokens)| rig.submit(request(&prompt(size, 2), tokens)));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2* 1@0+3*
    0@2+1* 1@3+1*
    1@4+1* 0@0+4
    1@5+1* 0@4+2*
    0@6+1* 1@0+1*
    ");
    all.iter_mut().for_each(length);
    rig.assert_balanced();
}

#[test]
fn a_long_prompt_is_not_starved_by_a_stream_of_short_ones() {
    let mixing = Mixing::Packed(Gap::Times(1.0));
    let mut rig = Rig::new(Config { max_rows: 3, mixing, ..small() });
    let mut long = rig.submit(request(&prompt(9, 1), 1));
    let mut short: Vec<_> = (0..8).map(|first| rig.submit(request(&prompt(1, first), 2))).collect();
    rig.finish();
    // Under a target that leaves no room a prompt still moves by a token in every step.
    assert_snapshot!(rig.steps(), @r"
    0@0+1 1@0+1* 2@0+1*
    0@1+1 1@1+1* 2@1+1*
    0@2+1 1@0+1* 2@0+1*
    0@3+1 1@1+1* 2@1+1*
    0@4+1 1@0+1* 2@0+1*
    0@5+1 1@1+1* 2@1+1*
    0@6+1 1@0+1* 2@0+1*
    0@7+1 1@1+1* 2@1+1*
    0@8+1*
    ");
    short.iter_mut().chain([&mut long]).for_each(length);
    rig.assert_balanced();
}

#[test]
fn decoding_rows_are_not_starved_by_a_stream_of_prompts() {
    let mut rig = Rig::new(Config { max_rows: 2, ..small() });
    let mut decoding = rig.submit(request(&[1], 6));
    let mut prompts: Vec<_> = (0..3).map(|first| rig.submit(request(&prompt(9, first), 1))).collect();
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+1* 1@0+4
    0@1+1* 1@4+4
    0@2+1* 1@8+1*
    0@3+1* 1@0+4
    0@4+1* 1@4+4
    0@5+1* 1@8+1*
    0@0+4
    0@4+4
    0@8+1*
    ");
    assert_eq!(read(&mut decoding).tokens, continuation(&[1], 6));
    prompts.iter_mut().for_each(length);
}

#[test]
fn a_budget_that_holds_one_row_runs_them_one_after_another() {
    let mut rig = Rig::new(Config { cache_bytes: Some(6 * TOKEN_BYTES), ..small() });
    let mut all =
        [(4, 2), (3, 3), (5, 1)].map(|(size, tokens)| rig.submit(request(&prompt(size, 1), tokens)));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4*
    0@4+1*
    0@0+3*
    0@3+1*
    0@4+1*
    0@0+4
    0@4+1*
    ");
    all.iter_mut().for_each(length);
    rig.assert_balanced();
}

#[test]
fn what_a_cancelled_head_of_the_queue_waited_for_goes_to_the_next() {
    let mut rig = Rig::new(Config { cache_bytes: Some(10 * TOKEN_BYTES), ..small() });
    let mut running = rig.submit(request(&prompt(4, 1), 3));
    let mut head = rig.submit(request(&prompt(6, 1), 3));
    let mut next = rig.submit(request(&prompt(2, 1), 1));
    rig.turn();
    rig.send(Command::Cancel(head.id()));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4*
    0@4+1* 1@0+2*
    0@5+1*
    ");
    assert_eq!(read(&mut head).outcome(), &Outcome::Cancelled);
    [&mut running, &mut next].into_iter().for_each(length);
    rig.assert_balanced();
}

#[test]
fn a_failed_step_of_one_group_leaves_the_other_alone() {
    let mut rig = Rig::new(Config { states: vec![encoded()], ..small() });
    let mut plain = rig.submit(request(&prompt(3, 1), 3));
    let mut other = rig.submit(Request { state: Some(encoded()), ..request(&prompt(3, 7), 3) });
    rig.control.script().at_step.insert(2, Trouble::Error(ErrorKind::Device));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    1@0+3*
    0@3+1*
    0@4+1*
    ");
    assert_eq!(read(&mut plain).tokens, continuation(&prompt(3, 1), 3));
    assert!(matches!(read(&mut other).outcome(), Outcome::Failed(_)));
    rig.assert_balanced();
}

#[test]
fn a_lone_row_of_one_group_gets_its_share_beside_many_of_another() {
    let mut rig = Rig::new(Config { states: vec![encoded()], ..small() });
    let mut many: Vec<_> = (0..4).map(|first| rig.submit(request(&prompt(1, first), 6))).collect();
    let mut lone = rig.submit(Request { state: Some(encoded()), ..request(&prompt(1, 9), 2) });
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+1* 1@0+1* 2@0+1* 3@0+1*
    0@1+1* 1@1+1* 2@1+1* 3@1+1*
    4@0+1*
    0@2+1* 1@2+1* 2@2+1* 3@2+1*
    0@3+1* 1@3+1* 2@3+1* 3@3+1*
    0@4+1* 1@4+1* 2@4+1* 3@4+1*
    0@5+1* 1@5+1* 2@5+1* 3@5+1*
    4@1+1*
    ");
    many.iter_mut().chain([&mut lone]).for_each(length);
    rig.assert_balanced();
}

#[test]
fn a_cancel_between_two_chunks_ends_a_prompt_and_frees_its_slot() {
    let mut rig = Rig::new(Config { max_rows: 1, ..small() });
    let mut long = rig.submit(request(&prompt(12, 1), 1));
    let mut next = rig.submit(request(&prompt(2, 1), 1));
    rig.turn();
    rig.turn();
    rig.send(Command::Cancel(long.id()));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+4
    0@0+2*
    ");
    assert_eq!(read(&mut long).outcome(), &Outcome::Cancelled);
    length(&mut next);
    rig.assert_balanced();
}

#[test]
fn a_consumer_that_leaves_frees_its_row_for_the_queue() {
    let mut rig = Rig::new(Config { max_rows: 1, ..small() });
    let leaving = rig.submit(request(&prompt(2, 1), 30));
    let mut next = rig.submit(request(&prompt(2, 5), 2));
    rig.turn();
    rig.turn();
    drop(leaving);
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+2*
    0@2+1*
    0@0+2*
    0@2+1*
    ");
    length(&mut next);
    rig.assert_balanced();
}

#[test]
fn a_hold_lets_a_prompt_finish_before_it_is_granted() {
    let mut rig = Rig::new(small());
    let mut preparing = rig.submit(request(&prompt(10, 1), 2));
    rig.turn();
    let (granted, wait) = mpsc::channel();
    rig.send(Command::Hold(Waiter { number: 1, granted }));
    let mut queued = rig.submit(request(&prompt(3, 1), 1));
    rig.finish();
    assert_eq!(wait.try_recv(), Ok(()));
    rig.send(Command::Release(1));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+4
    0@8+2*
    0@10+1*
    0@0+3*
    ");
    [&mut preparing, &mut queued].into_iter().for_each(length);
    rig.assert_balanced();
}

#[test]
fn alternation_serves_all_prompts_and_then_all_answers() {
    let mut rig = Rig::new(Config { mixing: Mixing::Alternating, ..small() });
    let mut all =
        [(1, 4), (5, 2), (7, 2)].map(|(size, tokens)| rig.submit(request(&prompt(size, 1), tokens)));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    1@0+4 2@0+4
    0@0+1* 1@4+1*
    2@4+3*
    0@1+1* 1@5+1* 2@7+1*
    0@2+1*
    0@3+1*
    ");
    all.iter_mut().for_each(length);
    rig.assert_balanced();
}
