//! Tests of a session: the model port's promises, on a small model.

mod code;
mod register;
mod routed;
mod state;

use crate::sample;
use tandem_contracts::{
    execution::ModelFacts,
    model::{
        AdapterSet, Code, Codes, RowState, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted,
    },
    tensor::{Affine, ErrorKind},
};

const PLAIN: StatePolicy = StatePolicy::Plain;

fn part(slot: u32, position: usize, ids: &[u32], wanted: Wanted) -> RowStep {
    RowStep {
        slot: Slot(slot),
        position,
        tokens: TokenSource::Ids(ids.to_vec()),
        wanted,
        adapters: AdapterSet::BASE,
    }
}

/// Runs a step and gives its logits, row after row.
fn run(session: &mut dyn Session, rows: Vec<RowStep>) -> Vec<Vec<f32>> {
    let step = Step { rows };
    let stepped = session.step(&step).unwrap();
    let Some(logits) = stepped.logits else { return Vec::new() };
    let width = session.capabilities().vocabulary;
    assert_eq!(logits.shape(), [step.wanted(), width]);
    logits.to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect()
}

/// Logits of every token of a fresh row.
fn alone(ids: &[u32]) -> Vec<Vec<f32>> {
    let mut session = sample::session();
    session.open(Slot(0), &PLAIN, None).unwrap();
    run(session.as_mut(), vec![part(0, 0, ids, Wanted::All)])
}

fn kind<T: std::fmt::Debug>(result: tandem_contracts::tensor::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn facts_for_plans_are_those_of_the_layout() {
    let facts = |paged| ModelFacts {
        verifies: true,
        adapters: true,
        paged,
        registers: true,
        ..ModelFacts::default()
    };
    let got = sample::layouts().map(|session| session.capabilities().execution.clone());
    assert_eq!(got, [false, false, true].map(facts));
}

#[test]
fn logits_do_not_depend_on_chunks_company_or_order() {
    let (long, short) = ([5, 9, 2, 7, 1, 20, 3], [4, 4, 8]);
    let (expected, other) = (alone(&long), alone(&short));
    for mut session in sample::layouts() {
        session.open(Slot(3), &PLAIN, None).unwrap();
        session.open(Slot(1), &PLAIN, None).unwrap();
        let got = run(
            session.as_mut(),
            vec![part(3, 0, &long[..3], Wanted::All), part(1, 0, &short[..1], Wanted::None)],
        );
        assert_eq!(got, expected[..3]);
        let got = run(
            session.as_mut(),
            vec![part(1, 1, &short[1..], Wanted::Last), part(3, 3, &long[3..], Wanted::All)],
        );
        assert_eq!(got[0], other[2]);
        assert_eq!(got[1..], expected[3..]);
    }
}

#[test]
fn nothing_wanted_gives_no_logits_but_touched_planes() {
    let mut session = sample::session();
    session.open(Slot(0), &PLAIN, None).unwrap();
    let stepped = session.step(&Step { rows: vec![part(0, 0, &[1, 2], Wanted::None)] }).unwrap();
    assert!(stepped.logits.is_none());
    // Keys and values of two layers.
    assert_eq!(stepped.touched.len(), 4);
}

#[test]
fn malformed_steps_are_refused_and_change_nothing() {
    let mut session = sample::session();
    for slot in [0, 1] {
        session.open(Slot(slot), &PLAIN, None).unwrap();
    }
    run(session.as_mut(), vec![part(0, 0, &[1, 2, 3], Wanted::None)]);
    let good = part(1, 0, &[4], Wanted::Last);
    let register = RowStep { tokens: TokenSource::Register(Slot(0)), ..part(0, 3, &[], Wanted::Last) };
    let adapted = RowStep { adapters: AdapterSet(1), ..part(0, 3, &[1], Wanted::Last) };
    for (bad, expected) in [
        (part(7, 0, &[1], Wanted::Last), ErrorKind::State),
        (part(1, 1, &[1], Wanted::Last), ErrorKind::State),
        (part(0, 2, &[1], Wanted::Last), ErrorKind::State),
        (part(0, 3, &[], Wanted::Last), ErrorKind::Index),
        (part(0, 3, &[24], Wanted::Last), ErrorKind::Index),
        (part(0, 3, &[u32::MAX], Wanted::Last), ErrorKind::Index),
        (part(0, 3, &[1; 38], Wanted::Last), ErrorKind::Index),
        (register, ErrorKind::State),
        (adapted, ErrorKind::Unsupported),
    ] {
        let step = Step { rows: vec![good.clone(), bad] };
        assert_eq!(kind(session.step(&step)), expected, "{step:?}");
    }
    assert_eq!(kind(session.step(&Step::default())), ErrorKind::Index);
    let after = run(session.as_mut(), vec![part(0, 3, &[6], Wanted::Last), good]);
    assert_eq!(after, [alone(&[1, 2, 3, 6])[3].clone(), alone(&[4])[0].clone()]);
    // 37 more fill the context of 40.
    session.trim(Slot(0), 3).unwrap();
    run(session.as_mut(), vec![part(0, 3, &[1; 37], Wanted::None)]);
    assert_eq!(kind(session.step(&Step { rows: vec![part(0, 40, &[1], Wanted::None)] })), ErrorKind::Index);
}

#[test]
fn rows_are_forked_trimmed_stored_and_resumed() {
    for mut session in sample::layouts() {
        session.open(Slot(0), &PLAIN, None).unwrap();
        run(session.as_mut(), vec![part(0, 0, &[5, 6, 7], Wanted::None)]);
        session.fork(Slot(0), Slot(1)).unwrap();
        let got = run(session.as_mut(), vec![part(0, 3, &[8], Wanted::Last), part(1, 3, &[9], Wanted::Last)]);
        assert_eq!(got, [alone(&[5, 6, 7, 8])[3].clone(), alone(&[5, 6, 7, 9])[3].clone()]);

        let stored = session.close(Slot(1)).unwrap();
        assert_eq!((stored.tokens(), stored.reuse_floor()), (4, 0));
        // In planes of its own, whatever it was in before.
        assert_eq!(stored.bytes(), sample::session().project_bytes(&PLAIN, &[4], 4).unwrap());
        let copy = RowState::fork(stored.as_ref()).unwrap();
        session.open(Slot(2), &PLAIN, Some(stored)).unwrap();
        session.open(Slot(3), &PLAIN, Some(copy)).unwrap();
        session.trim(Slot(3), 2).unwrap();
        let got = run(session.as_mut(), vec![part(2, 4, &[1], Wanted::Last), part(3, 2, &[8], Wanted::Last)]);
        assert_eq!(got, [alone(&[5, 6, 7, 9, 1])[4].clone(), alone(&[5, 6, 8])[2].clone()]);
    }
}

/// A pool without blocks refuses the step; whoever goes leaves room, and nobody else has lost anything.
#[test]
fn rows_that_find_no_block_wait_for_others() {
    let mut session = sample::paged(12);
    let together = |session: &dyn Session, rows: &[usize]| session.project_bytes(&PLAIN, rows, 8).map(drop);
    assert_eq!(kind(together(session.as_ref(), &[8, 5])), ErrorKind::Memory);
    together(session.as_ref(), &[8, 4]).unwrap();
    for slot in [0, 1] {
        session.open(Slot(slot), &PLAIN, None).unwrap();
    }
    let (long, short) = ([5, 9, 2, 7, 1, 20, 3, 6], [4, 4, 8, 1, 2]);
    run(session.as_mut(), vec![part(0, 0, &long[..7], Wanted::None), part(1, 0, &short[..4], Wanted::None)]);
    // One has room in its second block, the other has none left.
    let step =
        Step { rows: vec![part(0, 7, &long[7..], Wanted::Last), part(1, 4, &short[4..], Wanted::Last)] };
    assert_eq!(kind(session.step(&step)), ErrorKind::Memory);
    let got = run(session.as_mut(), vec![part(0, 7, &long[7..], Wanted::Last)]);
    assert_eq!(got, alone(&long)[7..]);
    session.discard(Slot(0));
    let got = run(session.as_mut(), vec![part(1, 4, &short[4..], Wanted::Last)]);
    assert_eq!(got, alone(&short)[4..]);
}

#[test]
fn slots_are_checked() {
    let (mut session, mut other) = (sample::session(), sample::session());
    session.open(Slot(0), &PLAIN, None).unwrap();
    assert_eq!(kind(session.open(Slot(0), &PLAIN, None)), ErrorKind::State);
    assert_eq!(kind(session.close(Slot(1))), ErrorKind::State);
    assert_eq!(kind(session.fork(Slot(1), Slot(2))), ErrorKind::State);
    assert_eq!(kind(session.fork(Slot(0), Slot(0))), ErrorKind::State);
    assert_eq!(kind(session.trim(Slot(1), 0)), ErrorKind::State);
    assert_eq!(kind(session.trim(Slot(0), 1)), ErrorKind::Index);
    let state = session.close(Slot(0)).unwrap();
    assert_eq!(kind(other.open(Slot(0), &PLAIN, Some(state))), ErrorKind::State);
    assert_eq!(session.capabilities().context, sample::CONTEXT);
    // The second of two layers is half a growth ahead.
    assert_eq!(session.project_bytes(&PLAIN, &[1], 1).unwrap(), (256 + 128) * 2 * sample::WIDTH * 4);
}

/// Affine codes of 8 bits from position `start` on.
fn encoded(start: usize) -> StatePolicy {
    StatePolicy::Encoded { codes: Codes::Uniform(Code::Affine(Affine { bits: 8, group: 32 })), start }
}

/// Logits of every token of a row kept by a policy, one token in each step.
fn alone_by(policy: &StatePolicy, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut session = sample::session();
    session.open(Slot(0), policy, None).unwrap();
    let step =
        |(position, id): (usize, &u32)| run(session.as_mut(), vec![part(0, position, &[*id], Wanted::All)]);
    ids.iter().enumerate().flat_map(step).collect()
}

#[test]
fn precision_depends_on_position_alone() {
    let ids = [5, 9, 2, 7, 1, 20];
    let (plain, delayed) = (alone(&ids), alone_by(&encoded(3), &ids));
    assert_eq!(delayed[..3], plain[..3]);
    assert_ne!(delayed[3], plain[3]);
    assert_ne!(alone_by(&encoded(0), &ids)[0], plain[0]);

    // The same in steps up to the threshold and beyond it, in company that passes it elsewhere.
    let policy = encoded(3);
    for mut session in sample::layouts() {
        for slot in [0, 1] {
            session.open(Slot(slot), &policy, None).unwrap();
        }
        let other = [4, 4, 8, 11];
        let expected = alone_by(&policy, &other);
        let first = run(session.as_mut(), vec![part(0, 0, &ids[..3], Wanted::All)]);
        assert_eq!(first, delayed[..3]);
        let rows = vec![part(1, 0, &other[..3], Wanted::Last), part(0, 3, &ids[3..], Wanted::All)];
        let second = run(session.as_mut(), rows);
        assert_eq!((&second[0], &second[1..]), (&expected[2], &delayed[3..]));
        assert_eq!(run(session.as_mut(), vec![part(1, 3, &other[3..], Wanted::Last)]), expected[3..]);
    }
}

#[test]
fn policies_are_kept_apart() {
    let policy = encoded(3);
    let mut session = sample::session();
    session.open(Slot(0), &policy, None).unwrap();
    session.open(Slot(1), &PLAIN, None).unwrap();
    for rows in [
        vec![part(0, 0, &[1, 2, 3, 4], Wanted::Last)],
        vec![part(0, 0, &[1], Wanted::Last), part(1, 0, &[1], Wanted::Last)],
    ] {
        assert!(session.step(&Step { rows }).is_err());
    }
    let step = |position, ids: &[u32]| Step { rows: vec![part(0, position, ids, Wanted::None)] };
    for step in [step(0, &[1, 2, 3]), step(3, &[4, 5])] {
        let sound = session.step(&step).unwrap().sound.unwrap();
        assert_eq!(sound.to_vec::<i32>().unwrap(), [1]);
    }
    assert!(session.exemptions(&policy).unwrap().is_empty());

    let stored = session.close(Slot(0)).unwrap();
    assert_eq!((stored.tokens(), stored.reuse_floor()), (5, 3));
    let copy = RowState::fork(stored.as_ref()).unwrap();
    assert_eq!(kind(session.open(Slot(2), &PLAIN, Some(copy))), ErrorKind::State);
    session.open(Slot(2), &policy, Some(stored)).unwrap();
    assert_eq!(kind(session.trim(Slot(2), 2)), ErrorKind::Index);
}

#[test]
fn policies_that_the_model_cannot_keep_are_refused() {
    let mut session = sample::session();
    let by_layer = |codes| StatePolicy::Encoded { codes: Codes::ByLayer(codes), start: 0 };
    let wide = Code::Affine(Affine { bits: 4, group: 128 });
    for policy in [
        StatePolicy::Encoded { codes: Codes::Uniform(wide), start: 0 },
        by_layer(vec![(2, Code::Affine(Affine { bits: 8, group: 32 }))]),
        by_layer(vec![(0, Code::Turbo { keys: 3, values: 3 })]),
    ] {
        assert!(session.project_bytes(&policy, &[1], 1).is_err(), "{policy:?}");
        assert!(session.open(Slot(0), &policy, None).is_err());
    }
    session.open(Slot(0), &PLAIN, None).unwrap();
}

#[test]
fn states_go_through_bytes() {
    let policy = encoded(3);
    let mut session = sample::session();
    session.open(Slot(0), &policy, None).unwrap();
    for rows in [vec![part(0, 0, &[5, 6, 7], Wanted::None)], vec![part(0, 3, &[8, 9], Wanted::None)]] {
        session.step(&Step { rows }).unwrap();
    }
    let stored = session.close(Slot(0)).unwrap();
    let bytes = session.snapshot(stored.as_ref(), b"sample").unwrap();
    let mut other = sample::session();
    assert_eq!(kind(other.snapshot(stored.as_ref(), b"sample")), ErrorKind::State);
    assert_eq!(kind(other.restore(&PLAIN, b"sample", &bytes)), ErrorKind::Data);
    assert_eq!(kind(other.restore(&policy, b"another", &bytes)), ErrorKind::Data);
    let restored = other.restore(&policy, b"sample", &bytes).unwrap();
    other.open(Slot(4), &policy, Some(restored)).unwrap();
    session.open(Slot(4), &policy, Some(stored)).unwrap();
    let next = || vec![part(4, 5, &[1, 2], Wanted::All)];
    assert_eq!(run(other.as_mut(), next()), run(session.as_mut(), next()));
}
