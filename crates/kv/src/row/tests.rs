//! Tests of a row: what was appended is what is read, through every transition.

use super::*;
use crate::LayerShape;
use tandem_contracts::{
    fake,
    tensor::{Dtype, Scalar},
};

const LAYER: LayerShape = LayerShape { heads: 2, key_width: 4, value_width: 2 };

fn row() -> Row {
    let geometry = Geometry::new(vec![LAYER; 2], Dtype::F32).unwrap();
    Row::new(fake::open(), Rc::new(geometry))
}

fn packed(row: &Row, tokens: usize, width: usize) -> Tensor {
    row.device.full(Scalar::Float(1.0), Dtype::F32, &[tokens, 2, width]).unwrap()
}

fn append(row: &mut Row, layer: usize, tokens: usize) -> Result<()> {
    let (keys, values) = (packed(row, tokens, 4), packed(row, tokens, 2));
    row.append(layer, &keys, &values, 0..tokens)
}

fn step(row: &mut Row, tokens: usize) -> Result<()> {
    row.begin(tokens)?;
    append(row, 0, tokens)?;
    append(row, 1, tokens)?;
    row.commit()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_step_counts_when_it_is_committed() {
    let mut row = row();
    assert_eq!((row.tokens(), row.bytes(), row.runs().len()), (0, 0, 0));
    row.begin(3).unwrap();
    assert_eq!((row.tokens(), row.runs()[0].positions.clone()), (0, 0..3));
    append(&mut row, 0, 3).unwrap();
    assert_eq!(row.span(0, 5..8).unwrap().position, 0);
    append(&mut row, 1, 3).unwrap();
    row.commit().unwrap();
    assert_eq!((row.tokens(), row.bytes()), (3, row.geometry().bytes(3)));
    row.begin(2).unwrap();
    assert_eq!((row.span(0, 0..2).unwrap().position, row.runs()[0].positions.clone()), (3, 0..5));
    row.roll_back();
    assert_eq!((row.tokens(), row.runs()[0].positions.clone()), (3, 0..3));
}

#[test]
fn calls_out_of_turn_are_refused_and_change_nothing() {
    let mut row = row();
    assert_eq!(kind(row.commit()), ErrorKind::State);
    assert_eq!(kind(append(&mut row, 0, 1)), ErrorKind::State);
    assert_eq!(kind(row.span(0, 0..1)), ErrorKind::State);
    assert_eq!(kind(row.begin(0)), ErrorKind::Index);
    assert_eq!(kind(row.begin(usize::MAX).and_then(|()| row.begin(1))), ErrorKind::Shape);
    row.roll_back();

    row.begin(2).unwrap();
    assert_eq!(kind(row.begin(2)), ErrorKind::State);
    assert_eq!(kind(row.trim(0)), ErrorKind::State);
    assert_eq!(kind(row.fork()), ErrorKind::State);
    assert_eq!(kind(append(&mut row, 1, 2)), ErrorKind::State);
    assert_eq!(kind(append(&mut row, 0, 3)), ErrorKind::Index);
    append(&mut row, 0, 2).unwrap();
    assert_eq!(kind(row.commit()), ErrorKind::State);
    append(&mut row, 1, 2).unwrap();
    assert_eq!(kind(append(&mut row, 2, 2)), ErrorKind::Index);
    row.commit().unwrap();
    assert_eq!(kind(row.trim(3)), ErrorKind::Index);
    assert_eq!(row.tokens(), 2);
}

#[test]
fn operands_that_do_not_fit_leave_the_row_usable() {
    let mut row = row();
    step(&mut row, 2).unwrap();
    row.begin(1).unwrap();
    let (narrow, wide) = (packed(&row, 1, 2), packed(&row, 1, 4));
    assert_eq!(kind(row.append(0, &narrow, &narrow, 0..1)), ErrorKind::Shape);
    assert_eq!(kind(row.append(0, &wide, &wide, 0..1)), ErrorKind::Shape);
    let foreign = fake::open().full(Scalar::Float(0.0), Dtype::F32, &[1, 2, 4]).unwrap();
    assert_eq!(kind(row.append(0, &foreign, &narrow, 0..1)), ErrorKind::Foreign);
    assert_eq!(kind(row.append(0, &wide, &narrow, 1..2)), ErrorKind::Index);
    row.append(0, &wide, &narrow, 0..1).unwrap();
    row.append(1, &wide, &narrow, 0..1).unwrap();
    row.commit().unwrap();
    assert_eq!(row.tokens(), 3);
}

#[test]
fn a_lost_plane_makes_every_later_call_an_error() {
    let mut row = row();
    step(&mut row, 2).unwrap();
    row.begin(1).unwrap();
    row.layers[1].values = Plain::lost(LAYER.heads, LAYER.value_width, Dtype::F32);
    append(&mut row, 0, 1).unwrap();
    assert_eq!(kind(append(&mut row, 1, 1)), ErrorKind::State);
    row.roll_back();
    assert_eq!(row.tokens(), 2);
    assert_eq!(kind(row.check_idle()), ErrorKind::State);
    assert_eq!(kind(row.begin(1)), ErrorKind::State);
    assert_eq!(kind(row.trim(1)), ErrorKind::State);
    assert_eq!(kind(RowState::fork(&row)), ErrorKind::State);
    assert_eq!(row.planes().count(), 3);
}
