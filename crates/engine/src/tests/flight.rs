//! Steps that begin before the one before them is read, on a device that defers; and none on one that runs at once.

use super::{
    rig::{Answer, Rig, config, read, request},
    session::{Control, POISON, TOKEN_BYTES, Trouble, continuation},
    structure::{Climb, bound},
};
use crate::{
    command::Command,
    config::{Config, PrefixLimits},
};
use insta::assert_snapshot;
use tandem_contracts::{
    fake::{Fake, Manner},
    request::{Outcome, Request, Scoring},
    tensor::ErrorKind,
    text::TokenId,
};

const PROMPT: [TokenId; 3] = [7, 8, 9];

/// An engine over a session that goes on from unread tokens.
fn rig_on(deferred: bool, config: Config) -> Rig {
    let control = Control::default();
    control.script().registers = true;
    control.script().trimmable = true;
    Rig::on(Fake::open_with(Manner { deferred, ..Manner::default() }), config, control)
}

fn rig() -> Rig {
    rig_on(true, config())
}

#[test]
fn a_step_begins_before_the_last_one_is_read() {
    let mut rig = rig();
    let mut subscription = rig.submit(request(&PROMPT, 4));
    let mut seen = Answer::default();
    for (steps, tokens) in [(1, 0), (2, 1), (3, 2), (4, 3), (4, 4)] {
        rig.turn();
        seen.read(&mut subscription);
        assert_eq!((rig.metrics().steps, seen.tokens.len()), (steps, tokens));
    }
    assert!(rig.executor.is_idle());
    // The last token ends the row by its length: no step follows it.
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    0@3~*
    0@4~*
    0@5~*
    ");
    assert_eq!((seen.outcome(), &seen.tokens), (&Outcome::Length, &continuation(&PROMPT, 4)));
    assert_eq!(rig.fake.counts().hidden_evaluations, 0);
    rig.assert_balanced();
}

#[test]
fn a_device_that_runs_at_once_reads_first_and_runs_no_token_in_vain() {
    let tokens = continuation(&PROMPT, 4);
    let mut counts = Vec::new();
    for deferred in [false, true] {
        let mut rig = rig_on(deferred, Config { prompt_chunk: 2, ..config() });
        let mut ending = rig.submit(Request { end_tokens: vec![tokens[2]], ..request(&PROMPT, 9) });
        rig.finish();
        assert_eq!(read(&mut ending).outcome(), &Outcome::End);
        counts.push(rig.steps());
        rig.assert_balanced();
    }
    // Two chunks, and two tokens before the one that ends the row; the other device has begun a step more by then.
    assert_snapshot!(counts[0], @r"
    0@0+2
    0@2+1*
    0@3+1*
    0@4+1*
    ");
    assert_snapshot!(counts[1], @r"
    0@0+2
    0@2+1*
    0@3~*
    0@4~*
    0@5~*
    ");
}

/// What a step gave is with its consumer before the next one begins, or the one after that where the device defers.
#[test]
fn tokens_are_out_before_more_is_computed() {
    for (deferred, unread) in [(false, 1), (true, 2)] {
        let mut rig = rig_on(deferred, config());
        let mut subscription = rig.submit(request(&PROMPT, 6));
        let mut seen = Answer::default();
        rig.control.script().hook = Some(Box::new(move |step| {
            seen.read(&mut subscription);
            assert_eq!(seen.tokens.len(), step.saturating_sub(unread));
        }));
        rig.finish();
        assert_eq!((rig.metrics().steps, rig.metrics().outcomes.length), (6, 1));
        rig.assert_balanced();
    }
}

#[test]
fn who_comes_is_let_in_after_the_last_token_is_read() {
    let mut rig = rig();
    let mut first = rig.submit(request(&PROMPT, 6));
    rig.turn();
    rig.turn();
    let mut second = rig.submit(request(&[1, 2], 3));
    rig.finish();
    assert_snapshot!(rig.steps(), @r"
    0@0+3*
    0@3~*
    0@4+1* 1@0+2*
    0@5~* 1@2~*
    0@6~* 1@3~*
    0@7~*
    ");
    assert_eq!(read(&mut first).tokens, continuation(&PROMPT, 6));
    assert_eq!(read(&mut second).tokens, continuation(&[1, 2], 3));
    rig.assert_balanced();
}

#[test]
fn rows_that_the_host_looks_at_are_read_first() {
    let looked_at: [fn(&mut Request); 4] = [
        |request| request.sampling.temperature = 0.7,
        |request| request.scoring = Scoring { answer: Some(1), prompt: None },
        |request| request.sampling.frequency.amount = 0.5,
        |request| request.grammar = Some(Box::new(Climb::new(5, 9))),
    ];
    for change in looked_at {
        let mut rig = rig();
        let mut other = request(&[1, 2], 3);
        change(&mut other);
        let mut both = [request(&PROMPT, 5), other].map(|request| rig.submit(request));
        rig.finish();
        // While it lives nobody runs ahead; the last one does.
        let steps = ["0@0+3* 1@0+2*", "0@3+1* 1@2+1*", "0@4+1* 1@3+1*", "0@5+1*", "0@6~*"];
        assert_eq!(rig.steps(), steps.join("\n"));
        assert_eq!(read(&mut both[0]).tokens, continuation(&PROMPT, 5));
        rig.assert_balanced();
    }
}

/// What a grammar allows follows from the last token, whoever comes and goes after it.
#[test]
fn joins_and_leaves_make_no_mask_stale() {
    let tied = || bound(request(&PROMPT, 12), Climb::new(5, 9));
    let mut alone = rig_on(false, config());
    let mut expected = alone.submit(tied());
    alone.finish();
    let expected = read(&mut expected);
    assert_eq!((expected.outcome(), expected.tokens.len()), (&Outcome::End, 9));
    for deferred in [false, true] {
        let mut rig = rig_on(deferred, config());
        // Somebody is in flight when it joins, and it sees others come and go at every length.
        let mut others = vec![rig.submit(request(&[1, 2], 20))];
        (0..3).for_each(|_| rig.turn());
        let mut subscription = rig.submit(tied());
        for first in 3..9 {
            rig.turn();
            others.push(rig.submit(request(&[first, 2], 1 + first as usize % 3)));
        }
        rig.finish();
        assert_eq!(read(&mut subscription), expected, "deferred: {deferred}");
        assert!(others.iter_mut().all(|other| read(other).outcome() == &Outcome::Length));
        rig.assert_balanced();
    }
}

#[test]
fn a_cancel_while_a_step_is_in_flight_ends_the_row_and_touches_nobody() {
    let mut rig = rig();
    let mut cancelled = rig.submit(request(&PROMPT, 20));
    let mut leaving = Some(rig.submit(request(&[5, 6], 20)));
    let mut staying = rig.submit(request(&[1, 2], 8));
    for turn in 0..20 {
        rig.turn();
        match turn {
            2 => rig.send(Command::Cancel(cancelled.id())),
            4 => drop(leaving.take()),
            _ => {}
        }
    }
    let seen = read(&mut cancelled);
    assert_eq!(seen.outcome(), &Outcome::Cancelled);
    assert!(continuation(&PROMPT, 20).starts_with(&seen.tokens));
    assert_eq!(read(&mut staying).tokens, continuation(&[1, 2], 8));
    rig.assert_balanced();
}

/// An end that nobody could foresee leaves a token too many in the slot, which is not kept.
#[test]
fn what_is_kept_of_a_row_is_what_it_was_told() {
    let limits = PrefixLimits { bytes: 1_000 * TOKEN_BYTES, shortest: 1, boundary: 0 };
    let mut rig = rig_on(true, Config { prefix: limits, ..config() });
    let tokens = continuation(&PROMPT, 4);
    let mut ended = rig.submit(Request { end_tokens: vec![tokens[2]], ..request(&PROMPT, 9) });
    rig.finish();
    assert_eq!(read(&mut ended).tokens, &tokens[..2]);
    assert_eq!(rig.metrics().stored_bytes, 5 * TOKEN_BYTES);
    let next = [&PROMPT[..], &tokens[..2], &[1, 2]].concat();
    let mut again = rig.submit(request(&next, 3));
    rig.finish();
    let seen = read(&mut again);
    assert_eq!((seen.usage().cached_tokens, seen.tokens), (5, continuation(&next, 3)));
    rig.assert_balanced();
}

#[test]
fn a_step_that_fails_in_flight_ends_its_rows_after_what_was_read() {
    for trouble in [Trouble::Error(ErrorKind::Memory), Trouble::Panic] {
        let mut rig = rig();
        rig.control.script().at_step = [(3, trouble)].into();
        let mut failing = rig.submit(request(&PROMPT, 9));
        rig.finish();
        let seen = read(&mut failing);
        // The first two steps gave their tokens.
        assert_eq!(seen.tokens, continuation(&PROMPT, 2));
        assert!(seen.failure().starts_with("the model failed"));
        let mut later = rig.submit(request(&PROMPT, 4));
        rig.finish();
        assert_eq!(read(&mut later).tokens, continuation(&PROMPT, 4));
        rig.assert_balanced();
    }
}

#[test]
fn logits_that_are_not_numbers_end_their_row_though_a_step_has_gone_on_from_them() {
    let mut rig = rig();
    let mut poisoned = rig.submit(request(&[POISON, 1, 2], 20));
    let mut other = rig.submit(request(&PROMPT, 8));
    rig.finish();
    let seen = read(&mut poisoned);
    assert_eq!(seen.failure(), "the model gave logits that are not numbers");
    assert_eq!(seen.tokens.len(), 3);
    assert_eq!(read(&mut other).tokens, continuation(&PROMPT, 8));
    rig.assert_balanced();
}

#[test]
fn a_shutdown_drops_what_is_in_flight() {
    let mut rig = rig();
    let mut running = rig.submit(request(&PROMPT, 9));
    rig.turn();
    rig.turn();
    rig.send(Command::Shutdown);
    rig.turn();
    assert!(read(&mut running).failure().starts_with("the engine is shutting down"));
    assert!(rig.executor.is_idle());
    rig.assert_balanced();
}
