//! Tests of sessions whose layers carry states.

use super::{PLAIN, encoded, kind, part, run};
use crate::{
    Options,
    sample::{self, RECURRENT, Recurrent},
};
use proptest::prelude::*;
use tandem_contracts::{
    fake,
    model::{Session, Slot, Step, Wanted},
    tensor::{Device, Dtype, ErrorKind},
};

/// Tokens of each row.
const LENGTH: usize = 14;

fn open(model: &Recurrent, device: &Device, cache: Option<Dtype>) -> Box<dyn Session> {
    let options = Options { cache, ..Options::default() };
    sample::load(&(model.config)(), &(model.weights)(), device, options).unwrap()
}

/// Logits behind each token of a row that is alone, one token in each step.
fn alone(model: &Recurrent, cache: Option<Dtype>, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut session = open(model, &fake::open(), cache);
    session.open(Slot(0), &PLAIN, None).unwrap();
    let step =
        |(position, id): (usize, &u32)| run(session.as_mut(), vec![part(0, position, &[*id], Wanted::Last)]);
    ids.iter().enumerate().flat_map(step).collect()
}

/// What happens to one of two rows, or to both.
#[derive(Clone, Debug)]
enum Event {
    /// So many tokens of each, and behind them so many that are taken back.
    Step { tokens: [usize; 2], drafts: [usize; 2] },
    /// The row goes through bytes.
    Store(usize),
    /// A copy goes on in its place.
    Fork(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => ([0..5_usize, 0..5_usize], [0..4_usize, 0..4_usize])
            .prop_map(|(tokens, drafts)| Event::Step { tokens, drafts }),
        1 => (0..2_usize).prop_map(Event::Store),
        1 => (0..2_usize).prop_map(Event::Fork),
    ];
    prop::collection::vec(event, 1..10)
}

/// Two rows of one session.
struct Life {
    session: Box<dyn Session>,
    rows: [Row; 2],
    next: u32,
}

/// A row, its tokens, and what they give it alone.
struct Row {
    slot: Slot,
    held: usize,
    ids: Vec<u32>,
    expected: Vec<Vec<f32>>,
}

impl Life {
    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Step { tokens, drafts } => self.step(tokens, drafts),
            Event::Store(row) => {
                let slot = self.rows[row].slot;
                let state = self.session.close(slot).unwrap();
                assert_eq!((state.tokens(), state.reuse_floor()), (self.rows[row].held, self.rows[row].held));
                let bytes = self.session.snapshot(state.as_ref(), b"model").unwrap();
                let state = self.session.restore(&PLAIN, b"model", &bytes).unwrap();
                self.session.open(slot, &PLAIN, Some(state)).unwrap();
            }
            Event::Fork(row) => {
                let (slot, copy) = (self.rows[row].slot, Slot(self.next));
                self.session.fork(slot, copy).unwrap();
                self.session.discard(slot);
                self.rows[row].slot = copy;
                self.next += 1;
            }
        }
    }

    fn step(&mut self, tokens: [usize; 2], drafts: [usize; 2]) {
        let wanted: Vec<(usize, usize)> = self
            .rows
            .iter()
            .zip(tokens.into_iter().zip(drafts))
            .map(|(row, (tokens, drafts))| match tokens.min(LENGTH - row.held) {
                0 => (0, 0),
                tokens => (tokens, drafts),
            })
            .collect();
        let mut parts = Vec::new();
        for (row, (tokens, drafts)) in self.rows.iter().zip(&wanted) {
            let mut ids = row.ids[row.held..row.held + tokens].to_vec();
            ids.extend((0..*drafts).map(|draft| row.ids[draft] ^ 1));
            if !ids.is_empty() {
                parts.push(part(row.slot.0, row.held, &ids, Wanted::All));
            }
        }
        if parts.is_empty() {
            return;
        }
        let mut logits = run(self.session.as_mut(), parts).into_iter();
        for (row, (tokens, drafts)) in self.rows.iter_mut().zip(wanted) {
            let got: Vec<_> = logits.by_ref().take(tokens + drafts).collect();
            assert_eq!(got[..tokens], row.expected[row.held..row.held + tokens]);
            row.held += tokens;
            if drafts > 0 {
                self.session.trim(row.slot, row.held).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn what_a_row_gives_depends_on_its_tokens_alone(
        which in 0..RECURRENT.len(),
        layout in 0..2_usize,
        short in any::<bool>(),
        ids in prop::array::uniform2(prop::collection::vec(2..sample::VOCABULARY as u32, LENGTH)),
        events in events(),
    ) {
        let model = &RECURRENT[which];
        // Tails of fewer bits than the convolution computes in.
        let cache = short.then_some(Dtype::F16);
        let device = [fake::open(), fake::open_for_shared_planes()][layout].clone();
        let mut session = open(model, &device, cache);
        let mut slots = 0..;
        let rows = ids.map(|ids| {
            let (slot, expected) = (Slot(slots.next().unwrap()), alone(model, cache, &ids));
            session.open(slot, &PLAIN, None).unwrap();
            Row { slot, held: 0, ids, expected }
        });
        let mut life = Life { session, rows, next: 2 };
        events.iter().for_each(|event| life.happen(event));
        life.step([LENGTH; 2], [0; 2]);
    }
}

#[test]
fn rows_with_states_cannot_be_shortened_but_into_a_window_of_drafts() {
    let layouts = [fake::open(), fake::open_for_shared_planes()];
    for (model, device) in RECURRENT.iter().flat_map(|model| layouts.iter().map(move |it| (model, it))) {
        let mut session = open(model, device, None);
        assert!(!session.capabilities().trimmable);
        let ids = [5, 9, 2, 7, 1, 20];
        let expected = alone(model, None, &ids);
        session.open(Slot(0), &PLAIN, None).unwrap();
        run(session.as_mut(), vec![part(0, 0, &ids[..3], Wanted::Last)]);
        assert_eq!(kind(session.trim(Slot(0), 2)), ErrorKind::Index);
        session.trim(Slot(0), 3).unwrap();

        run(session.as_mut(), vec![part(0, 3, &[7, 3, 3, 3], Wanted::All)]);
        // Deeper and deeper, but no way back, and not before the window.
        session.trim(Slot(0), 6).unwrap();
        session.trim(Slot(0), 4).unwrap();
        assert_eq!(kind(session.trim(Slot(0), 5)), ErrorKind::Index);
        assert_eq!(kind(session.trim(Slot(0), 3)), ErrorKind::Index);
        assert_eq!(run(session.as_mut(), vec![part(0, 4, &ids[4..5], Wanted::Last)])[0], expected[4]);
        // A step of one token is closed.
        assert_eq!(kind(session.trim(Slot(0), 4)), ErrorKind::Index);

        // None of a window may be kept, and a row may go while the step is open.
        session.fork(Slot(0), Slot(1)).unwrap();
        let window = |slot| part(slot, 5, &[4, 4], Wanted::All);
        run(session.as_mut(), vec![window(1), window(0)]);
        session.trim(Slot(0), 5).unwrap();
        session.discard(Slot(1));
        assert_eq!(kind(session.trim(Slot(1), 5)), ErrorKind::State);
        assert_eq!(run(session.as_mut(), vec![part(0, 5, &ids[5..], Wanted::Last)])[0], expected[5]);
    }
}

#[test]
fn a_step_after_a_window_is_held_to_what_was_kept() {
    let mut session = open(&RECURRENT[2], &fake::open(), None);
    session.open(Slot(0), &PLAIN, None).unwrap();
    let window = vec![part(0, 0, &[1, 2, 3], Wanted::All)];
    assert!(session.step(&Step { rows: window }).unwrap().touched.is_empty());
    session.trim(Slot(0), 2).unwrap();
    assert_eq!(kind(session.step(&Step { rows: vec![part(0, 3, &[4], Wanted::Last)] })), ErrorKind::State);
    // Two states and a layer's keys and values.
    let stepped = session.step(&Step { rows: vec![part(0, 2, &[4], Wanted::Last)] }).unwrap();
    assert_eq!(stepped.touched.len(), 2 * 2 + 2);
}

#[test]
fn a_window_whose_rows_are_all_gone_is_closed() {
    for device in [fake::open(), fake::open_for_shared_planes()] {
        let mut session = open(&RECURRENT[2], &device, None);
        session.open(Slot(0), &PLAIN, None).unwrap();
        run(session.as_mut(), vec![part(0, 0, &[1, 2, 3], Wanted::All)]);
        session.discard(Slot(0));
        session.open(Slot(1), &PLAIN, None).unwrap();
        let got = run(session.as_mut(), vec![part(1, 0, &[5, 9], Wanted::Last)]);
        assert_eq!(got[0], alone(&RECURRENT[2], None, &[5, 9])[1]);
        session.close(Slot(1)).unwrap();
    }
}

#[test]
fn layers_with_states_stay_as_they_are() {
    for model in &RECURRENT {
        let mut session = open(model, &fake::open(), None);
        // Heads of 16 elements make no group of 32.
        let refused = model.layers.0 < model.layers.1;
        assert_eq!(session.exemptions(&encoded(3)).is_err(), refused);
        if refused {
            continue;
        }
        let exempt = session.exemptions(&encoded(3)).unwrap();
        assert_eq!(exempt.len(), model.layers.0);
        assert!(exempt[0].contains("it has no keys"), "{exempt:?}");
        assert_eq!(
            session.project_bytes(&PLAIN, &[1], 1).unwrap(),
            session.project_bytes(&PLAIN, &[40], 40).unwrap()
        );
        session.open(Slot(0), &encoded(3), None).unwrap();
        run(session.as_mut(), vec![part(0, 0, &[5, 6, 7], Wanted::None)]);
        let got = run(session.as_mut(), vec![part(0, 3, &[8], Wanted::Last)]);
        assert_eq!(got[0], alone(model, None, &[5, 6, 7, 8])[3]);
    }
}
