//! Steps that go on from tokens that nobody has read: the same as from their ids.

use super::{PLAIN, kind, part};
use crate::sample;
use tandem_contracts::{
    model::{RowStep, Session, Slot, Step, TokenSource, Wanted},
    tensor::{ErrorKind, Tensor},
};

const SLOTS: [Slot; 2] = [Slot(3), Slot(1)];

fn unread(slot: u32, position: usize) -> RowStep {
    RowStep { tokens: TokenSource::Register(Slot(slot)), ..part(slot, position, &[], Wanted::Last) }
}

/// Two rows with their prompts, and what they have sampled.
fn sampled(session: &mut dyn Session) -> Tensor {
    SLOTS.iter().for_each(|&slot| session.open(slot, &PLAIN, None).unwrap());
    let rows = vec![part(3, 0, &[5, 9, 2], Wanted::Last), part(1, 0, &[4, 4], Wanted::Last)];
    let logits = session.step(&Step { rows }).unwrap().logits.unwrap();
    logits.device().argmax(&logits, 1).unwrap()
}

#[test]
fn unread_tokens_give_the_logits_of_their_ids() {
    for mut session in sample::layouts() {
        let tokens = sampled(session.as_mut()).to_vec::<i32>().unwrap();
        SLOTS.iter().for_each(|&slot| session.discard(slot));
        let [first, second] = tokens[..] else { panic!("{tokens:?}") };
        let known = |slot, position, id: i32| part(slot, position, &[id as u32], Wanted::Last);
        // All in the order of the register, in another one, some, and beside known ones.
        for (ids, unread) in [
            (vec![known(3, 3, first), known(1, 2, second)], vec![unread(3, 3), unread(1, 2)]),
            (vec![known(1, 2, second), known(3, 3, first)], vec![unread(1, 2), unread(3, 3)]),
            (vec![known(1, 2, second)], vec![unread(1, 2)]),
            (
                vec![part(3, 3, &[7, 8], Wanted::Last), known(1, 2, second)],
                vec![part(3, 3, &[7, 8], Wanted::Last), unread(1, 2)],
            ),
        ] {
            let [expected, got] = [ids, unread].map(|rows| {
                let tokens = sampled(session.as_mut());
                session.register(&SLOTS, &tokens).unwrap();
                let logits = super::run(session.as_mut(), rows);
                SLOTS.iter().for_each(|&slot| session.discard(slot));
                logits
            });
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn what_a_slot_has_not_sampled_is_refused_and_changes_nothing() {
    let mut session = sample::session();
    let tokens = sampled(session.as_mut());
    assert_eq!(kind(session.register(&SLOTS[..1], &tokens)), ErrorKind::Shape);
    let logits = tokens.device().upload_f32(&[0.0, 1.0], &[2]).unwrap();
    assert_eq!(kind(session.register(&SLOTS, &logits)), ErrorKind::Shape);
    assert_eq!(kind(session.step(&Step { rows: vec![unread(3, 3)] })), ErrorKind::State);
    session.register(&[Slot(3), Slot(7)], &tokens).unwrap();
    let both = || Step { rows: vec![unread(3, 3), unread(1, 2)] };
    assert_eq!(kind(session.step(&both())), ErrorKind::State);
    // What was there is gone with the step, and the rows are as they were.
    assert_eq!(kind(session.step(&Step { rows: vec![unread(3, 3)] })), ErrorKind::State);
    session.register(&SLOTS, &tokens).unwrap();
    session.step(&both()).unwrap();
}
