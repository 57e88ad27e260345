//! Rows against a plain list of tokens: whatever is appended, trimmed, forked and given up, each row holds exactly
//! its own tokens, in the bytes that its geometry projects.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use proptest::prelude::*;
use std::rc::Rc;
use tandem_contracts::{
    fake::Fake,
    tensor::{Backend, Device, Dtype, Tensor},
};
use tandem_kv::{CAPACITY_STEP, Geometry, LayerShape, Row};

const LAYERS: [LayerShape; 2] = [
    LayerShape { heads: 2, key_width: 3, value_width: 2 },
    LayerShape { heads: 1, key_width: 2, value_width: 4 },
];

/// A row, and the tokens that it should hold.
struct Pair {
    row: Row,
    tokens: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Action {
    Append {
        row: usize,
        tokens: usize,
    },
    /// Appends to some layers only, then gives up.
    GiveUp {
        row: usize,
        tokens: usize,
        layers: usize,
    },
    Trim {
        row: usize,
        keep: usize,
    },
    Fork {
        row: usize,
    },
    Drop {
        row: usize,
    },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let count = prop_oneof![5 => 1..6usize, 1 => 250..262usize];
    let action = prop_oneof![
        6 => (any::<usize>(), count.clone()).prop_map(|(row, tokens)| Action::Append { row, tokens }),
        1 => (any::<usize>(), count, 0..=2usize)
            .prop_map(|(row, tokens, layers)| Action::GiveUp { row, tokens, layers }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(row, keep)| Action::Trim { row, keep }),
        2 => any::<usize>().prop_map(|row| Action::Fork { row }),
        1 => any::<usize>().prop_map(|row| Action::Drop { row }),
    ];
    prop::collection::vec(action, 1..14)
}

/// Element of a token's keys (side 0) or values (side 1): small whole numbers, exact in f32.
fn element(token: u32, layer: usize, side: usize, at: usize) -> f32 {
    token as f32 * 64.0 + (layer * 32 + side * 16 + at) as f32
}

/// Packed `[2 + tokens, heads, width]`; two tokens of someone else stand before the row's own.
fn packed(device: &Device, tokens: &[u32], layer: usize, side: usize, heads: usize, width: usize) -> Tensor {
    let mut elements = vec![-1.0; 2 * heads * width];
    for &token in tokens {
        elements.extend((0..heads * width).map(|at| element(token, layer, side, at)));
    }
    device.upload_f32(&elements, &[2 + tokens.len(), heads, width]).unwrap()
}

fn append(device: &Device, row: &mut Row, tokens: &[u32], layers: usize) {
    row.begin(tokens.len()).unwrap();
    for (layer, shape) in LAYERS.iter().enumerate().take(layers) {
        let keys = packed(device, tokens, layer, 0, shape.heads, shape.key_width);
        let values = packed(device, tokens, layer, 1, shape.heads, shape.value_width);
        row.append(layer, &keys, &values, 2..2 + tokens.len()).unwrap();
    }
}

/// Downloads a row's live columns and compares them with the tokens.
fn check(pair: &Pair) {
    assert_eq!(pair.row.tokens(), pair.tokens.len());
    for (index, plane) in pair.row.planes().enumerate() {
        let (layer, side) = (index / 2, index % 2);
        let [heads, columns, width] = [1, 2, 3].map(|axis| plane.shape()[axis]);
        let elements = plane.to_vec::<f32>().unwrap();
        for run in pair.row.runs() {
            for (column, position) in (run.column..).zip(run.positions.clone()) {
                for (head, at) in (0..heads).flat_map(|head| (0..width).map(move |at| (head, at))) {
                    let got = elements[(head * columns + column) * width + at];
                    assert_eq!(got, element(pair.tokens[position], layer, side, head * width + at));
                }
            }
        }
    }
    let live: usize = pair.row.runs().iter().map(|run| run.positions.len()).sum();
    assert_eq!(live, pair.tokens.len());
}

fn run(actions: &[Action]) {
    let device: Device = Fake::open();
    let geometry = Rc::new(Geometry::new(LAYERS.to_vec(), Dtype::F32).unwrap());
    let fresh = || Pair { row: Row::new(Rc::clone(&device), Rc::clone(&geometry)), tokens: Vec::new() };
    let mut pairs = vec![fresh()];
    let mut next = 0..;
    for action in actions {
        let count = pairs.len();
        match *action {
            Action::Append { row, tokens } => {
                let Pair { row, tokens: known } = &mut pairs[row % count];
                let tokens: Vec<u32> = next.by_ref().take(tokens).collect();
                append(&device, row, &tokens, LAYERS.len());
                row.commit().unwrap();
                known.extend(tokens);
            }
            Action::GiveUp { row, tokens, layers } => {
                let row = &mut pairs[row % count].row;
                append(&device, row, &vec![u32::MAX; tokens], layers);
                row.roll_back();
            }
            Action::Trim { row, keep } => {
                let Pair { row, tokens } = &mut pairs[row % count];
                tokens.truncate(keep % (tokens.len() + 1));
                row.trim(tokens.len()).unwrap();
            }
            Action::Fork { row } if count < 5 => {
                let Pair { row, tokens } = &pairs[row % count];
                let copy = Pair { row: row.fork().unwrap(), tokens: tokens.clone() };
                pairs.push(copy);
            }
            Action::Fork { .. } => {}
            Action::Drop { row } => {
                pairs.swap_remove(row % count);
                if pairs.is_empty() {
                    pairs.push(fresh());
                }
            }
        }
    }
    pairs.iter().for_each(check);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn rows_hold_their_own_tokens(actions in actions()) {
        run(&actions);
    }
}

#[test]
fn a_row_allocates_what_its_geometry_projects() {
    let fake = Fake::open();
    let device: Device = fake.clone();
    let geometry = Rc::new(Geometry::new(LAYERS.to_vec(), Dtype::F32).unwrap());
    let mut row = Row::new(Rc::clone(&device), Rc::clone(&geometry));
    for tokens in [1, CAPACITY_STEP - 1, 1, 3 * CAPACITY_STEP] {
        append(&device, &mut row, &vec![7; tokens], LAYERS.len());
        row.commit().unwrap();
        device.eval(&row.planes().collect::<Vec<_>>()).unwrap();
        assert_eq!(row.bytes(), geometry.bytes(row.tokens()));
        assert_eq!(fake.memory().active, geometry.bytes(row.tokens()), "at {} tokens", row.tokens());
    }
}

#[test]
fn appends_write_in_place() {
    let fake = Fake::open();
    let device: Device = fake.clone();
    let geometry = Rc::new(Geometry::new(LAYERS.to_vec(), Dtype::F32).unwrap());
    let mut row = Row::new(Rc::clone(&device), Rc::clone(&geometry));
    let mut step = |token| {
        append(&device, &mut row, &[token], LAYERS.len());
        row.commit().unwrap();
        device.eval(&row.planes().collect::<Vec<_>>()).unwrap();
    };
    step(0);
    let before = fake.memory().allocated;
    (1..101).for_each(&mut step);
    // Each step moves its own few tokens; one copy of the planes would be more than all of them.
    let own = 3 * LAYERS.iter().map(|it| it.heads * (it.key_width + it.value_width) * 4).sum::<usize>();
    assert!(fake.memory().allocated - before < 100 * 4 * own as u64);
    assert!(100 * 4 * own < 100 * geometry.bytes(1) / 10);
}
