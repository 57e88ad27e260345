//! Refusals of appends and of attention's spans.

use super::tensor;
use crate::{
    conformance::{
        Outcome,
        affine::Codes,
        behaviours,
        expect::{refused, same},
        host::Host,
        span::{Row, run, spans},
    },
    tensor::{
        Affine, Attend, Device, Dtype, ErrorKind, KvAppend, KvWrite, Plane, Quantized, RowSpan, Run, Tensor,
    },
};

behaviours!("refusal":
    appends_outside_are_refused,
    planes_that_do_not_fit_are_refused,
    runs_that_do_not_fit_are_refused,
    spans_that_do_not_fit_are_refused,
);

/// Rows, columns and tokens that are not there; heads of another number or width; another dtype.
pub fn appends_outside_are_refused(device: &Device) -> Outcome {
    let plane = tensor(device, Dtype::F32, &[2, 3, 4, 8])?;
    let tokens = tensor(device, Dtype::F32, &[3, 3, 8])?;
    let reversed = std::ops::Range { start: 2, end: 1 };
    for write in [
        KvWrite { tokens: 0..1, row: 2, column: 0 },
        KvWrite { tokens: 0..1, row: 0, column: 4 },
        KvWrite { tokens: 0..3, row: 0, column: 2 },
        KvWrite { tokens: 2..4, row: 0, column: 0 },
        KvWrite { tokens: reversed, row: 0, column: 0 },
        KvWrite { tokens: 0..1, row: 0, column: usize::MAX },
    ] {
        // A good write before it is not done either.
        let writes = [KvWrite { tokens: 0..1, row: 0, column: 0 }, write.clone()];
        refused(format!("{write:?}"), device.kv_append(plane.clone(), &tokens, &writes), ErrorKind::Index)?;
        // Nor one to another plane.
        let (mut one, mut other) = (plane.clone(), plane.clone());
        let together = device.kv_append_each(&mut [
            KvAppend { plane: &mut one, tokens: &tokens, writes: &writes[..1] },
            KvAppend { plane: &mut other, tokens: &tokens, writes: &writes },
        ]);
        refused(format!("{write:?} beside a good one"), together, ErrorKind::Index)?;
        same("the plane of the good one", device, &one, &Host::sample(Dtype::F32, &[2, 3, 4, 8], 230))?;
    }
    for (dtype, shape, kind) in [
        (Dtype::F32, &[3, 2, 8][..], ErrorKind::Shape),
        (Dtype::F32, &[3, 3, 7], ErrorKind::Shape),
        (Dtype::F32, &[3, 24], ErrorKind::Shape),
        (Dtype::I32, &[3, 3, 8], ErrorKind::Dtype),
    ] {
        let tokens = tensor(device, dtype, shape)?;
        let writes = [KvWrite { tokens: 0..1, row: 0, column: 0 }];
        refused(format!("{dtype:?} {shape:?}"), device.kv_append(plane.clone(), &tokens, &writes), kind)?;
    }
    same("the plane", device, &plane, &Host::sample(Dtype::F32, &[2, 3, 4, 8], 230))
}

/// Tries planes of these shapes with 4 query heads of width 8.
fn try_planes(device: &Device, keys: &Tensor, values: &Tensor, place: &str, kind: ErrorKind) -> Outcome {
    let q = tensor(device, Dtype::F32, &[1, 4, 8])?;
    let rows = [Row::plain(0, 3, 1)];
    let packed = spans(&rows, Plane::Plain(keys), Plane::Plain(values));
    refused(place, device.attend(&q, &packed, &Attend::causal(1.0)), kind)
}

/// Heads that do not divide, widths and extents that differ, integers, queries and sinks of another form.
pub fn planes_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    let good = tensor(device, Dtype::F32, &[2, 2, 5, 8])?;
    for shape in [&[2, 3, 5, 8][..], &[2, 2, 5, 7], &[2, 2, 5, 8, 1], &[2, 0, 5, 8], &[2, 5, 8]] {
        let keys = tensor(device, Dtype::F32, shape)?;
        try_planes(device, &keys, &good, &format!("keys {shape:?}"), ErrorKind::Shape)?;
    }
    for shape in [&[2, 1, 5, 8][..], &[1, 2, 5, 8], &[2, 2, 6, 8], &[2, 2, 8]] {
        let values = tensor(device, Dtype::F32, shape)?;
        try_planes(device, &good, &values, &format!("values {shape:?}"), ErrorKind::Shape)?;
    }
    let integers = tensor(device, Dtype::I32, &[2, 2, 5, 8])?;
    try_planes(device, &integers, &good, "integer keys", ErrorKind::Dtype)?;
    try_planes(device, &good, &integers, "integer values", ErrorKind::Dtype)?;

    let rows = [Row::plain(0, 3, 1)];
    let packed = spans(&rows, Plane::Plain(&good), Plane::Plain(&good));
    let causal = Attend::causal(1.0);
    let flat = tensor(device, Dtype::F32, &[1, 32])?;
    refused("flat queries", device.attend(&flat, &packed, &causal), ErrorKind::Shape)?;
    let whole = tensor(device, Dtype::I32, &[1, 4, 8])?;
    refused("integer queries", device.attend(&whole, &packed, &causal), ErrorKind::Dtype)?;
    let q = tensor(device, Dtype::F32, &[1, 4, 8])?;
    for (dtype, extent, kind) in [(Dtype::F32, 2, ErrorKind::Shape), (Dtype::F16, 4, ErrorKind::Dtype)] {
        let sinks = tensor(device, dtype, &[extent])?;
        let how = Attend { sinks: Some(&sinks), ..causal };
        refused(format!("{extent} sinks of {dtype:?}"), device.attend(&q, &packed, &how), kind)?;
    }
    let how = Attend { window: Some(0), ..causal };
    refused("an empty window", device.attend(&q, &packed, &how), ErrorKind::Index)?;
    for (window, keep) in [(None, 1), (Some(2), 2), (Some(2), 9)] {
        let how = Attend { window, keep, ..causal };
        refused(format!("{keep} kept of {window:?}"), device.attend(&q, &packed, &how), ErrorKind::Index)?;
    }
    let codes =
        Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[2, 2, 5, 32], 240).upload(device)?;
    let short = Quantized { codes: tensor(device, Dtype::U32, &[2, 2, 5, 3])?, ..codes };
    let packed = spans(&rows, Plane::Affine(&short), Plane::Plain(&good));
    refused("codes that are too short", device.attend(&q, &packed, &causal), ErrorKind::Shape)
}

/// Runs outside their plane, empty, out of order, overlapping, or without the queries' own positions.
pub fn runs_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    let plane = tensor(device, Dtype::F32, &[2, 2, 5, 8])?;
    let q = tensor(device, Dtype::F32, &[3, 4, 8])?;
    // Positions 2, 3 and 4 ask.
    let cases: [(&str, Vec<Run>); 11] = [
        ("no runs", vec![]),
        ("a row that is not there", vec![run(2, 0, 0..5)]),
        ("past the last column", vec![run(0, 1, 0..5)]),
        ("a column that overflows", vec![run(0, usize::MAX, 0..5)]),
        ("an empty run", vec![run(0, 0, 0..5), run(1, 0, 5..5)]),
        ("out of order", vec![run(0, 2, 2..5), run(1, 0, 0..2)]),
        ("overlapping", vec![run(0, 0, 0..3), run(1, 0, 2..5)]),
        ("ends before the queries", vec![run(0, 0, 0..2)]),
        ("without the last query", vec![run(0, 0, 0..4)]),
        ("without the first query", vec![run(0, 0, 0..2), run(0, 2, 3..5)]),
        ("without one between", vec![run(0, 0, 0..3), run(0, 3, 4..5)]),
    ];
    for (name, runs) in cases {
        let rows = [Row { queries: 3, position: 2, runs }];
        let packed = spans(&rows, Plane::Plain(&plane), Plane::Plain(&plane));
        refused(name, device.attend(&q, &packed, &Attend::causal(1.0)), ErrorKind::Index)?;
    }
    Ok(())
}

/// Queries that no row or two rows claim, and rows out of order.
pub fn spans_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    let plane = tensor(device, Dtype::F32, &[2, 2, 5, 8])?;
    let q = tensor(device, Dtype::F32, &[3, 4, 8])?;
    let runs = [run(0, 0, 0..5)];
    let span = |queries: std::ops::Range<usize>| {
        let keys = Plane::Plain(&plane);
        RowSpan { queries, position: 0, keys, values: keys, runs: &runs }
    };
    for spans in [
        vec![],
        vec![span(0..2)],
        vec![span(0..4)],
        vec![span(1..3)],
        vec![span(0..2), span(1..3)],
        vec![span(0..1), span(2..3)],
        vec![span(2..3), span(0..2)],
    ] {
        let queries: Vec<_> = spans.iter().map(|span| span.queries.clone()).collect();
        refused(format!("{queries:?}"), device.attend(&q, &spans, &Attend::causal(1.0)), ErrorKind::Index)?;
    }
    Ok(())
}
