//! Attention over a batch of rows, some of them converted: every row's outputs are, bit for bit, those of the row alone.

use crate::{
    SHAPE, affine, kit,
    naive::{Naive, Side, append, packed},
};
use std::{ops::Range, rc::Rc};
use tandem_contracts::{
    fake,
    tensor::{Attend, Device, Dtype, Tensor},
};
use tandem_kv::{
    Kind,
    codec::Scheme,
    policy::Encoding,
    ragged::{RaggedRow, View},
};

const WINDOW: usize = 70;
const KEEP: usize = 5;
const START: usize = 90;

/// Queries of tokens: what their keys in another layer would be, twice the heads.
fn queries(naive: &Naive, tokens: &[u32]) -> Tensor {
    let halves = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, tokens, 1, side));
    naive.device().concat(&halves.each_ref(), 1).unwrap()
}

/// Outputs of both layers for rows whose views these are.
fn attend(naive: &Naive, views: &[[View; 2]], ranges: &[Range<usize>], tokens: &[u32]) -> Vec<Vec<u8>> {
    let device = naive.device();
    let q = queries(naive, tokens);
    let layer = |layer: usize| {
        let spans: Vec<_> =
            views.iter().zip(ranges).map(|(view, range)| view[layer].span(range.clone())).collect();
        let whole = Attend { precision: device.traits().precisions[0], ..Attend::causal(0.125) };
        let how = if layer == 0 { whole } else { Attend { window: Some(WINDOW), keep: KEEP, ..whole } };
        device.download(&device.attend(&q, &spans, &how).unwrap()).unwrap()
    };
    [0, 1].map(layer).to_vec()
}

/// Opens one step of some rows together and gives what each reads in each layer. The rows stay in their step.
fn views(
    naive: &Naive,
    rows: &mut [&mut RaggedRow],
    tokens: &[u32],
    ranges: &[Range<usize>],
) -> Vec<[View; 2]> {
    for (row, range) in rows.iter_mut().zip(ranges) {
        row.begin(range.len()).unwrap();
    }
    let mut open: Vec<_> = rows.iter_mut().map(|row| &mut **row).zip(ranges.iter().cloned()).collect();
    append(naive, &mut open, tokens, usize::MAX);
    rows.iter().map(|row| [0, 1].map(|layer| row.view(layer).unwrap())).collect()
}

/// Lengths before the step, and tokens of it: before, at and beyond the threshold, and beyond the window.
const ROWS: [(usize, usize); 4] = [(5, 3), (START, 2), (150, 1), (80, 10)];

fn token(row: usize, position: usize) -> u32 {
    (row * 1000 + position) as u32
}

/// A row with its first tokens, taken in steps of other lengths for each way.
fn grown(naive: &Naive, row: usize, chunk: usize) -> RaggedRow {
    let mut grown = RaggedRow::new(Rc::clone(&naive.kit));
    let length = ROWS[row].0;
    let policy = naive.kit.blueprint().policy();
    let chunks = (0..length).step_by(chunk).map(|first| first..length.min(first + chunk));
    for step in chunks.flat_map(|chunk| policy.split(chunk)) {
        let tokens: Vec<u32> = step.clone().map(|position| token(row, position)).collect();
        grown.begin(step.len()).unwrap();
        append(naive, &mut [(&mut grown, 0..step.len())], &tokens, usize::MAX);
        grown.commit(step.len()).unwrap();
    }
    grown
}

fn check(device: &Device, scheme: Scheme) {
    let kinds = [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: WINDOW, keep: KEEP }];
    let naive = Naive::new(kit(device, &kinds, Encoding::Uniform(scheme), START));
    let step = |row: usize| -> Vec<u32> { (0..ROWS[row].1).map(|at| token(row, ROWS[row].0 + at)).collect() };
    let mut batch: Vec<RaggedRow> = (0..ROWS.len()).map(|row| grown(&naive, row, 64)).collect();
    let tokens: Vec<u32> = (0..ROWS.len()).flat_map(step).collect();
    let mut ranges = Vec::new();
    for (_, count) in ROWS {
        let first = ranges.last().map_or(0, |range: &Range<usize>| range.end);
        ranges.push(first..first + count);
    }
    let mut rows: Vec<&mut RaggedRow> = batch.iter_mut().collect();
    let seen = views(&naive, &mut rows, &tokens, &ranges);
    let together = attend(&naive, &seen, &ranges, &tokens);
    for (row, range) in ranges.iter().enumerate() {
        let mut alone = grown(&naive, row, 7);
        let (tokens, own) = (step(row), 0..range.len());
        let views = views(&naive, &mut [&mut alone], &tokens, std::slice::from_ref(&own));
        let expected = attend(&naive, &views, &[own], &tokens);
        for (layer, (together, expected)) in together.iter().zip(&expected).enumerate() {
            let token = together.len() / tokens_in(&ranges);
            assert_eq!(
                &together[range.start * token..range.end * token],
                expected,
                "row {row}, layer {layer}"
            );
        }
    }
    // A view is what it was, whatever its row does.
    for (row, &(_, count)) in batch.iter_mut().zip(&ROWS) {
        row.commit(count).unwrap();
        row.begin(1).unwrap();
        append(&naive, &mut [(row, 0..1)], &[9], usize::MAX);
        row.commit(1).unwrap();
    }
    batch.truncate(1);
    assert_eq!(attend(&naive, &seen, &ranges, &tokens), together);
}

fn tokens_in(ranges: &[Range<usize>]) -> usize {
    ranges.last().map_or(0, |range| range.end)
}

#[test]
fn rows_attend_as_if_they_were_alone() {
    let cpu = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
    for device in [fake::open(), cpu] {
        for scheme in [Scheme::plain(Dtype::Bf16), affine(8), affine(4), Scheme::turbo(8, 3)] {
            check(&device, scheme);
        }
    }
}
