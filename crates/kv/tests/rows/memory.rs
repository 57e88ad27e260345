//! Bytes: what rows allocate, and what they do not copy.

use crate::{
    SHAPE, affine, kit,
    naive::{Naive, append},
    recurrent::{DELTA, SHORT},
};
use std::rc::Rc;
use tandem_contracts::{
    fake::Fake,
    tensor::{Attend, Backend, Device, Dtype},
};
use tandem_kv::{
    Blueprint, Kind, LayerShape,
    codec::Scheme,
    policy::{Encoding, Request},
    ragged::{Kit, Packed, RaggedRow},
};

/// Evaluates a step of `tokens` tokens.
fn step(naive: &Naive, row: &mut RaggedRow, tokens: usize) {
    row.begin(tokens).unwrap();
    append(naive, &mut [(&mut *row, 0..tokens)], &vec![7; tokens], usize::MAX);
    row.commit(tokens).unwrap();
    naive.device().eval(&row.planes().collect::<Vec<_>>()).unwrap();
}

#[test]
fn rows_allocate_what_their_blueprint_projects() {
    for scheme in [Scheme::plain(Dtype::Bf16), affine(8), affine(4), Scheme::turbo(8, 3)] {
        let fake = Fake::open();
        let device: Device = fake.clone();
        let kit = kit(&device, &[Kind::Full(SHAPE)], Encoding::Uniform(scheme), 8);
        let naive = Naive::new(Rc::clone(&kit));
        // The codec's constants appear when they are first used.
        let mut first = RaggedRow::new(Rc::clone(&kit));
        step(&naive, &mut first, 8);
        step(&naive, &mut first, 1);
        drop(first);
        let before = fake.memory().active;
        let mut row = RaggedRow::new(Rc::clone(&kit));
        for tokens in [1, 3, 4, 1, 7] {
            step(&naive, &mut row, tokens);
            let projected = kit.blueprint().bytes(row.tokens());
            assert_eq!(row.bytes(), projected, "{scheme} at {}", row.tokens());
            assert_eq!(fake.memory().active - before, projected, "{scheme} at {}", row.tokens());
        }
    }
}

#[test]
fn windows_allocate_within_one_growth_of_it() {
    let device: Device = Fake::open();
    let kinds = [Kind::Window { shape: SHAPE, window: 6, keep: 0 }];
    let kit = kit(&device, &kinds, Encoding::Uniform(affine(8)), 5);
    let naive = Naive::new(Rc::clone(&kit));
    let mut row = RaggedRow::new(Rc::clone(&kit));
    for tokens in [2, 3, 17, 1, 1, 9, 1, 3, 1, 1, 1, 1, 1] {
        step(&naive, &mut row, tokens);
        let growth = 4 * affine(8).bytes_per_token(SHAPE).unwrap();
        let projected = kit.blueprint().bytes(row.tokens());
        if tokens == 1 {
            assert!((projected..=projected + growth).contains(&row.bytes()), "at {}", row.tokens());
        }
    }
}

/// Whoever joins or leaves, no key or value is copied; and appends write in place.
#[test]
fn joins_and_leaves_copy_nothing() {
    let fake = Fake::open();
    let device: Device = fake.clone();
    let blueprint = Blueprint::plain(vec![Kind::Full(SHAPE); 2], Dtype::F32).unwrap();
    let kit = Kit::open(&device, blueprint).unwrap();
    let naive = Naive::new(Rc::clone(&kit));
    let mut batch: Vec<RaggedRow> = (0..3).map(|_| RaggedRow::new(Rc::clone(&kit))).collect();
    batch.iter_mut().for_each(|row| step(&naive, row, 200));
    let before = fake.memory().allocated;
    let leaver = batch.remove(1);
    let fork = leaver.fork().unwrap();
    batch.reverse();
    batch.push(leaver);
    drop(fork);
    assert_eq!(fake.memory().allocated, before);
    for _ in 0..40 {
        batch.iter_mut().for_each(|row| step(&naive, row, 1));
    }
    // What forty steps of three rows need for their own tokens; copies of their planes would be thirty times as much.
    let token = 2 * Scheme::plain(Dtype::F32).bytes_per_token(SHAPE).unwrap();
    assert!(fake.memory().allocated - before < (40 * 3 * 8 * token) as u64);
}

/// A conversion holds two copies of one layer, never of all.
#[test]
fn conversions_take_one_layer_at_a_time() {
    let fake = Fake::open();
    let device: Device = fake.clone();
    let kit = kit(&device, &[Kind::Full(SHAPE); 8], Encoding::Uniform(affine(8)), 255);
    let naive = Naive::new(Rc::clone(&kit));
    let mut row = RaggedRow::new(Rc::clone(&kit));
    // One token less than its columns, so that the next one needs no more of them.
    step(&naive, &mut row, 255);
    let plain = row.bytes();
    fake.reset_peak();
    row.begin(1).unwrap();
    let peak = fake.memory().peak;
    // Beside the row itself: one layer cut, in f32 on this device, and its codes twice, and the codes of the layers
    // before. Had each layer's plain planes stayed, the peak would be 1.53 times the row.
    assert!(peak < plain + plain * 3 / 8, "{peak} over {plain}");
    assert!(row.bytes() < plain * 6 / 10);
}

/// The tail of a convolution is as small as it looks: it does not hold the inputs that it was cut out of.
#[test]
fn states_hold_nothing_of_their_steps() {
    let cpu = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
    let devices: [Device; 2] = [cpu, Fake::open()];
    for device in devices {
        let kit = kit(&device, &[DELTA, SHORT], Encoding::None, 0);
        let naive = Naive::new(Rc::clone(&kit));
        let mut row = RaggedRow::new(Rc::clone(&kit));
        step(&naive, &mut row, 2);
        let before = device.memory().active;
        for tokens in [500, 1, 300] {
            step(&naive, &mut row, tokens);
            assert_eq!((device.memory().active, row.bytes()), (before, kit.blueprint().bytes(1)));
        }
        // A round that keeps a part of its tokens takes them again; a copy holds the same states.
        row.begin(400).unwrap();
        append(&naive, &mut [(&mut row, 0..400)], &[7; 400], usize::MAX);
        row.commit(9).unwrap();
        device.eval(&row.planes().collect::<Vec<_>>()).unwrap();
        let copy = row.fork().unwrap();
        assert_eq!(device.memory().active, before);
        drop(copy);
    }
}

/// A long row of 8-bit codes on the CPU: whatever a step allocates, its growth included, is little beside the row.
#[test]
fn decoding_needs_no_copy_of_the_row() {
    const LAYERS: usize = 30;
    const SHAPE: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 64 };
    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
    for (scheme, length) in [(affine(8), 8190), (Scheme::turbo(8, 3), 2046)] {
        let request = Request { plain: Dtype::Bf16, encoding: Encoding::Uniform(scheme), start: 0 };
        let (blueprint, _) = Blueprint::new(vec![Kind::Full(SHAPE); LAYERS], &request).unwrap();
        let kit = Kit::open(&device, blueprint).unwrap();
        let mut row = RaggedRow::new(Rc::clone(&kit));
        let mut append = |tokens: usize, attend: bool| {
            let x = device.upload_f32(&vec![0.5; tokens * 3 * 64], &[tokens, 3, 64]).unwrap();
            let q = device.upload_f32(&[0.25; 9 * 64], &[1, 9, 64]).unwrap();
            row.begin(tokens).unwrap();
            for layer in 0..LAYERS {
                row.append(&mut Packed::new(&kit, layer, &x, &x), 0..tokens).unwrap();
                if attend {
                    let view = row.view(layer).unwrap();
                    device.attend(&q, &[view.span(0..1)], &Attend::causal(0.125)).unwrap();
                }
            }
            row.commit(tokens).unwrap();
            row.bytes()
        };
        append(length, false);
        let before = device.memory().active;
        device.reset_peak();
        // The planes grow in the middle.
        let bytes = (0..5).map(|_| append(1, true)).last().unwrap();
        let grown = device.memory().active - before;
        let extra = device.memory().peak - before - grown;
        assert!(extra < bytes / 20, "{extra} bytes beside {bytes}");
    }
}
