//! Calls on rows, whatever their layout, that do not fit: a typed error, and everything as it was.

use crate::{
    SHAPE, affine, kit, kit_of,
    life::Layout,
    naive::{Naive, Side, packed},
    recurrent::{DELTA, SHORT, SPACE, inputs},
};
use std::{fmt::Debug, ops::Range, rc::Rc};
use tandem_contracts::{
    fake,
    model::Slot,
    tensor::{Affine, Dtype, ErrorKind, Result, Tensor},
};
use tandem_kv::{
    Kind,
    codec::Scheme,
    policy::Encoding,
    ragged::RaggedRow,
    rows::{Part, Rows},
};

const START: usize = 5;

const LAYOUTS: [Layout; 5] =
    [Layout::Ragged, Layout::Padded(9), Layout::Padded(1), Layout::Paged(4, 1000), Layout::Paged(1, 1000)];

/// Two rows, 1 and 2, of three and of seven tokens.
fn open(layout: Layout) -> (Naive, Box<dyn Rows>) {
    let kinds =
        [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: 3, keep: 0 }, Kind::Shared { donor: 0 }];
    let naive = Naive::new(kit(&fake::open(), &kinds, Encoding::Uniform(affine(8)), START));
    let mut rows = layout.open(&naive);
    for slot in [1, 2] {
        rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
    }
    for (parts, keep) in
        [(vec![part(1, 0..1), part(2, 1..6)], vec![1, 5]), (vec![part(2, 0..2), part(1, 2..4)], vec![2, 2])]
    {
        step(&naive, &mut *rows, &parts, &keep);
    }
    (naive, rows)
}

fn part(slot: u32, tokens: Range<usize>) -> Part {
    Part { slot: Slot(slot), tokens }
}

fn append(naive: &Naive, rows: &mut dyn Rows, tokens: usize, layers: usize) {
    for layer in naive.own().take(layers) {
        let [keys, values] =
            [Side::Keys, Side::Values].map(|side| packed(&naive.kit, &vec![7; tokens], layer, side));
        rows.append(layer, &keys, &values).unwrap();
    }
}

fn step(naive: &Naive, rows: &mut dyn Rows, parts: &[Part], keep: &[usize]) {
    rows.begin(parts).unwrap();
    append(naive, rows, parts.iter().map(|part| part.tokens.len()).sum(), usize::MAX);
    rows.commit(keep).unwrap();
}

fn kind<T: Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// That the rows are as [`open`] made them: each takes one more token.
fn check_whole(naive: &Naive, rows: &mut dyn Rows, layout: Layout) {
    assert_eq!([1, 2].map(|slot| rows.tokens(Slot(slot)).unwrap()), [3, 7], "{layout:?}");
    step(naive, rows, &[part(2, 0..1), part(1, 1..2)], &[1, 1]);
    assert_eq!([1, 2].map(|slot| rows.tokens(Slot(slot)).unwrap()), [4, 8], "{layout:?}");
}

#[test]
fn steps_that_cannot_begin() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        let mut refused = |parts: &[Part]| kind(rows.begin(parts));
        assert_eq!(refused(&[]), ErrorKind::Index);
        assert_eq!(refused(&[part(1, 4..4)]), ErrorKind::Index);
        assert_eq!(refused(&[part(3, 0..1)]), ErrorKind::State);
        assert_eq!(refused(&[part(1, 0..1), part(3, 1..2)]), ErrorKind::State);
        assert_eq!(refused(&[part(1, 0..1), part(1, 1..2)]), ErrorKind::State);
        // Three tokens and three more cross the threshold at five, alone and in company.
        assert_eq!(refused(&[part(1, 0..3)]), ErrorKind::Index);
        assert_eq!(refused(&[part(2, 0..1), part(1, 1..4)]), ErrorKind::Index);
        refused(&[part(1, 0..1), part(2, 1..usize::MAX)]);
        refused(&[part(2, 0..usize::MAX)]);
        rows.begin(&[part(1, 0..1)]).unwrap();
        assert_eq!(kind(rows.begin(&[part(2, 0..1)])), ErrorKind::State);
        rows.roll_back();
        rows.roll_back();
        check_whole(&naive, &mut *rows, layout);
    }
}

#[test]
fn calls_without_a_step() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        let x = packed(&naive.kit, &[7], 0, Side::Keys);
        assert_eq!(kind(rows.append(0, &x, &x)), ErrorKind::State);
        assert_eq!(kind(rows.views(0)), ErrorKind::State);
        assert_eq!(kind(rows.sound()), ErrorKind::State);
        assert_eq!(kind(rows.commit(&[])), ErrorKind::State);
        check_whole(&naive, &mut *rows, layout);
        assert_eq!(kind(rows.commit(&[1, 1])), ErrorKind::State);
    }
}

#[test]
fn calls_out_of_turn() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        rows.begin(&[part(2, 0..2), part(1, 2..4)]).unwrap();
        let x = packed(&naive.kit, &[7; 4], 1, Side::Keys);
        assert_eq!(kind(rows.append(1, &x, &x)), ErrorKind::State);
        assert_eq!(kind(rows.append(2, &x, &x)), ErrorKind::State);
        assert_eq!(kind(rows.append(3, &x, &x)), ErrorKind::Index);
        assert_eq!(kind(rows.views(0)), ErrorKind::State);
        append(&naive, &mut *rows, 4, 1);
        assert_eq!(kind(rows.append(0, &x, &x)), ErrorKind::State);
        assert_eq!([0, 2].map(|layer| rows.views(layer).unwrap().len()), [2, 2]);
        assert_eq!(kind(rows.views(1)), ErrorKind::State);
        assert_eq!(kind(rows.views(3)), ErrorKind::Index);
        assert_eq!(kind(rows.commit(&[2, 2])), ErrorKind::State);
        rows.append(1, &x, &x).unwrap();
        assert_eq!(kind(rows.commit(&[2])), ErrorKind::Index);
        assert_eq!(kind(rows.commit(&[2, 2, 0])), ErrorKind::Index);
        assert_eq!(kind(rows.commit(&[2, 3])), ErrorKind::Index);
        rows.commit(&[0, 0]).unwrap();
        check_whole(&naive, &mut *rows, layout);
    }
}

#[test]
fn rows_that_take_part_in_a_step() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        rows.begin(&[part(1, 0..1)]).unwrap();
        assert_eq!(kind(rows.tokens(Slot(1))), ErrorKind::State);
        assert_eq!(kind(rows.floor(Slot(1))), ErrorKind::State);
        assert_eq!(kind(rows.leave(Slot(1))), ErrorKind::State);
        assert_eq!(kind(rows.trim(Slot(1), 1)), ErrorKind::State);
        assert_eq!(kind(rows.fork(Slot(1), Slot(3))), ErrorKind::State);
        assert!(!rows.contains(Slot(3)));
        // The other one does as it likes.
        rows.fork(Slot(2), Slot(3)).unwrap();
        rows.trim(Slot(3), 6).unwrap();
        assert_eq!(rows.leave(Slot(3)).unwrap().tokens(), 6);
        append(&naive, &mut *rows, 1, usize::MAX);
        rows.roll_back();
        check_whole(&naive, &mut *rows, layout);
    }
}

#[test]
fn rows_that_cannot_join_or_leave() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        let row = || RaggedRow::new(Rc::clone(&naive.kit));
        assert_eq!(kind(rows.join(Slot(1), row())), ErrorKind::State);
        let (other, _) = open(Layout::Ragged);
        assert_eq!(kind(rows.join(Slot(3), RaggedRow::new(other.kit))), ErrorKind::State);
        let mut busy = row();
        busy.begin(1).unwrap();
        assert_eq!(kind(rows.join(Slot(3), busy)), ErrorKind::State);
        assert_eq!(kind(rows.fork(Slot(1), Slot(2))), ErrorKind::State);
        for missing in
            [kind(rows.leave(Slot(3))), kind(rows.fork(Slot(3), Slot(4))), kind(rows.tokens(Slot(3)))]
        {
            assert_eq!(missing, ErrorKind::State);
        }
        assert_eq!(kind(rows.trim(Slot(2), 8)), ErrorKind::Index);
        // It has passed its threshold.
        assert!(rows.floor(Slot(2)).unwrap() >= START);
        assert_eq!(kind(rows.trim(Slot(2), START - 1)), ErrorKind::Index);
        check_whole(&naive, &mut *rows, layout);
    }
}

#[test]
fn operands_that_do_not_fit() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        let device = naive.device();
        let floats = |shape: &[usize]| device.upload_f32(&vec![0.5; shape.iter().product()], shape).unwrap();
        let good = floats(&[3, 2, 64]);
        let elsewhere = fake::open().upload_f32(&[0.5; 3 * 2 * 64], &[3, 2, 64]).unwrap();
        let mut refused = |keys: &Tensor, values: &Tensor| {
            rows.begin(&[part(1, 0..1), part(2, 1..3)]).unwrap();
            let refused = kind(rows.append(0, keys, values));
            rows.roll_back();
            refused
        };
        assert_eq!(refused(&floats(&[3, 2, 32]), &good), ErrorKind::Shape);
        assert_eq!(refused(&good, &floats(&[3, 1, 64])), ErrorKind::Shape);
        assert_eq!(refused(&floats(&[2, 2, 64]), &floats(&[2, 2, 64])), ErrorKind::Index);
        let integers = device.cast(&good, Dtype::I32).unwrap();
        assert_eq!(refused(&integers, &good), ErrorKind::Dtype);
        assert_eq!(refused(&elsewhere, &elsewhere), ErrorKind::Foreign);
        check_whole(&naive, &mut *rows, layout);
    }
}

#[test]
fn a_row_may_end_within_a_step() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        rows.begin(&[part(2, 0..2), part(1, 2..4)]).unwrap();
        append(&naive, &mut *rows, 4, 1);
        rows.discard(Slot(2));
        let x = packed(&naive.kit, &[7; 4], 1, Side::Keys);
        rows.append(1, &x, &x).unwrap();
        assert_eq!(rows.views(1).unwrap().len(), 1);
        rows.commit(&[1]).unwrap();
        assert_eq!((rows.contains(Slot(2)), rows.tokens(Slot(1)).unwrap()), (false, 4));
        rows.discard(Slot(1));
        assert_eq!(kind(rows.begin(&[part(1, 0..1)])), ErrorKind::State);
    }
}

/// Flags of a step of one token of each row, whose keys and values in layer `bad` are as given, and elsewhere 0.5.
fn flags(rows: &mut dyn Rows, parts: &[Part], bad: usize, elements: &[f32]) -> Vec<i32> {
    let kit = Rc::clone(rows.kit());
    rows.begin(parts).unwrap();
    let shape = [elements.len() / 128, 2, 64];
    for (layer, kind) in kit.blueprint().kinds().iter().enumerate() {
        if kind.shape().is_some() {
            let good = vec![0.5; elements.len()];
            let x = kit.device().upload_f32(if layer == bad { elements } else { &good }, &shape).unwrap();
            rows.append(layer, &x, &x).unwrap();
        }
    }
    let flags = rows.sound().unwrap().unwrap().to_vec::<i32>().unwrap();
    rows.roll_back();
    flags
}

/// Numbers that are not finite end the row that they belong to, not its company, whichever layer they are in and however
/// it is stored.
#[test]
fn unsound_tokens_are_flagged_for_their_own_row() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        // Rows 2 and 3 have passed their threshold, row 1 is plain.
        rows.fork(Slot(2), Slot(3)).unwrap();
        let parts = [part(2, 0..1), part(1, 1..2), part(3, 2..4)];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (token, expected) in [(0, [0, 1, 1]), (1, [1, 0, 1]), (3, [1, 1, 0])] {
                for layer in [0, 1] {
                    let mut elements = vec![0.5; 4 * 2 * 64];
                    elements[token * 128 + 64] = bad;
                    assert_eq!(flags(&mut *rows, &parts, layer, &elements), expected, "{layout:?}");
                }
            }
        }
        check_whole(&naive, &mut *rows, layout);
    }
}

/// A state that is not finite ends its own row, in the step that makes it so and in every later one.
#[test]
fn unsound_states_are_flagged_for_their_own_row() {
    for layer in [DELTA, SPACE, SHORT] {
        let naive = Naive::new(kit(&fake::open(), &[layer], Encoding::None, 0));
        let net = naive.alone.borrow_mut().net(&naive.kit, 0);
        let device = naive.kit.device();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut rows = Layout::Ragged.open(&naive);
            for slot in [1, 2] {
                rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
            }
            let mut step = |parts: &[Part], keep: &[usize], at: Option<usize>| {
                let tokens = parts.iter().map(|part| part.tokens.len()).sum();
                let mut inputs = inputs(&naive.kit, &vec![7; tokens], 0);
                let mut x = device.cast(&inputs[0], Dtype::F32).unwrap().to_vec::<f32>().unwrap();
                if let Some(token) = at {
                    x[token * inputs[0].shape()[1] + 6] = bad;
                }
                let x = device.upload_f32(&x, inputs[0].shape()).unwrap();
                inputs[0] = device.cast(&x, inputs[0].dtype()).unwrap();
                rows.begin(parts).unwrap();
                rows.recur(0, &inputs, &net).unwrap();
                let sound = rows.sound().unwrap().unwrap().to_vec::<i32>().unwrap();
                rows.commit(keep).unwrap();
                sound
            };
            assert_eq!(step(&[part(1, 0..2), part(2, 2..3)], &[2, 1], None), [1, 1]);
            assert_eq!(step(&[part(1, 0..2), part(2, 2..5)], &[2, 3], Some(3)), [1, 0], "{layer:?}, {bad}");
            assert_eq!(step(&[part(2, 0..1), part(1, 1..2)], &[1, 1], None), [0, 1], "{layer:?}, {bad}");
        }
    }
}

/// A number beyond the range of what it is stored in is found where it is stored so, and nowhere else.
#[test]
fn numbers_that_overflow_are_flagged_where_they_are_stored() {
    for layout in LAYOUTS {
        for (plain, before) in [(Dtype::F16, 0), (Dtype::F32, 1)] {
            let kinds = [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: 3, keep: 0 }];
            let affine = Scheme::affine(Affine { bits: 8, group: 32 }, Dtype::F16);
            let device = fake::open();
            let naive = Naive::new(kit_of(plain, &device, &kinds, Encoding::Uniform(affine), 1));
            let mut rows = layout.open(&naive);
            for slot in [1, 2] {
                rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
            }
            step(&naive, &mut *rows, &[part(2, 0..1)], &[1]);
            // Row 1 is plain in this step, row 2 is encoded.
            let parts = [part(1, 0..1), part(2, 1..2)];
            let elements = vec![1e6; 2 * 128];
            assert_eq!(flags(&mut *rows, &parts, 1, &elements), [before, 0], "{layout:?}, {plain:?}");
        }
    }
}

/// After tokens that could not be appended nothing is left but to give the step up.
#[test]
fn a_step_that_failed_can_only_be_given_up() {
    for layout in LAYOUTS {
        let (naive, mut rows) = open(layout);
        rows.begin(&[part(1, 0..1), part(2, 1..2)]).unwrap();
        let x = packed(&naive.kit, &[7; 2], 0, Side::Keys);
        rows.append(0, &x, &x).unwrap();
        // Row 1 finds its token, row 2 does not.
        let short = packed(&naive.kit, &[7], 1, Side::Keys);
        rows.append(1, &short, &short).unwrap_err();
        let later = [
            kind(rows.append(1, &x, &x)),
            kind(rows.views(0)),
            kind(rows.sound()),
            kind(rows.begin(&[part(2, 0..1)])),
            kind(rows.commit(&[1, 1])),
        ];
        assert_eq!(later, [ErrorKind::State; 5], "{layout:?}");
        rows.roll_back();
        check_whole(&naive, &mut *rows, layout);
    }
}
