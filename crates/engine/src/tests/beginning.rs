//! Rows that begin with what others have computed: stored states, live rows, boundaries.

use super::{
    rig::{Answer, Rig, config, read, request},
    session::{Control, TOKEN_BYTES, Trouble, continuation},
};
use crate::{
    command::Command,
    config::{Config, PrefixLimits},
    subscription::Subscription,
};
use insta::assert_snapshot;
use tandem_contracts::{execution::Execution, request::Outcome, tensor::ErrorKind, text::TokenId};

fn prompt(length: usize, first: TokenId) -> Vec<TokenId> {
    (0..length as u32).map(|index| (first + index) % 30).collect()
}

fn small() -> Config {
    let prefix = PrefixLimits { bytes: 10_000, shortest: 2, boundary: 6 };
    Config { step_tokens: 8, prompt_chunk: 4, prefix, ..config() }
}

fn rig(config: Config, trimmable: bool) -> Rig {
    let control = Control::default();
    control.script().trimmable = trimmable;
    Rig::over(config, control)
}

/// The answer that the prompt would have got alone, and how many of its tokens came from elsewhere.
fn hold(subscription: &mut Subscription, prompt: &[TokenId], count: usize, cached: usize) {
    let answer = read(subscription);
    assert_eq!(answer.tokens, continuation(prompt, count));
    let usage = answer.usage();
    assert_eq!(
        (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
        (prompt.len(), cached, count)
    );
}

/// Answers a prompt to its end.
fn ask(rig: &mut Rig, prompt: &[TokenId], count: usize) -> Answer {
    let mut subscription = rig.submit(request(prompt, count));
    rig.finish();
    read(&mut subscription)
}

#[test]
fn a_second_turn_begins_where_the_first_one_ended() {
    for trimmable in [false, true] {
        let mut rig = rig(small(), trimmable);
        let first = prompt(6, 1);
        let answer = ask(&mut rig, &first, 3);
        // The last token was sampled, and never computed.
        let second = [first.as_slice(), &answer.tokens, &[7, 8]].concat();
        let mut again = rig.submit(request(&second, 2));
        rig.finish();
        hold(&mut again, &second, 2, 8);
        let steps = if trimmable { "0@8+3*\n0@11+1*" } else { "0@8+2\n0@10+1*\n0@11+1*" };
        assert!(rig.steps().ends_with(steps), "{}", rig.steps());
        let metrics = rig.metrics();
        assert_eq!((metrics.cached_tokens, metrics.begun, metrics.reused), (8, 2, 1));
        assert_eq!(metrics.step_rows, metrics.steps);
        rig.assert_balanced();
    }
}

#[test]
fn a_row_without_a_prompt_cache_neither_takes_nor_gives() {
    for trimmable in [false, true] {
        let mut rig = rig(small(), trimmable);
        let same = prompt(8, 1);
        let alone = Execution { prompt_cache: false, ..rig.binding.resolve(&request(&same, 2), 0) };
        let apart = |rig: &mut Rig| rig.submit_as(request(&same, 2), alone.clone());
        // It leaves nothing, neither to what comes beside it nor to what comes later.
        let mut rows = [apart(&mut rig), rig.submit(request(&same, 2))];
        rig.finish();
        rows.iter_mut().for_each(|row| hold(row, &same, 2, 0));
        // Now there is something, and it takes nothing.
        let mut rows = [apart(&mut rig), rig.submit(request(&same, 2))];
        rig.finish();
        let [apart, shared] = &mut rows;
        hold(apart, &same, 2, 0);
        hold(shared, &same, 2, 7);
        rig.assert_balanced();
    }
}

#[test]
fn another_end_takes_the_common_beginning_where_rows_can_be_shortened() {
    let mut rig = rig(small(), true);
    ask(&mut rig, &prompt(10, 1), 4);
    let other = [&prompt(7, 1)[..], &[20, 21, 22]].concat();
    let mut other_end = rig.submit(request(&other, 2));
    // The same prompt once more: all but its last token.
    let mut same = rig.submit(request(&prompt(10, 1), 2));
    rig.finish();
    hold(&mut other_end, &other, 2, 7);
    hold(&mut same, &prompt(10, 1), 2, 9);
    rig.assert_balanced();
}

#[test]
fn rows_that_cannot_be_shortened_leave_a_state_at_their_prompts_end() {
    let mut rig = rig(small(), false);
    ask(&mut rig, &prompt(7, 1), 4);
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+2
    0@6+1*
    0@7+1*
    0@8+1*
    0@9+1*
    ");
    // One at the boundary, one at the end.
    assert_eq!((rig.metrics().stored_states, rig.metrics().stored_bytes), (2, (6 + 10) * TOKEN_BYTES));
    let other = [&prompt(7, 1)[..], &[20, 21]].concat();
    let mut subscription = rig.submit(request(&other, 2));
    rig.finish();
    hold(&mut subscription, &other, 2, 6);
    rig.assert_balanced();
}

#[test]
fn a_short_prompt_has_no_boundary() {
    let mut rig = rig(small(), false);
    ask(&mut rig, &prompt(5, 1), 1);
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+1*
    ");
}

#[test]
fn requests_that_come_together_compute_their_common_beginning_once() {
    for trimmable in [false, true] {
        let mut rig = rig(small(), trimmable);
        let prompts = [prompt(9, 1), [&prompt(6, 1)[..], &[25, 26]].concat(), prompt(9, 1)];
        let mut all = prompts.clone().map(|prompt| rig.submit(request(&prompt, 2)));
        rig.finish();
        let cached = [0, 6, 8];
        for ((subscription, prompt), cached) in all.iter_mut().zip(&prompts).zip(cached) {
            hold(subscription, prompt, 2, cached);
        }
        rig.assert_balanced();
    }
}

#[test]
fn what_waits_for_a_row_is_rendered_as_its_steps() {
    let mut rig = rig(small(), false);
    let prompts = [prompt(9, 1), [&prompt(6, 1)[..], &[25, 26]].concat()];
    let all = prompts.map(|prompt| rig.submit(request(&prompt, 2)));
    rig.finish();
    // The first row is cut at six tokens for the second, and at eight for its own boundary.
    assert_snapshot!(rig.steps(), @r"
    0@0+4
    0@4+2
    0@6+2 1@6+1
    0@8+1* 1@7+1*
    0@9+1* 1@8+1*
    ");
    drop(all);
}

#[test]
fn a_row_whose_older_one_leaves_goes_on_alone() {
    let mut rig = rig(small(), false);
    let mut older = rig.submit(request(&prompt(20, 1), 2));
    let mut waiting = rig.submit(request(&prompt(20, 1), 2));
    rig.turn();
    rig.send(Command::Cancel(older.id()));
    rig.finish();
    assert_eq!(read(&mut older).outcome(), &Outcome::Cancelled);
    // What the older one had computed was kept.
    hold(&mut waiting, &prompt(20, 1), 2, 4);
    rig.assert_balanced();
}

#[test]
fn a_failed_step_keeps_nothing_of_its_rows() {
    let mut rig = rig(small(), false);
    rig.control.script().at_step.insert(2, Trouble::Error(ErrorKind::Device));
    let mut failing = rig.submit(request(&prompt(9, 1), 2));
    rig.finish();
    assert!(matches!(read(&mut failing).outcome(), Outcome::Failed(_)));
    assert_eq!(rig.metrics().stored_states, 0);
    rig.assert_balanced();
}

#[test]
fn short_memory_drops_what_is_only_kept() {
    let mut rig = rig(small(), true);
    ask(&mut rig, &prompt(9, 1), 2);
    assert_eq!(rig.metrics().stored_states, 1);
    let next = rig.control.script().steps.len() + 1;
    rig.control.script().at_step.insert(next, Trouble::Error(ErrorKind::Memory));
    ask(&mut rig, &prompt(9, 5), 2);
    assert_eq!(rig.metrics().stored_states, 0);
}

#[test]
fn a_beginning_that_cannot_be_had_is_computed() {
    for trouble in [Trouble::Error(ErrorKind::Device), Trouble::Panic] {
        let mut rig = rig(small(), false);
        let prompts = [prompt(9, 1), prompt(9, 1)];
        // The first fork is for the second row, at the end of the first one's prompt.
        let mut all = prompts.clone().map(|prompt| rig.submit(request(&prompt, 2)));
        rig.control.script().at_fork = Some(trouble);
        rig.finish();
        for (subscription, prompt) in all.iter_mut().zip(&prompts) {
            assert_eq!(read(subscription).tokens, continuation(prompt, 2));
        }
        rig.assert_balanced();
    }
}

#[test]
fn kept_states_make_room_for_rows() {
    let budget = Some(20 * TOKEN_BYTES);
    let mut rig = rig(Config { cache_bytes: budget, ..small() }, true);
    ask(&mut rig, &prompt(9, 1), 2);
    ask(&mut rig, &prompt(5, 9), 2);
    assert_eq!((rig.metrics().stored_states, rig.metrics().stored_bytes), (2, 16 * TOKEN_BYTES));
    // Nine tokens beside sixteen are too many: the older state goes.
    let answer = ask(&mut rig, &prompt(6, 20), 3);
    assert_eq!(answer.outcome(), &Outcome::Length);
    assert_eq!((rig.metrics().stored_states, rig.metrics().stored_bytes), (2, 14 * TOKEN_BYTES));
}
