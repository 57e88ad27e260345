//! Pools of blocks: how they grow, who shares what, and what happens when there is none left.

use crate::{
    SHAPE, kit,
    naive::{Naive, Side, packed},
};
use std::{num::NonZeroUsize, rc::Rc};
use tandem_contracts::{
    model::Slot,
    tensor::{Device, ErrorKind, Result},
};
use tandem_kv::{
    Kind,
    bank::{BankRows, Paging},
    policy::Encoding,
    ragged::RaggedRow,
    rows::{Part, Rows},
};

const BLOCK: usize = 16;

/// Rows in pools that have as many blocks at first, and at most.
fn open(first: usize, most: usize) -> (Naive, Device, BankRows) {
    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
    let kit = kit(&device, &[Kind::Full(SHAPE); 2], Encoding::None, 0);
    let block = NonZeroUsize::new(BLOCK).unwrap();
    let rows = BankRows::paged(Rc::clone(&kit), Paging { block, tokens: first * BLOCK, most: most * BLOCK });
    (Naive::new(kit), device, rows)
}

fn begin(rows: &mut BankRows, slots: &[u32], tokens: usize) -> Result<()> {
    let part = |(index, &slot): (usize, &u32)| Part {
        slot: Slot(slot),
        tokens: index * tokens..(index + 1) * tokens,
    };
    rows.begin(&slots.iter().enumerate().map(part).collect::<Vec<_>>())
}

/// A step of so many tokens of each row, all kept; gives the number of blocks in each layer's pool.
fn step(naive: &Naive, rows: &mut BankRows, slots: &[u32], tokens: usize) -> Result<usize> {
    begin(rows, slots, tokens)?;
    for layer in naive.own() {
        let ids = vec![7; slots.len() * tokens];
        let [keys, values] = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, &ids, layer, side));
        rows.append(layer, &keys, &values)?;
    }
    let planes = rows.commit(&vec![tokens; slots.len()])?;
    assert!(planes.iter().all(|plane| plane.shape()[0] == planes[0].shape()[0]));
    Ok(planes[0].shape()[0])
}

fn join(naive: &Naive, rows: &mut BankRows, slot: u32) {
    rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
}

#[test]
fn pools_grow_by_half_up_to_their_limit() {
    let (naive, _, mut rows) = open(4, 20);
    join(&naive, &mut rows, 1);
    let sizes = [1, 63, 1, 31, 1, 47, 1, 63, 1, 95, 1, 15]
        .map(|tokens| step(&naive, &mut rows, &[1], tokens).unwrap_or(0));
    // By half of 4, of 6, of 9 and of 13; of 19 only to the limit.
    assert_eq!(sizes, [4, 4, 6, 6, 9, 9, 13, 13, 19, 19, 20, 20]);
    assert_eq!(rows.tokens(Slot(1)).unwrap(), 320);
    assert_eq!(step(&naive, &mut rows, &[1], 1).unwrap_err().kind(), ErrorKind::Memory);
}

#[test]
fn exhaustion_loses_nothing() {
    let (naive, _, mut rows) = open(3, 3);
    for slot in [1, 2] {
        join(&naive, &mut rows, slot);
    }
    step(&naive, &mut rows, &[1], 20).unwrap();
    step(&naive, &mut rows, &[2], 16).unwrap();
    // Row 1 has room for 12 more tokens, row 2 for none.
    let error = begin(&mut rows, &[1, 2], 1).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Memory, "pool: 0 of 3 blocks are free, wanted: 1".to_owned())
    );
    assert_eq!(begin(&mut rows, &[1], 13).unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!([1, 2].map(|slot| rows.tokens(Slot(slot)).unwrap()), [20, 16]);
    step(&naive, &mut rows, &[1], 12).unwrap();
    // A whole block that is cut off the end of a row is another row's.
    rows.trim(Slot(1), 16).unwrap();
    step(&naive, &mut rows, &[2], 1).unwrap();
    // So is one that a step took and did not keep.
    rows.trim(Slot(2), 16).unwrap();
    begin(&mut rows, &[2], 3).unwrap();
    assert_eq!(begin(&mut rows, &[1], 1).unwrap_err().kind(), ErrorKind::State);
    rows.roll_back();
    step(&naive, &mut rows, &[1], 1).unwrap();
    // And those of a row that is gone.
    rows.discard(Slot(1));
    step(&naive, &mut rows, &[2], 32).unwrap();
    assert_eq!(rows.leave(Slot(2)).unwrap().tokens(), 48);
    join(&naive, &mut rows, 3);
    step(&naive, &mut rows, &[3], 48).unwrap();
}

/// A row that joins with planes of its own waits in them until there is room.
#[test]
fn a_row_that_finds_no_room_keeps_its_own_planes() {
    let (naive, _, mut rows) = open(2, 2);
    for slot in [1, 2] {
        join(&naive, &mut rows, slot);
    }
    step(&naive, &mut rows, &[1], 17).unwrap();
    let row = rows.leave(Slot(1)).unwrap();
    step(&naive, &mut rows, &[2], 1).unwrap();
    rows.join(Slot(1), row).unwrap();
    assert_eq!(begin(&mut rows, &[1], 1).unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!(rows.tokens(Slot(1)).unwrap(), 17);
    rows.discard(Slot(2));
    step(&naive, &mut rows, &[1], 1).unwrap();
}

/// Forks share blocks; of those that write into a shared one all but the last get a copy of that block alone.
#[test]
fn forks_share_blocks_until_they_write() {
    let (naive, device, mut rows) = open(8, 8);
    join(&naive, &mut rows, 1);
    step(&naive, &mut rows, &[1], 5 * BLOCK + 3).unwrap();
    let before = device.memory().allocated;
    for slot in [2, 3] {
        rows.fork(Slot(1), Slot(slot)).unwrap();
    }
    assert_eq!(device.memory().allocated, before);
    // Six blocks are used, and each of three rows needs its own sixth one: two copies.
    begin(&mut rows, &[1, 2, 3], 1).unwrap();
    let block = naive.kit.blueprint().bytes_per_token() * BLOCK;
    let copied = (device.memory().allocated - before) as usize;
    assert!((2 * block..3 * block).contains(&copied), "{copied}, a block: {block}");
    rows.roll_back();
    step(&naive, &mut rows, &[1, 2, 3], BLOCK - 3).unwrap();
    // All eight are used: no row can begin a seventh block.
    assert_eq!(begin(&mut rows, &[2], 1).unwrap_err().kind(), ErrorKind::Memory);
    rows.discard(Slot(1));
    step(&naive, &mut rows, &[2], 1).unwrap();
    assert_eq!(begin(&mut rows, &[3], 1).unwrap_err().kind(), ErrorKind::Memory);
}

/// Steps write in place, and what attention reads are the blocks themselves.
#[test]
fn nothing_is_gathered() {
    let (naive, device, mut rows) = open(64, 64);
    join(&naive, &mut rows, 1);
    join(&naive, &mut rows, 2);
    step(&naive, &mut rows, &[1, 2], 400).unwrap();
    let before = device.memory().allocated;
    for _ in 0..40 {
        step(&naive, &mut rows, &[2, 1], 1).unwrap();
    }
    begin(&mut rows, &[1, 2], 1).unwrap();
    let x = packed(&naive.kit, &[7, 7], 0, Side::Keys);
    rows.append(0, &x, &x).unwrap();
    let views = rows.views(0).unwrap();
    let runs: Vec<usize> = views.iter().map(|view| view.span(0..1).runs.len()).collect();
    assert_eq!(runs, [441_usize.div_ceil(BLOCK); 2]);
    // What the steps' own tokens need; rows are fifty times as much.
    let token = naive.kit.blueprint().bytes_per_token() as u64;
    assert!(device.memory().allocated - before < 41 * 2 * 8 * token);
}
