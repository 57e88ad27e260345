//! Rows as bytes: what comes back goes on as if it had never been away, and nothing else comes back.

use crate::{
    SHAPE, affine, kit,
    naive::{Naive, append},
};
use proptest::prelude::*;
use std::rc::Rc;
use tandem_contracts::{
    fake,
    tensor::{Dtype, ErrorKind},
};
use tandem_kv::{
    Kind,
    codec::Scheme,
    policy::Encoding,
    ragged::{Kit, RaggedRow},
};

const MODEL: &[u8] = b"a model";

fn kinds(window: usize) -> [Kind; 3] {
    [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window, keep: window / 3 }, Kind::Shared { donor: 0 }]
}

fn open(window: usize, scheme: Scheme, start: usize) -> Naive {
    Naive::new(kit(&fake::open(), &kinds(window), Encoding::Uniform(scheme), start))
}

/// Steps that no threshold forbids, each checked.
fn grow(naive: &mut Naive, row: &mut RaggedRow, known: &mut Vec<u32>, tokens: usize) {
    let kit = Rc::clone(&naive.kit);
    for step in kit.blueprint().policy().split(row.tokens()..row.tokens() + tokens) {
        let ids: Vec<u32> = step.clone().map(|position| position as u32 * 3).collect();
        row.begin(ids.len()).unwrap();
        append(naive, &mut [(&mut *row, 0..ids.len())], &ids, usize::MAX);
        known.extend(ids);
        naive.check(row, known, step.clone());
        row.commit(step.len()).unwrap();
    }
}

fn restore(kit: &Rc<Kit>, bytes: &[u8]) -> tandem_contracts::tensor::Result<RaggedRow> {
    RaggedRow::restore(Rc::clone(kit), MODEL, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn rows_go_on_where_they_were(
        window in 1..9_usize,
        start in 0..12_usize,
        scheme in prop::sample::select(vec![Scheme::plain(Dtype::Bf16), affine(8), Scheme::turbo(4, 3)]),
        before in 0..25_usize,
        after in 1..9_usize,
    ) {
        let mut naive = open(window, scheme, start);
        let mut row = RaggedRow::new(Rc::clone(&naive.kit));
        let mut known = Vec::new();
        grow(&mut naive, &mut row, &mut known, before);
        let bytes = row.snapshot(MODEL).unwrap();
        // On another device, as after a restart.
        let mut naive = open(window, scheme, start);
        let mut back = restore(&naive.kit, &bytes).unwrap();
        prop_assert_eq!((back.tokens(), back.snapshot(MODEL).unwrap()), (before, bytes));
        prop_assert!(back.floor() >= row.floor() && back.floor() <= before);
        grow(&mut naive, &mut back, &mut known, after);
    }
}

/// A row of a few tokens, and its bytes.
fn stored() -> (Naive, Vec<u8>) {
    let mut naive = open(3, affine(8), 2);
    let mut row = RaggedRow::new(Rc::clone(&naive.kit));
    grow(&mut naive, &mut row, &mut Vec::new(), 5);
    let bytes = row.snapshot(MODEL).unwrap();
    (naive, bytes)
}

#[test]
fn any_cut_and_any_changed_bit_is_refused() {
    let (naive, bytes) = stored();
    let refused = |bytes: &[u8]| restore(&naive.kit, bytes).map(drop).unwrap_err().kind() == ErrorKind::Data;
    assert!((0..bytes.len()).step_by(7).chain([bytes.len() - 1]).all(|length| refused(&bytes[..length])));
    let mut changed = bytes.clone();
    // Every byte of preamble and header, and some of all others.
    for at in (0..1000).chain((1000..bytes.len()).step_by(11)) {
        let bit = 1 << (at % 8);
        changed[at] ^= bit;
        assert!(refused(&changed), "byte {at}");
        changed[at] ^= bit;
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(refused(&longer));
    assert!(restore(&naive.kit, &bytes).is_ok());
}

proptest! {
    #[test]
    fn nonsense_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), keep in 0..60_usize) {
        let (naive, stored) = stored();
        let kind = |bytes: &[u8]| restore(&naive.kit, bytes).map(drop).unwrap_err().kind();
        prop_assert_eq!(kind(&bytes), ErrorKind::Data);
        let mixed = [&stored[..keep], &bytes[..]].concat();
        prop_assert_eq!(kind(&mixed), ErrorKind::Data);
    }
}

/// The last byte is that of the last plane.
#[test]
fn nothing_is_made_of_bytes_before_all_were_checked() {
    let (_, mut bytes) = stored();
    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
    let kit = kit(&device, &kinds(3), Encoding::Uniform(affine(8)), 2);
    let before = device.memory().allocated;
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(restore(&kit, &bytes).unwrap_err().kind(), ErrorKind::Data);
    assert_eq!(device.memory().allocated, before);
    *bytes.last_mut().unwrap() ^= 1;
    restore(&kit, &bytes).unwrap();
    assert!(device.memory().allocated > before);
}

#[test]
fn refusals_give_their_reason() {
    let (naive, bytes) = stored();
    let reason = |result: tandem_contracts::tensor::Result<RaggedRow>| {
        let text = result.map(drop).unwrap_err().to_string();
        text.strip_prefix("restore: not a row that can be read: ").unwrap().to_owned()
    };
    let mut future = bytes.clone();
    future[8] = 2;
    assert_eq!(reason(restore(&naive.kit, &future)), "this program reads version 1, got: 2");
    let other = RaggedRow::restore(Rc::clone(&naive.kit), b"another", &bytes);
    assert_eq!(reason(other), "it is of another model");
    for kit in [open(4, affine(8), 2).kit, open(3, affine(4), 2).kit, open(3, affine(8), 3).kit] {
        assert_eq!(reason(restore(&kit, &bytes)), "it is of other layers, or stored otherwise");
    }
    assert_eq!(reason(restore(&naive.kit, &bytes[..40])), "it is cut off");
}

#[test]
fn planes_lie_on_pages() {
    let (naive, bytes) = stored();
    // Layer 0: codes, scales and biases of keys, then of values, five positions; layer 1 two positions.
    let columns = |positions: usize| [64, 4, 4].map(|bytes| 2 * positions * bytes);
    let planes = [columns(5), columns(5), columns(2), columns(2)].concat();
    assert_eq!(bytes.len(), 4096 * 12 + planes.last().unwrap());
    let row = restore(&naive.kit, &bytes).unwrap();
    let codes = row.planes().next().unwrap().to_vec::<u32>().unwrap();
    let stored: Vec<u32> =
        bytes[4096..4096 + 64].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(codes[..16], stored);
}

#[test]
fn rows_in_a_step_are_not_stored() {
    let naive = open(3, affine(8), 0);
    let mut row = RaggedRow::new(Rc::clone(&naive.kit));
    row.begin(1).unwrap();
    assert_eq!(row.snapshot(MODEL).unwrap_err().kind(), ErrorKind::State);
}
