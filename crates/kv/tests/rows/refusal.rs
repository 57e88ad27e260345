//! Calls that do not fit: a typed error, and the row as it was.

use crate::{
    SHAPE, affine, kit,
    naive::{Naive, Side, append, packed},
    recurrent::{SHORT, inputs},
};
use std::rc::Rc;
use tandem_contracts::{
    fake,
    tensor::{Device, Dtype, ErrorKind, Result, Scalar, Tensor},
};
use tandem_kv::{
    Kind, LayerShape,
    policy::Encoding,
    ragged::{Packed, RaggedRow, recur},
    recurrence::{Carried, Carry, Recurrence, State},
};

const KINDS: [Kind; 3] =
    [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: 3, keep: 0 }, Kind::Shared { donor: 0 }];

fn open(start: usize) -> (Naive, RaggedRow) {
    let kit = kit(&fake::open(), &KINDS, Encoding::Uniform(affine(8)), start);
    (Naive::new(Rc::clone(&kit)), RaggedRow::new(kit))
}

fn step(naive: &Naive, row: &mut RaggedRow, tokens: usize) {
    row.begin(tokens).unwrap();
    append(naive, &mut [(&mut *row, 0..tokens)], &vec![7; tokens], usize::MAX);
    row.commit(tokens).unwrap();
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn floats(device: &Device, shape: &[usize]) -> Tensor {
    device.upload_f32(&vec![0.5; shape.iter().product()], shape).unwrap()
}

#[test]
fn calls_out_of_turn() {
    let (naive, mut row) = open(0);
    assert_eq!(kind(row.commit(0)), ErrorKind::State);
    assert_eq!(kind(row.view(0)), ErrorKind::State);
    assert_eq!(kind(row.begin(0)), ErrorKind::Index);
    assert_eq!(kind(row.begin(usize::MAX)), ErrorKind::Shape);
    row.begin(2).unwrap();
    assert_eq!(kind(row.begin(2)), ErrorKind::State);
    assert_eq!(kind(row.trim(0)), ErrorKind::State);
    assert_eq!(kind(row.fork()), ErrorKind::State);
    assert_eq!(kind(row.commit(2)), ErrorKind::State);
    assert_eq!(kind(row.view(0)), ErrorKind::State);
    append(&naive, &mut [(&mut row, 0..2)], &[1, 2], 1);
    assert!(row.view(0).is_ok() && row.view(2).is_ok());
    assert_eq!(kind(row.view(1)), ErrorKind::State);
    assert_eq!(kind(row.view(3)), ErrorKind::Index);
    row.roll_back();
    step(&naive, &mut row, 2);
    assert_eq!(kind(row.commit(2)), ErrorKind::State);
    assert_eq!(row.tokens(), 2);
}

#[test]
fn more_kept_than_there_is() {
    let (naive, mut row) = open(0);
    row.begin(2).unwrap();
    append(&naive, &mut [(&mut row, 0..2)], &[1, 2], usize::MAX);
    assert_eq!(kind(row.commit(3)), ErrorKind::Index);
    row.commit(1).unwrap();
    assert_eq!(row.tokens(), 1);
}

#[test]
fn operands_that_do_not_fit() {
    let (naive, mut row) = open(0);
    let device = naive.device();
    row.begin(2).unwrap();
    let good = packed(&naive.kit, &[1, 2], 0, Side::Keys);
    let mut offer = |layer, keys: &Tensor, values: &Tensor, range| {
        row.append(&mut Packed::new(&naive.kit, layer, keys, values), range)
    };
    assert_eq!(kind(offer(1, &good, &good, 0..2)), ErrorKind::State);
    assert_eq!(kind(offer(2, &good, &good, 0..2)), ErrorKind::State);
    assert_eq!(kind(offer(9, &good, &good, 0..2)), ErrorKind::Index);
    assert_eq!(kind(offer(0, &good, &good, 0..1)), ErrorKind::Index);
    assert_eq!(kind(offer(0, &good, &good, 1..3)), ErrorKind::Index);
    assert_eq!(kind(offer(0, &floats(&device, &[2, 2, 32]), &good, 0..2)), ErrorKind::Shape);
    assert_eq!(kind(offer(0, &good, &floats(&device, &[2, 1, 64]), 0..2)), ErrorKind::Shape);
    let integers = device.cast(&good, Dtype::I32).unwrap();
    assert_eq!(kind(offer(0, &integers, &good, 0..2)), ErrorKind::Dtype);
    let foreign = floats(&fake::open(), &[2, 2, 64]);
    assert_eq!(kind(offer(0, &foreign, &foreign, 0..2)), ErrorKind::Foreign);
    offer(0, &good, &good, 0..2).unwrap();
    let (other, _) = open(0);
    assert_eq!(kind(row.append(&mut Packed::new(&other.kit, 1, &good, &good), 0..2)), ErrorKind::State);
}

#[test]
fn steps_that_cross_a_threshold() {
    let (naive, mut row) = open(5);
    assert_eq!(kind(row.begin(6)), ErrorKind::Index);
    step(&naive, &mut row, 3);
    assert_eq!(kind(row.begin(3)), ErrorKind::Index);
    step(&naive, &mut row, 2);
    step(&naive, &mut row, 9);
    assert_eq!(row.tokens(), 14);
}

#[test]
fn trims_below_what_is_kept() {
    let (naive, mut row) = open(2);
    step(&naive, &mut row, 2);
    assert_eq!(row.floor(), 0);
    step(&naive, &mut row, 2);
    // Converted at 2.
    assert_eq!(row.floor(), 2);
    assert_eq!(kind(row.trim(1)), ErrorKind::Index);
    assert_eq!(kind(row.trim(5)), ErrorKind::Index);
    row.trim(3).unwrap();
    for _ in 0..5 {
        step(&naive, &mut row, 1);
    }
    // The window has gone round its columns: only what it can still read from is left.
    assert!(row.floor() > 2 && row.floor() <= 8);
    assert_eq!(kind(row.trim(row.floor() - 1)), ErrorKind::Index);
    assert_eq!(row.tokens(), 8);
}

/// A state has its turn, its range and its shape, and is never shortened.
#[test]
fn layers_that_carry_a_state() {
    let device = fake::open();
    let kit = kit(&device, &[SHORT, Kind::Full(SHAPE)], Encoding::None, 0);
    let mut naive = Naive::new(Rc::clone(&kit));
    let mut row = RaggedRow::new(Rc::clone(&kit));
    let net = naive.alone.get_mut().net(&kit, 0);
    let short = inputs(&kit, &[1, 2], 0);
    let carry = |layer, row: &mut RaggedRow, tokens| recur(layer, &short, &net, &mut [(row, tokens)]);
    assert_eq!(kind(carry(0, &mut row, 0..2)), ErrorKind::State, "no step is open");
    row.begin(2).unwrap();
    assert_eq!(kind(carry(1, &mut row, 0..2)), ErrorKind::State, "it has keys");
    assert_eq!(kind(carry(2, &mut row, 0..2)), ErrorKind::Index, "there is none");
    assert_eq!(kind(carry(0, &mut row, 0..1)), ErrorKind::Index, "another length");
    assert_eq!(kind(row.view(0)), ErrorKind::State, "no keys");
    let x = floats(&device, &[2, 2, 64]);
    assert_eq!(kind(row.append(&mut Packed::new(&kit, 0, &x, &x), 0..2)), ErrorKind::State, "no keys");
    carry(0, &mut row, 0..2).unwrap();
    assert_eq!(kind(carry(0, &mut row, 0..2)), ErrorKind::State, "twice");
    assert_eq!(kind(row.commit(2)), ErrorKind::State, "the other layer");
    row.append(&mut Packed::new(&kit, 1, &x, &x), 0..2).unwrap();
    assert_eq!(kind(row.commit(3)), ErrorKind::Index, "more than there are");
    row.commit(1).unwrap();
    assert_eq!((row.tokens(), row.floor()), (1, 1));
    assert_eq!(kind(row.trim(0)), ErrorKind::Index);
    row.trim(1).unwrap();
    assert_eq!(row.bytes(), kit.blueprint().bytes(1));
}

/// States of another shape, or too few of them, are not taken.
#[test]
fn a_recurrence_that_gives_something_else() {
    #[derive(Debug)]
    struct Odd(Vec<State>);
    impl Recurrence for Odd {
        fn carry(&self, inputs: &[Tensor], _: &[Carried<'_>]) -> Result<Carry> {
            Ok(Carry { outputs: inputs[0].clone(), states: self.0.clone() })
        }
    }
    let device = fake::open();
    let kit = kit(&device, &[SHORT], Encoding::None, 0);
    let mut row = RaggedRow::new(Rc::clone(&kit));
    row.begin(1).unwrap();
    let zeros = |dtype, shape: &[usize]| device.full(Scalar::Float(0.0), dtype, shape).unwrap();
    let (tail, matrix) = (zeros(Dtype::Bf16, &[2, 7]), zeros(Dtype::F32, &[0, 1, 1]));
    let good = State { tail, matrix };
    let odd = [
        vec![],
        vec![good.clone(), good.clone()],
        vec![State { tail: zeros(Dtype::F32, &[2, 7]), ..good.clone() }],
        vec![State { tail: zeros(Dtype::Bf16, &[3, 7]), ..good.clone() }],
        vec![State { matrix: zeros(Dtype::F32, &[1, 1, 1]), ..good.clone() }],
    ];
    let x = [floats(&device, &[1, 7])];
    let mut give = |states| {
        let odd: Rc<dyn Recurrence> = Rc::new(Odd(states));
        recur(0, &x, &odd, &mut [(&mut row, 0..1)])
    };
    for states in odd {
        assert_eq!(kind(give(states)), ErrorKind::Shape);
    }
    give(vec![good]).unwrap();
    row.commit(1).unwrap();
}

/// Elements that are not finite end the row that they belong to, not its company.
#[test]
fn unsound_tokens_are_flagged_for_their_own_row() {
    let (naive, mut row) = open(0);
    let mut other = row.fork().unwrap();
    let device = naive.device();
    let mut elements = vec![0.5; 3 * 2 * 64];
    elements[2 * 2 * 64 + 9] = f32::NAN;
    let bad = device.upload_f32(&elements, &[3, 2, 64]).unwrap();
    row.begin(2).unwrap();
    other.begin(1).unwrap();
    let mut sound = None;
    for layer in naive.own() {
        let mut packed = Packed::new(&naive.kit, layer, &bad, &bad);
        row.append(&mut packed, 0..2).unwrap();
        other.append(&mut packed, 2..3).unwrap();
        sound = packed.sound(sound).unwrap();
    }
    assert_eq!(sound.unwrap().to_vec::<bool>().unwrap(), [true, true, false]);
}

/// What was plain and not finite is found when the row converts, and stays known until a step has reported it.
#[test]
fn unsound_rows_are_flagged_when_they_convert() {
    let (naive, mut row) = open(1);
    let device = naive.device();
    let bad = device.upload_f32(&[f32::INFINITY; 128], &[1, 2, 64]).unwrap();
    row.begin(1).unwrap();
    for layer in naive.own() {
        row.append(&mut Packed::new(&naive.kit, layer, &bad, &bad), 0..1).unwrap();
    }
    row.commit(1).unwrap();
    assert!(row.sound().is_none());
    row.begin(1).unwrap();
    row.roll_back();
    row.begin(1).unwrap();
    append(&naive, &mut [(&mut row, 0..1)], &[7], usize::MAX);
    assert_eq!(row.sound().unwrap().to_vec::<bool>().unwrap(), [false]);
    row.commit(1).unwrap();
    assert!(row.sound().is_none());
}

#[test]
fn widths_that_differ_between_keys_and_values() {
    let shape = LayerShape { heads: 2, key_width: 64, value_width: 32 };
    let device: Device = fake::open();
    let kit = kit(&device, &[Kind::Full(shape)], Encoding::Uniform(affine(4)), 1);
    let mut row = RaggedRow::new(Rc::clone(&kit));
    for _ in 0..2 {
        let (keys, values) = (floats(&device, &[1, 2, 64]), floats(&device, &[1, 2, 32]));
        row.begin(1).unwrap();
        row.append(&mut Packed::new(&kit, 0, &keys, &values), 0..1).unwrap();
        row.commit(1).unwrap();
    }
    assert_eq!(row.bytes(), kit.blueprint().bytes(2));
}
