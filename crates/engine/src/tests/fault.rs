//! Steps, slots and matchers that fail: the right requests end, and the others go on unchanged.

use super::{
    rig::{Numbers, Rig, config, read, request},
    session::{CONTEXT, Control, POISON, TOKEN_BYTES, Trouble, UNSOUND, continuation},
};
use crate::{
    command::{Command, Waiter},
    config::{Config, PrefixLimits},
    executor::Course,
};
use std::sync::mpsc;
use tandem_contracts::{
    request::{Outcome, Request},
    tensor::ErrorKind,
    text::TokenId,
};

const PROMPT: [TokenId; 3] = [7, 8, 9];

/// Two rows meet trouble at step 2, in the step itself or in its evaluation; a third comes later.
fn after_trouble(trouble: Option<Trouble>) -> (Rig, String) {
    let mut rig = Rig::new(config());
    let mut script = rig.control.script();
    match trouble {
        Some(trouble) => script.at_step = [(2, trouble)].into(),
        None => script.at_evaluation = Some(2),
    }
    drop(script);
    let mut pair = [request(&[1, 2], 5), request(&[3], 5)].map(|request| rig.submit(request));
    rig.finish();
    let mut later = rig.submit(request(&PROMPT, 5));
    rig.finish();
    assert_eq!(read(&mut later).tokens, continuation(&PROMPT, 5));
    let [first, second] = pair.each_mut().map(read);
    assert_eq!((first.tokens, second.tokens), (continuation(&[1, 2], 1), continuation(&[3], 1)));
    assert_eq!((first.ends.len(), second.ends.len()), (1, 1));
    rig.assert_balanced();
    let metrics = rig.metrics();
    assert_eq!((metrics.failed_steps, metrics.outcomes.failed, metrics.outcomes.length), (1, 2, 1));
    let Outcome::Failed(failure) = &second.ends[0].0 else { panic!("{:?}", second.ends) };
    (rig, failure.message.clone())
}

#[test]
fn a_step_that_returns_an_error_fails_its_rows() {
    let trouble = Trouble::Error(ErrorKind::Device);
    let (_, message) = after_trouble(Some(trouble));
    assert_eq!(message, "the model failed: step: as scripted");
}

#[test]
fn a_step_that_panics_fails_its_rows() {
    let (_, message) = after_trouble(Some(Trouble::Panic));
    assert_eq!(message, "the model failed unexpectedly");
}

#[test]
fn an_evaluation_that_fails_fails_its_rows() {
    let (_, message) = after_trouble(None);
    assert!(message.starts_with("the model failed: take: "), "{message}");
}

#[test]
fn a_step_without_memory_fails_its_rows() {
    let trouble = Trouble::Error(ErrorKind::Memory);
    let (rig, _) = after_trouble(Some(trouble));
    assert_eq!(rig.executor.course(), Course::Open);
}

#[test]
fn a_request_without_a_bound_gives_all_back_when_it_fails() {
    let mut rig = Rig::new(Config { cache_bytes: Some(CONTEXT * TOKEN_BYTES), ..config() });
    rig.control.script().at_step = [(4, Trouble::Error(ErrorKind::Device))].into();
    let mut endless = [(); 2].map(|()| rig.submit(request(&PROMPT, usize::MAX)));
    rig.finish();
    // The second had waited for the bytes of the first.
    let [first, second] = endless.each_mut().map(read);
    assert_eq!((first.tokens.len(), first.failure()), (3, "the model failed: step: as scripted"));
    assert_eq!((second.tokens.len(), second.outcome()), (CONTEXT - PROMPT.len(), &Outcome::Length));
    rig.assert_balanced();
}

/// Every state in which a request can be.
#[test]
fn a_cancel_ends_a_request_in_whatever_state_it_is() {
    let limits = PrefixLimits { bytes: 1_000 * TOKEN_BYTES, shortest: 2, boundary: 0 };
    let config = Config { max_rows: 3, prompt_chunk: 2, prefix: limits, ..config() };
    let control = Control::default();
    control.script().registers = true;
    let mut rig = Rig::over(config, control);
    let mut decoding = rig.submit(request(&[1], 40));
    rig.turn();
    rig.turn();
    let mut preparing = rig.submit(request(&[5; 20], 40));
    // It waits for what the one before it computes, as it begins alike.
    let mut waiting = rig.submit(request(&[5; 21], 40));
    let mut queued = rig.submit(request(&PROMPT, 40));
    let mut held_up = rig.submit(request(&PROMPT, 40));
    rig.turn();
    assert_eq!((rig.metrics().active, rig.metrics().queued), (3, 2));
    let (granted, wait) = mpsc::channel();
    rig.send(Command::Hold(Waiter { number: 99, granted }));
    for subscription in [&mut queued, &mut waiting, &mut preparing, &mut decoding] {
        rig.send(Command::Cancel(subscription.id()));
        rig.turn();
        assert_eq!(read(subscription).outcome(), &Outcome::Cancelled);
    }
    assert_eq!((wait.try_recv(), rig.metrics().active, rig.metrics().queued), (Ok(()), 0, 1));
    rig.send(Command::Cancel(held_up.id()));
    rig.turn();
    assert_eq!(read(&mut held_up).outcome(), &Outcome::Cancelled);
    rig.send(Command::Release(99));
    let mut in_flight = rig.submit(request(&PROMPT, 40));
    let mut drained = rig.submit(request(&[9], 40));
    (0..4).for_each(|_| rig.turn());
    rig.send(Command::Cancel(in_flight.id()));
    rig.turn();
    assert_eq!(read(&mut in_flight).outcome(), &Outcome::Cancelled);
    let (reply, _done) = mpsc::channel();
    rig.send(Command::Drain(reply));
    rig.send(Command::Cancel(drained.id()));
    rig.finish();
    assert_eq!(read(&mut drained).outcome(), &Outcome::Cancelled);
    assert_eq!(rig.metrics().outcomes.cancelled, 7);
    rig.assert_balanced();
}

#[test]
fn logits_that_are_not_numbers_fail_their_row_alone() {
    for temperature in [0.0, 0.8] {
        let mut rig = Rig::new(config());
        let mut poisoned = request(&[POISON, 1, 2], 20);
        poisoned.sampling.temperature = temperature;
        let mut others = [request(&PROMPT, 8), request(&[1], 8)].map(|request| rig.submit(request));
        let mut poisoned = rig.submit(poisoned);
        rig.finish();
        let seen = read(&mut poisoned);
        assert_eq!(seen.failure(), "the model gave logits that are not numbers");
        assert_eq!(seen.tokens.len(), 3);
        let tokens = others.each_mut().map(|subscription| read(subscription).tokens);
        assert_eq!(tokens, [continuation(&PROMPT, 8), continuation(&[1], 8)]);
        rig.assert_balanced();
    }
}

#[test]
fn keys_that_are_not_finite_fail_their_row_alone() {
    let mut rig = Rig::new(config());
    let mut others = [request(&PROMPT, 8), request(&[1], 8)].map(|request| rig.submit(request));
    let mut unsound = rig.submit(request(&[UNSOUND, 1, 2], 20));
    rig.finish();
    let seen = read(&mut unsound);
    assert_eq!(seen.failure(), "the model gave keys or values that are not numbers");
    assert_eq!(seen.tokens, continuation(&[UNSOUND, 1, 2], 3));
    let tokens = others.each_mut().map(|subscription| read(subscription).tokens);
    assert_eq!(tokens, [continuation(&PROMPT, 8), continuation(&[1], 8)]);
    rig.assert_balanced();
}

#[test]
fn a_slot_that_does_not_open_fails_its_request_alone() {
    for trouble in [Trouble::Error(ErrorKind::Memory), Trouble::Panic] {
        let mut rig = Rig::new(config());
        rig.control.script().at_open = Some(trouble);
        let mut refused = rig.submit(request(&PROMPT, 2));
        let mut served = rig.submit(request(&PROMPT, 2));
        rig.finish();
        assert!(read(&mut refused).failure().starts_with("the model failed"));
        assert_eq!(read(&mut served).tokens, continuation(&PROMPT, 2));
        assert_eq!(rig.executor.course(), Course::Open);
        rig.assert_balanced();
    }
}

#[test]
fn a_slot_that_does_not_close_breaks_the_engine() {
    for trouble in [Trouble::Error(ErrorKind::State), Trouble::Panic] {
        let mut rig = Rig::new(config());
        rig.control.script().at_close = Some(trouble);
        let mut ended = rig.submit(request(&PROMPT, 1));
        let mut running = rig.submit(request(&PROMPT, 9));
        rig.turn();
        assert_eq!(rig.executor.course(), Course::Broken);
        // What was answered stays answered; the rest ends with the executor.
        assert_eq!(read(&mut ended).outcome(), &Outcome::Length);
        drop(rig);
        assert_eq!(read(&mut running).failure(), "the engine stopped before the request ended");
    }
}

#[test]
fn a_matcher_that_panics_fails_its_row_alone() {
    let mut rig = Rig::new(config());
    let matcher = Numbers { panic: Some(continuation(&[1, 2], 3)[2]), ..Numbers::default() };
    let mut failing = rig.submit(Request { text: Box::new(matcher), ..request(&[1, 2], 9) });
    let mut other = rig.submit(request(&PROMPT, 9));
    rig.finish();
    assert_eq!(read(&mut failing).failure(), "the answer's text could not be processed");
    assert_eq!(read(&mut other).tokens, continuation(&PROMPT, 9));
    rig.assert_balanced();
}

#[test]
fn a_cancel_of_what_is_unknown_or_over_is_nothing() {
    let mut rig = Rig::new(config());
    let mut over = rig.submit(request(&PROMPT, 1));
    rig.finish();
    rig.send(Command::Cancel(over.id()));
    rig.send(Command::Cancel(tandem_contracts::request::RequestId(999)));
    rig.finish();
    assert_eq!(read(&mut over).outcome(), &Outcome::Length);
    assert_eq!(rig.metrics().outcomes.total(), 1);
}
