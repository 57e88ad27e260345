//! A smaller model that proposes: it is kept in step with rows, and costs no answer whatever it does.

use super::{
    rig::{Rig, config, read, request},
    session::{CONTEXT, Control, Scripted, Trouble, VOCABULARY, continuation},
};
use crate::{
    config::{Config, Draft, Drafting},
    drafter::Drafter,
    executor::Drafting as Providing,
};
use std::sync::Arc;
use tandem_contracts::{
    fake::Fake,
    model::Slot,
    tensor::{Device, ErrorKind},
    text::TokenId,
};
use tandem_spec::draft::{Ask, DraftProvider, Guess};

const PROMPT: [TokenId; 3] = [1, 2, 3];

/// A drafter over a model that goes on as [`continuation`] says, in chunks of so many tokens.
fn drafter(trimmable: bool, chunk: usize) -> (Drafter, Arc<Control>) {
    let control = Arc::new(Control::default());
    control.script().trimmable = trimmable;
    let device: Device = Fake::open();
    let session = Box::new(Scripted::new(&device, Arc::clone(&control)));
    (Drafter::new(device, session, VOCABULARY, chunk), control)
}

/// Whether every slot that was opened is closed.
fn is_balanced(control: &Control) -> bool {
    let script = control.script();
    script.opened == script.closed
}

fn guess(drafter: &mut Drafter, most: usize) -> Vec<TokenId> {
    drafter.propose(&[Ask { slot: Slot(0), most }]).remove(0).tokens
}

#[test]
fn proposals_follow_the_history_through_corrections() {
    for trimmable in [false, true] {
        let (mut drafter, control) = drafter(trimmable, 16);
        let mut history = PROMPT.to_vec();
        drafter.open(Slot(0), &history);
        for (most, taken) in [(4, 4), (4, 0), (3, 2), (1, 1), (5, 3)] {
            let expected = continuation(&history, most);
            assert_eq!(guess(&mut drafter, most), expected);
            // What was chosen: some of the proposals, and a token that was not proposed.
            let chosen = [&expected[..taken], &[(expected[taken.min(most - 1)] + 1) % 30]].concat();
            drafter.commit(Slot(0), &chosen);
            history.extend(chosen);
        }
        drafter.close(Slot(0));
        assert!(is_balanced(&control));
    }
}

#[test]
fn a_long_prompt_is_read_over_several_turns() {
    let (mut drafter, control) = drafter(true, 4);
    let prompt: Vec<TokenId> = (0..10).collect();
    drafter.open(Slot(0), &prompt);
    assert!(guess(&mut drafter, 2).is_empty() && guess(&mut drafter, 2).is_empty());
    assert_eq!(guess(&mut drafter, 2), continuation(&prompt, 2));
    assert_eq!(control.script().steps, ["0@0+4", "0@4+4", "0@8+2*", "0@10+1*"]);
    // Nor does it go beyond its context.
    let long: Vec<TokenId> = (0..CONTEXT as TokenId - 1).map(|token| token % 30).collect();
    drafter.open(Slot(0), &long);
    assert!(guess(&mut drafter, 2).is_empty());
    assert!(drafter.propose(&[Ask { slot: Slot(7), most: 2 }]) == [Guess::default()]);
}

#[test]
fn what_fails_costs_proposals_and_begins_anew() {
    let (mut drafter, control) = drafter(true, 16);
    drafter.open(Slot(0), &PROMPT);
    control.script().at_step.insert(2, Trouble::Error(ErrorKind::Device));
    assert!(guess(&mut drafter, 3).is_empty());
    assert_eq!(guess(&mut drafter, 3), continuation(&PROMPT, 3));
    drafter.commit(Slot(0), &[9]);
    control.script().at_trim = Some(Trouble::Error(ErrorKind::State));
    assert!(guess(&mut drafter, 3).is_empty());
    assert_eq!(guess(&mut drafter, 1).len(), 1);
    let mut script = control.script();
    let next = script.steps.len() + 1;
    script.at_step.insert(next, Trouble::Panic);
    drop(script);
    drafter.commit(Slot(0), &[9]);
    assert!(guess(&mut drafter, 3).is_empty() && guess(&mut drafter, 3).is_empty());
}

#[test]
fn it_proposes_inside_of_a_live_batch_and_its_bytes_count() {
    for trimmable in [false, true] {
        for adaptive in [false, true] {
            let drafting = Drafting { draft: Draft::Mounted, tokens: 4, adaptive, ..Drafting::default() };
            let mut rig = Rig::new(Config { drafting, ..config() });
            let (model, control) = drafter(trimmable, 16);
            rig.executor.provide(Providing::with(Box::new(model)));
            let prompts: [&[TokenId]; 3] = [&PROMPT, &[7, 8], &[4; 9]];
            let mut rows: Vec<_> = prompts.iter().map(|prompt| rig.submit(request(prompt, 20))).collect();
            rig.finish();
            for (prompt, row) in prompts.iter().zip(&mut rows) {
                let answer = read(row);
                assert_eq!(answer.tokens, continuation(prompt, 20));
                assert!(adaptive || answer.usage().accepted_tokens == answer.usage().drafted_tokens);
            }
            assert!(adaptive || rig.metrics().steps < 8, "{}", rig.metrics().steps);
            assert!(is_balanced(&control));
            rig.assert_balanced();
        }
    }
    // Each token of a row takes 10 bytes here, and as many there.
    let drafting = Drafting { draft: Draft::Mounted, ..Drafting::default() };
    let mut rig = Rig::new(Config { drafting, cache_bytes: Some(2 * 200), ..config() });
    rig.executor.provide(Providing::with(Box::new(drafter(true, 16).0)));
    assert_eq!(rig.executor.longest(), [20]);
}
