//! Attention against a naive loop of the arithmetic that the module states, bit for bit.

mod integral;

use crate::isa::Isa;
use crate::simd::math::exponential;
use crate::{Options, open};
use std::num::NonZeroUsize;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;
use tandem_contracts::tensor::{Attend, Device, Plane, RowSpan, Run};

const WIDTH: usize = 40;

/// Positions of a segment.
const SEGMENT: usize = 4 * BLOCK;

/// Sixteen lanes summed by the tree.
fn tree(mut lanes: Vec<f32>) -> f32 {
    for half in [8, 4, 2, 1] {
        lanes = (0..half).map(|lane| lanes[lane] + lanes[lane + half]).collect();
    }
    lanes[0]
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = vec![0.0f32; 16];
    a.iter().zip(b).enumerate().for_each(|(i, (a, b))| lanes[i % 16] = a.mul_add(*b, lanes[i % 16]));
    tree(lanes)
}

/// A mix of a block's values by weights, for the live places.
type Mix<'m> = &'m dyn Fn(&[f32; BLOCK], Range<usize>) -> Vec<f32>;

/// One query at `position` over so many positions: what it scores each, and what it mixes of a block with its weights
/// (by place) and live positions.
fn naive(
    (position, length, width): (usize, usize, usize),
    score: &dyn Fn(usize) -> f32,
    mix: Mix<'_>,
    how: &Attend<'_>,
    sink: Option<f32>,
) -> Vec<f32> {
    let visible = how.visible(position, length);
    let mut row = State::from(sink, width);
    for segment in visible.start / SEGMENT..visible.end.div_ceil(SEGMENT) {
        let mut state = State::from(None, width);
        for block in (segment * SEGMENT..(segment + 1) * SEGMENT).step_by(BLOCK) {
            let places = visible.start.max(block)..visible.end.min(block + BLOCK);
            if !places.is_empty() {
                state.take(&naive_block(score, mix, places));
            }
        }
        row.take(&state);
    }
    row.mixed.iter().map(|x| x * (1.0 / row.sum)).collect()
}

/// `(m, l, o)`.
struct State {
    most: f32,
    sum: f32,
    mixed: Vec<f32>,
}

impl State {
    fn from(sink: Option<f32>, width: usize) -> Self {
        let (most, sum) = sink.map_or((f32::NEG_INFINITY, 0.0), |sink| (sink, 1.0));
        Self { most, sum, mixed: vec![0.0; width] }
    }

    fn take(&mut self, other: &Self) {
        let most = self.most.max(other.most);
        let (keep, add) = (exponential(self.most - most), exponential(other.most - most));
        self.sum = self.sum.mul_add(keep, other.sum * add);
        self.mixed.iter_mut().zip(&other.mixed).for_each(|(to, x)| *to = to.mul_add(keep, x * add));
        self.most = most;
    }
}

fn naive_block(score: &dyn Fn(usize) -> f32, mix: Mix<'_>, places: Range<usize>) -> State {
    let scores: Vec<f32> = places.clone().map(score).collect();
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut line = [0.0; BLOCK];
    for (k, score) in places.clone().zip(scores) {
        line[k % BLOCK] = exponential(score - most);
    }
    State { most, sum: block_sum(&line), mixed: mix(&line, places) }
}

/// A block's 64 numbers summed in the order of `fold`.
fn block_sum(line: &[f32; BLOCK]) -> f32 {
    tree((0..16).map(|i| (line[i] + line[i + 16]) + (line[i + 32] + line[i + 48])).collect())
}

/// A chain for each column.
fn mix_floats(values: &[f32], line: &[f32; BLOCK], places: Range<usize>) -> Vec<f32> {
    let mut mixed = vec![0.0f32; WIDTH];
    for k in places {
        for (mixed, value) in mixed.iter_mut().zip(&values[k * WIDTH..]) {
            *mixed = line[k % BLOCK].mul_add(*value, *mixed);
        }
    }
    mixed
}

fn numbers(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0).collect()
}

#[test]
fn the_stated_arithmetic_is_what_runs() {
    let (tokens, length, heads) = (9, 300, 2);
    let q = numbers(1, tokens * heads * WIDTH);
    let (keys, values) = (numbers(2, length * WIDTH), numbers(3, length * WIDTH));
    let sinks = [1.5, -0.5];
    for isa in Isa::available() {
        let threads = NonZeroUsize::new(2).unwrap();
        let device: Device = open(Options { threads, isa, ..Options::default() }).unwrap();
        let upload = |x: &[f32], shape: &[usize]| device.upload_f32(x, shape).unwrap();
        let sinks_tensor = upload(&sinks, &[heads]);
        let plane = |x: &[f32]| upload(x, &[1, 1, length, WIDTH]);
        let (stored_keys, stored_values) = (plane(&keys), plane(&values));
        for (window, sinks_tensor) in [(None, None), (Some(100), Some(&sinks_tensor))] {
            let how = Attend { window, sinks: sinks_tensor, ..Attend::causal(0.3) };
            let run = [Run { row: 0, column: 0, positions: 0..length }];
            let (keys_plane, values_plane) = (Plane::Plain(&stored_keys), Plane::Plain(&stored_values));
            let position = length - tokens;
            let span =
                RowSpan { queries: 0..tokens, position, keys: keys_plane, values: values_plane, runs: &run };
            let got = device.attend(&upload(&q, &[tokens, heads, WIDTH]), &[span], &how).unwrap();
            let expected: Vec<f32> = (0..tokens * heads)
                .flat_map(|vector| {
                    let sink = sinks_tensor.map(|_| sinks[vector % heads]);
                    let q: Vec<f32> = q[vector * WIDTH..][..WIDTH].iter().map(|x| x * how.scale).collect();
                    let place = (position + vector / heads, length, WIDTH);
                    let score = |k: usize| dot(&q, &keys[k * WIDTH..][..WIDTH]);
                    naive(place, &score, &|line, places| mix_floats(&values, line, places), &how, sink)
                })
                .collect();
            assert_eq!(got.to_vec::<f32>().unwrap(), expected, "{isa}, window {window:?}");
        }
    }
}

#[test]
fn what_is_hidden_leaves_no_trace() {
    let device = open(Options::default()).unwrap();
    let length = 70;
    let q = device.upload_f32(&numbers(1, WIDTH), &[1, 1, WIDTH]).unwrap();
    let attend = |spoilt: f32| {
        let plane = |seed| {
            let mut values = numbers(seed, length * WIDTH);
            values[66 * WIDTH..].fill(spoilt);
            values[..2 * WIDTH].fill(spoilt);
            device.upload_f32(&values, &[1, 1, length, WIDTH]).unwrap()
        };
        let (keys, values) = (plane(2), plane(3));
        let run = [Run { row: 0, column: 0, positions: 0..length }];
        let span = RowSpan {
            queries: 0..1,
            position: 65,
            keys: Plane::Plain(&keys),
            values: Plane::Plain(&values),
            runs: &run,
        };
        let how = Attend { window: Some(64), ..Attend::causal(0.3) };
        device.attend(&q, &[span], &how).unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(attend(f32::NAN), attend(0.0));
    assert_eq!(attend(f32::INFINITY), attend(1.0));
    assert!(attend(0.0).iter().all(|x| x.is_finite()));
}
