//! Attention and appends against the port's own bodies, over random rows, runs, windows and masks.

use proptest::prelude::*;
use std::ops::Range;
use tandem_backend_mlx::{Options, open};
use tandem_contracts::tensor::{
    Affine, Attend, Device, Dtype, KvWrite, Plane, Quantized, Result, RowSpan, Run, Tensor, fused,
};

const PLANE_ROWS: usize = 3;
const HEADS: usize = 2;
const COLUMNS: usize = 40;
const WIDTH: usize = 32;
const QUERY_HEADS: usize = 4;

/// One row: its runs, and how many positions from the end its queries begin, and how many there are.
#[derive(Clone, Debug)]
struct Row {
    runs: Vec<Run>,
    queries: usize,
    /// Live positions after the last query.
    after: usize,
}

fn row() -> impl Strategy<Value = Row> {
    let run = (0..PLANE_ROWS, 0..8usize, 0..3usize, 1..6usize);
    (prop::collection::vec(run, 1..4), 1..5usize, 0..3usize).prop_map(|(pieces, queries, after)| {
        let (mut runs, mut position): (Vec<Run>, usize) = (Vec::new(), 0);
        for (row, column, gap, length) in pieces {
            let start = position + gap;
            position = start + length;
            runs.push(Run { row, column, positions: start..position });
        }
        // The queries stand in the last run.
        let last = runs.last().map_or(1, |run| run.positions.len());
        let queries = queries.min(last);
        Row { runs, queries, after: after.min(last - queries) }
    })
}

#[derive(Clone, Debug)]
struct Case {
    rows: Vec<Row>,
    causal: bool,
    window: Option<usize>,
    sinks: bool,
    soft_cap: Option<f32>,
    quantised: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let soft_cap = prop_oneof![3 => Just(None), 1 => Just(Some(2.0f32))];
    let flags = (prop::bool::weighted(0.8), prop::option::of(1..6usize), any::<bool>(), any::<bool>());
    (prop::collection::vec(row(), 1..4), flags, soft_cap).prop_map(|(rows, flags, soft_cap)| {
        let (causal, window, sinks, quantised) = flags;
        Case { rows, causal, window, sinks, soft_cap, quantised }
    })
}

/// Numbers from -1 to 1.
fn sample(device: &Device, shape: &[usize], seed: u64) -> Result<Tensor> {
    let mut state = seed;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    device.upload_f32(&values, shape)
}

fn spans<'a>(rows: &'a [Row], keys: Plane<'a>, values: Plane<'a>) -> (Vec<RowSpan<'a>>, usize) {
    let mut next = 0;
    let spans = rows
        .iter()
        .map(|row| {
            let end = row.runs.last().map_or(0, |run| run.positions.end) - row.after;
            let queries = next..next + row.queries;
            next = queries.end;
            RowSpan { queries, position: end - row.queries, keys, values, runs: &row.runs }
        })
        .collect();
    (spans, next)
}

fn farthest(a: &Tensor, b: &Tensor) -> Result<f32> {
    assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    Ok(a.iter()
        .zip(&b)
        .map(|(a, b)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() })
        .fold(0.0, f32::max))
}

fn attends(case: &Case) -> Result<f32> {
    let device = open(Options::default())?;
    let shape = [PLANE_ROWS, HEADS, COLUMNS, WIDTH];
    let (keys, values) = (sample(&device, &shape, 1)?, sample(&device, &shape, 2)?);
    let format = Affine { bits: 4, group: 32 };
    let quantised: [Quantized; 2] = [device.quantize(&keys, format)?, device.quantize(&values, format)?];
    let planes = if case.quantised {
        (Plane::Affine(&quantised[0]), Plane::Affine(&quantised[1]))
    } else {
        (Plane::Plain(&keys), Plane::Plain(&values))
    };
    let (spans, tokens) = spans(&case.rows, planes.0, planes.1);
    let q = sample(&device, &[tokens, QUERY_HEADS, WIDTH], 3)?;
    let sinks = sample(&device, &[QUERY_HEADS], 4)?;
    let how = Attend {
        causal: case.causal,
        window: case.window,
        keep: case.window.map_or(0, |window| case.rows.len() % window),
        sinks: case.sinks.then_some(&sinks),
        soft_cap: case.soft_cap,
        ..Attend::causal(0.5)
    };
    farthest(&device.attend(&q, &spans, &how)?, &fused::attend(&device, &q, &spans, &how)?)
}

/// Rows of a plane that are written, each with its column and its count of tokens.
fn writes() -> impl Strategy<Value = Vec<KvWrite>> {
    let one = (0..PLANE_ROWS, prop_oneof![Just(7usize), 0..30usize], prop_oneof![Just(2usize), 0..4usize]);
    prop::collection::vec(one, 0..5).prop_map(|rows| {
        let mut next = 0;
        let write = |(row, column, count): (usize, usize, usize)| {
            let tokens: Range<usize> = next..next + count;
            next = tokens.end;
            KvWrite { tokens, row, column }
        };
        rows.into_iter().map(write).collect()
    })
}

fn appends(writes: &[KvWrite]) -> Result<f32> {
    let device = open(Options::default())?;
    let tokens = writes.last().map_or(0, |write| write.tokens.end);
    let plane = sample(&device, &[PLANE_ROWS, HEADS, COLUMNS, WIDTH], 1)?;
    let new = sample(&device, &[tokens, HEADS, WIDTH], 2)?;
    let appended = device.kv_append(plane.clone(), &new, writes)?;
    farthest(&appended, &fused::kv_append(&device, plane, &new, writes)?)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn attention_is_that_of_the_port_s_body(case in case()) {
        let distance = attends(&case).expect("valid operands");
        prop_assert!(distance < 2e-5, "differs by {}", distance);
    }

    #[test]
    fn appends_are_those_of_the_port_s_body(writes in writes()) {
        prop_assert_eq!(appends(&writes).expect("valid operands"), 0.0);
    }
}

#[test]
fn narrow_floats_keep_their_dtype() -> Result<()> {
    let device = open(Options::default())?;
    let plane = sample(&device, &[1, HEADS, 4, WIDTH], 1)?;
    let plane = device.cast(&plane, Dtype::F16)?;
    let q = device.cast(&sample(&device, &[2, QUERY_HEADS, WIDTH], 2)?, Dtype::Bf16)?;
    let runs = [Run { row: 0, column: 0, positions: 0..4 }];
    let (keys, values) = (Plane::Plain(&plane), Plane::Plain(&plane));
    let span = RowSpan { queries: 0..2, position: 2, keys, values, runs: &runs };
    let how = Attend::causal(0.25);
    let got = device.attend(&q, std::slice::from_ref(&span), &how)?;
    assert_eq!(got.dtype(), Dtype::Bf16);
    let expected = fused::attend(&device, &q, &[span], &how)?;
    let (got, expected) = (device.cast(&got, Dtype::F32)?, device.cast(&expected, Dtype::F32)?);
    assert!(farthest(&got, &expected)? < 0.01);
    Ok(())
}
