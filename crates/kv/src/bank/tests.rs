//! What rows do when a bank fails.

use super::{Bank, BankRows, Scope, Share};
use crate::{
    Blueprint, Kind, LayerShape,
    ragged::{Kit, Layer, RaggedRow, Runs, View},
    rows::{Part, Rows},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
};
use tandem_contracts::{
    fake,
    model::Slot,
    tensor::{Dtype, Error, ErrorKind, Result, Tensor},
};

const SHAPE: LayerShape = LayerShape { heads: 1, key_width: 2, value_width: 2 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Prepare,
    Append,
    Lift,
}

/// A bank that keeps nothing, and fails when it is told to.
#[derive(Debug)]
struct Frail {
    scope: Scope,
    slots: BTreeSet<Slot>,
    lost: bool,
    trouble: Rc<Cell<Trouble>>,
    /// Prepared and not settled, in any bank.
    waiting: Rc<RefCell<Vec<(usize, Slot)>>>,
}

/// Rows, and what their banks have in common.
struct Opened {
    rows: BankRows,
    trouble: Rc<Cell<Trouble>>,
    waiting: Rc<RefCell<Vec<(usize, Slot)>>>,
    x: Tensor,
}

impl Frail {
    fn check(&self, trouble: Trouble) -> Result<()> {
        if self.trouble.get() == trouble {
            return Err(Error::new(ErrorKind::Device, "frail", "failed"));
        }
        Ok(())
    }
}

impl Bank for Frail {
    fn holds(&self, slot: Slot) -> bool {
        self.slots.contains(&slot)
    }

    fn check(&self, slot: Slot) -> Result<()> {
        if self.lost && self.holds(slot) { Err(crate::ragged::lost()) } else { Ok(()) }
    }

    fn floor(&self, _: Slot) -> usize {
        0
    }

    fn prepare(&mut self, shares: &[Share], joining: &[(Slot, &Layer)]) -> Result<()> {
        self.check(Trouble::Prepare)?;
        self.slots.extend(joining.iter().map(|(slot, _)| *slot));
        self.waiting.borrow_mut().extend(shares.iter().map(|share| (self.scope.layer, share.slot)));
        Ok(())
    }

    fn append(&mut self, _: &[Share], _: &[Tensor]) -> Result<()> {
        self.lost = self.trouble.get() == Trouble::Append;
        self.check(Trouble::Append)
    }

    fn view(&self, share: &Share) -> Result<View> {
        View::over(self.scope.coders()?, &[], (share.step.position, Runs::new()))
    }

    fn settle(&mut self, slot: Slot, _: usize) {
        self.waiting.borrow_mut().retain(|waiting| *waiting != (self.scope.layer, slot));
    }

    fn lift(&self, _: Slot) -> Result<Layer> {
        self.check(Trouble::Lift)?;
        self.scope.lift(&[], &[], 0)
    }

    fn fork(&mut self, _: Slot, to: Slot) {
        self.slots.insert(to);
    }

    fn discard(&mut self, slot: Slot) {
        self.slots.remove(&slot);
    }

    fn planes(&self) -> &[Tensor] {
        &[]
    }
}

/// Rows 1, 2 and 3 of two layers, of which the second one fails as told.
fn open() -> Opened {
    let device = fake::open();
    let blueprint = Blueprint::plain(vec![Kind::Full(SHAPE); 2], Dtype::F32).unwrap();
    let kit = Kit::open(&device, blueprint).unwrap();
    let (trouble, waiting) = (Rc::new(Cell::new(Trouble::None)), Rc::default());
    let mut rows = BankRows::new(Rc::clone(&kit), 9, |layer, encoded| {
        let own = if layer == 1 { Rc::clone(&trouble) } else { Rc::new(Cell::new(Trouble::None)) };
        let scope = Scope { kit: Rc::clone(&kit), layer, encoded };
        let (slots, waiting) = (BTreeSet::new(), Rc::clone(&waiting));
        Some(Box::new(Frail { scope, slots, lost: false, trouble: own, waiting }))
    });
    for slot in 1..4 {
        rows.join(Slot(slot), RaggedRow::new(Rc::clone(&kit))).unwrap();
    }
    let x = device.upload_f32(&[0.5; 4], &[2, 1, 2]).unwrap();
    Opened { rows, trouble, waiting, x }
}

fn parts() -> [Part; 2] {
    [Part { slot: Slot(1), tokens: 0..1 }, Part { slot: Slot(2), tokens: 1..2 }]
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_step_that_finds_no_room_does_not_begin() {
    let Opened { mut rows, trouble, waiting, x } = open();
    trouble.set(Trouble::Prepare);
    assert_eq!(kind(rows.begin(&parts())), ErrorKind::Device);
    // The first layer was prepared already.
    assert!(waiting.borrow().is_empty());
    assert_eq!(kind(rows.commit(&[1, 1])), ErrorKind::State);
    trouble.set(Trouble::None);
    rows.begin(&parts()).unwrap();
    (0..2).for_each(|layer| rows.append(layer, &x, &x).unwrap());
    assert_eq!(waiting.borrow().len(), 4);
    rows.commit(&[1, 0]).unwrap();
    assert!(waiting.borrow().is_empty());
    assert_eq!([1, 2].map(|slot| rows.tokens(Slot(slot)).unwrap()), [1, 0]);
}

#[test]
fn rows_that_a_failure_hit_say_so_in_every_later_call() {
    let Opened { mut rows, trouble, x, .. } = open();
    rows.begin(&parts()).unwrap();
    rows.append(0, &x, &x).unwrap();
    trouble.set(Trouble::Append);
    assert_eq!(kind(rows.append(1, &x, &x)), ErrorKind::Device);
    trouble.set(Trouble::None);
    let later = [kind(rows.append(1, &x, &x)), kind(rows.views(1)), kind(rows.commit(&[1, 1]))];
    assert_eq!(later, [ErrorKind::State; 3]);
    rows.roll_back();
    for slot in [Slot(1), Slot(2)] {
        let later = [
            kind(rows.tokens(slot)),
            kind(rows.floor(slot)),
            kind(rows.trim(slot, 0)),
            kind(rows.fork(slot, Slot(9))),
            kind(rows.begin(&[Part { slot, tokens: 0..1 }])),
            kind(rows.leave(slot)),
        ];
        assert_eq!(later, [ErrorKind::State; 6]);
        assert!(rows.contains(slot) && !rows.contains(Slot(9)));
    }
    // The third one took no part.
    assert_eq!(rows.tokens(Slot(3)).unwrap(), 0);
    rows.fork(Slot(3), Slot(9)).unwrap();
    rows.discard(Slot(1));
    assert!(!rows.contains(Slot(1)));
}

#[test]
fn a_row_that_cannot_be_taken_out_stays() {
    let Opened { mut rows, trouble, x, .. } = open();
    rows.begin(&parts()).unwrap();
    (0..2).for_each(|layer| rows.append(layer, &x, &x).unwrap());
    rows.commit(&[0, 1]).unwrap();
    trouble.set(Trouble::Lift);
    assert_eq!(kind(rows.leave(Slot(2))), ErrorKind::Device);
    assert_eq!(rows.tokens(Slot(2)).unwrap(), 1);
    trouble.set(Trouble::None);
    assert_eq!(rows.leave(Slot(2)).unwrap().tokens(), 1);
    assert!(!rows.contains(Slot(2)));
}
