//! Refusals of spans, and of handles that belong elsewhere.

use super::{
    Behaviour, Broken, Outcome,
    affine::Codes,
    error::{dense, rope, tensor},
    expect::{refused, same},
    host::Host,
    span::{Row, run, spans},
};
use crate::tensor::{
    Activation, Affine, Attend, Binary, Device, Dtype, ErrorKind, KvWrite, Plane, Precision, Quantized,
    Reduce, Rope, RowSpan, Run, Tensor, Unary, Weight,
};

pub(super) const BEHAVIOURS: &[Behaviour] = &[
    Behaviour::alone("refusal", "appends_outside_are_refused", appends_outside_are_refused),
    Behaviour::alone("refusal", "planes_that_do_not_fit_are_refused", planes_that_do_not_fit_are_refused),
    Behaviour::alone("refusal", "runs_that_do_not_fit_are_refused", runs_that_do_not_fit_are_refused),
    Behaviour::alone("refusal", "spans_that_do_not_fit_are_refused", spans_that_do_not_fit_are_refused),
    Behaviour::beside("refusal", "foreign_operands_are_refused", foreign_operands_are_refused),
    Behaviour::beside("refusal", "foreign_products_are_refused", foreign_products_are_refused),
    Behaviour::beside("refusal", "foreign_layers_are_refused", foreign_layers_are_refused),
    Behaviour::beside("refusal", "foreign_planes_are_refused", foreign_planes_are_refused),
    Behaviour::beside("refusal", "storage_tells_where_a_value_lives", storage_tells_where_a_value_lives),
];

const EXACT: Precision = Precision::Exact;
const KIND: ErrorKind = ErrorKind::Foreign;

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
    }
    for (dtype, shape, kind) in [
        (Dtype::F32, &[3, 2, 8][..], ErrorKind::Shape),
        (Dtype::F32, &[3, 3, 7], ErrorKind::Shape),
        (Dtype::F32, &[3, 24], ErrorKind::Shape),
        (Dtype::F16, &[3, 3, 8], ErrorKind::Dtype),
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

/// Each operand of layout, indexing, elementwise and reducing operations, and of evaluation.
pub fn foreign_operands_are_refused(device: &Device, other: &Device) -> Outcome {
    let (own, far) = (tensor(device, Dtype::F32, &[2, 4])?, tensor(other, Dtype::F32, &[2, 4])?);
    let (index, far_index) = (device.upload_i32(&[0; 8], &[2, 4])?, other.upload_i32(&[0; 8], &[2, 4])?);
    let (truth, far_truth) = (tensor(device, Dtype::Bool, &[2, 4])?, tensor(other, Dtype::Bool, &[2, 4])?);
    refused("download", device.download(&far), KIND)?;
    refused("eval", device.eval(&[&own, &far]), KIND)?;
    refused("async_eval", device.async_eval(&[&far]), KIND)?;
    refused("view", device.view(&far, Dtype::U8), KIND)?;
    refused("reshape", device.reshape(&far, &[8]), KIND)?;
    refused("transpose", device.transpose(&far, &[1, 0]), KIND)?;
    refused("broadcast", device.broadcast(&far, &[3, 2, 4]), KIND)?;
    refused("concat", device.concat(&[&own, &far], 0), KIND)?;
    refused("pad", device.pad(&far, 0, 1, 0, crate::tensor::Scalar::Float(0.0)), KIND)?;
    refused("slice", device.slice(&far, &[0..1, 0..1]), KIND)?;
    refused("slice_update of", device.slice_update(far.clone(), &own, &[0, 0]), KIND)?;
    refused("slice_update by", device.slice_update(own.clone(), &far, &[0, 0]), KIND)?;
    refused("cast", device.cast(&far, Dtype::F16), KIND)?;
    refused("take of", device.take(&far, &index, 0), KIND)?;
    refused("take by", device.take(&own, &far_index, 0), KIND)?;
    refused("take_along_axis of", device.take_along_axis(&far, &index, 0), KIND)?;
    refused("take_along_axis by", device.take_along_axis(&own, &far_index, 0), KIND)?;
    refused("put_along_axis of", device.put_along_axis(far.clone(), &index, &own, 0), KIND)?;
    refused("put_along_axis by", device.put_along_axis(own.clone(), &far_index, &own, 0), KIND)?;
    refused("put_along_axis values", device.put_along_axis(own.clone(), &index, &far, 0), KIND)?;
    refused("select by", device.select(&far_truth, &own, &own), KIND)?;
    refused("select a", device.select(&truth, &far, &own), KIND)?;
    refused("select b", device.select(&truth, &own, &far), KIND)?;
    refused("unary", device.unary(Unary::Exp, far.clone()), KIND)?;
    refused("binary a", device.binary(Binary::Add, far.clone(), &own), KIND)?;
    refused("binary b", device.binary(Binary::Add, own.clone(), &far), KIND)?;
    refused("reduce", device.reduce(Reduce::Sum, &far, 0), KIND)?;
    refused("softmax", device.softmax(&far, 0), KIND)?;
    refused("cumsum", device.cumsum(&far, 0), KIND)?;
    refused("argmax", device.argmax(&far, 0), KIND)?;
    refused("argsort", device.argsort(&far, 0), KIND)?;
    refused("argpartition", device.argpartition(&far, 0, 0), KIND)
}

/// Each operand of products and of quantisation, prepared weights included.
pub fn foreign_products_are_refused(device: &Device, other: &Device) -> Outcome {
    let (own, far) = (tensor(device, Dtype::F32, &[2, 32])?, tensor(other, Dtype::F32, &[2, 32])?);
    let turned = device.transpose(&own, &[1, 0])?;
    refused("matmul a", device.matmul(&far, &turned), KIND)?;
    refused("matmul b", device.matmul(&own, &other.transpose(&far, &[1, 0])?), KIND)?;
    let format = Affine { bits: 4, group: 32 };
    refused("quantize", device.quantize(&far, format), KIND)?;
    let (q, far_q) = (device.quantize(&own, format)?, other.quantize(&far, format)?);
    for (name, planes) in [
        ("codes", Quantized { codes: far_q.codes.clone(), ..q.clone() }),
        ("scales", Quantized { scales: far_q.scales.clone(), ..q.clone() }),
        ("biases", Quantized { biases: far_q.biases.clone(), ..q }),
    ] {
        refused(format!("dequantize {name}"), device.dequantize(&planes), KIND)?;
        refused(format!("prepare_linear {name}"), device.prepare_linear(&[Weight::Affine(planes)]), KIND)?;
    }
    let parts = [Weight::Dense(own.clone()), Weight::Dense(far.clone())];
    refused("prepare_linear", device.prepare_linear(&parts), KIND)?;

    let (weight, far_weight) = (dense(device, &[3, 32])?, dense(other, &[3, 32])?);
    let (choice, far_choice) = (device.upload_i32(&[0; 2], &[2, 1])?, other.upload_i32(&[0; 2], &[2, 1])?);
    let (ids, far_ids) = (device.upload_i32(&[0], &[1])?, other.upload_i32(&[0], &[1])?);
    refused("linear x", device.linear(&far, &weight, EXACT), KIND)?;
    refused("linear weight", device.linear(&own, &far_weight, EXACT), KIND)?;
    refused("gather_linear x", device.gather_linear(&far, &weight, &choice, EXACT), KIND)?;
    refused("gather_linear weight", device.gather_linear(&own, &far_weight, &choice, EXACT), KIND)?;
    refused("gather_linear choice", device.gather_linear(&own, &weight, &far_choice, EXACT), KIND)?;
    refused("embed ids", device.embed(&weight, &far_ids), KIND)?;
    refused("embed weight", device.embed(&far_weight, &ids), KIND)?;
    let (scale, far_scale) = (tensor(device, Dtype::F32, &[32])?, tensor(other, Dtype::F32, &[32])?);
    refused("norm_linear x", device.norm_linear(&far, (&scale, 1e-5), &weight, EXACT), KIND)?;
    refused("norm_linear scale", device.norm_linear(&own, (&far_scale, 1e-5), &weight, EXACT), KIND)?;
    refused("norm_linear weight", device.norm_linear(&own, (&scale, 1e-5), &far_weight, EXACT), KIND)?;
    let (residual, far_residual) =
        (tensor(device, Dtype::F32, &[2, 3])?, tensor(other, Dtype::F32, &[2, 3])?);
    refused("linear_add residual", device.linear_add(far_residual, &own, &weight, EXACT), KIND)?;
    refused("linear_add x", device.linear_add(residual.clone(), &far, &weight, EXACT), KIND)?;
    refused("linear_add weight", device.linear_add(residual, &own, &far_weight, EXACT), KIND)
}

/// Each operand of norms, rotary positions, convolution and gated activations.
pub fn foreign_layers_are_refused(device: &Device, other: &Device) -> Outcome {
    let (own, far) = (tensor(device, Dtype::F32, &[2, 4])?, tensor(other, Dtype::F32, &[2, 4])?);
    let (scale, far_scale) = (tensor(device, Dtype::F32, &[4])?, tensor(other, Dtype::F32, &[4])?);
    refused("rms_norm x", device.rms_norm(&far, None, 1e-5), KIND)?;
    refused("rms_norm weight", device.rms_norm(&own, Some(&far_scale), 1e-5), KIND)?;
    refused("layer_norm x", device.layer_norm(&far, None, None, 1e-5), KIND)?;
    refused("layer_norm weight", device.layer_norm(&own, Some(&far_scale), None, 1e-5), KIND)?;
    refused("layer_norm bias", device.layer_norm(&own, Some(&scale), Some(&far_scale), 1e-5), KIND)?;
    refused("gated", device.gated(&far, Activation::Silu), KIND)?;
    let (x, far_x) = (tensor(device, Dtype::F32, &[2, 3, 4])?, tensor(other, Dtype::F32, &[2, 3, 4])?);
    let (places, far_places) = (device.upload_i32(&[0, 1], &[2])?, other.upload_i32(&[0, 1], &[2])?);
    let (near, away): (Rope, Rope) = (rope(device, 2)?, rope(other, 2)?);
    refused("rope x", device.rope(far_x.clone(), &near, &places), KIND)?;
    refused("rope frequencies", device.rope(x.clone(), &away, &places), KIND)?;
    refused("rope positions", device.rope(x.clone(), &near, &far_places), KIND)?;
    let (taps, far_taps) = (tensor(device, Dtype::F32, &[4, 2])?, tensor(other, Dtype::F32, &[4, 2])?);
    refused("conv1d x", device.conv1d(&far_x, &taps), KIND)?;
    refused("conv1d weight", device.conv1d(&x, &far_taps), KIND)
}

/// Planes, codes, tokens, queries and sinks.
pub fn foreign_planes_are_refused(device: &Device, other: &Device) -> Outcome {
    let shape = [1, 2, 3, 32];
    let (plane, far_plane) = (tensor(device, Dtype::F32, &shape)?, tensor(other, Dtype::F32, &shape)?);
    let (tokens, far_tokens) =
        (tensor(device, Dtype::F32, &[1, 2, 32])?, tensor(other, Dtype::F32, &[1, 2, 32])?);
    let writes = [KvWrite { tokens: 0..1, row: 0, column: 0 }];
    refused("kv_append plane", device.kv_append(far_plane.clone(), &tokens, &writes), KIND)?;
    refused("kv_append tokens", device.kv_append(plane.clone(), &far_tokens, &writes), KIND)?;
    let far_codes = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &shape, 241).upload(other)?;
    let rows = [Row::plain(0, 3, 1)];
    let causal = Attend::causal(1.0);
    let attend = |q: &Tensor, keys: Plane<'_>, values: Plane<'_>, how: &Attend<'_>| {
        device.attend(q, &spans(&rows, keys, values), how)
    };
    let (own, far) = (Plane::Plain(&plane), Plane::Plain(&far_plane));
    refused("attend q", attend(&far_tokens, own, own, &causal), KIND)?;
    refused("attend keys", attend(&tokens, far, own, &causal), KIND)?;
    refused("attend values", attend(&tokens, own, far, &causal), KIND)?;
    refused("attend key codes", attend(&tokens, Plane::Affine(&far_codes), own, &causal), KIND)?;
    refused("attend value codes", attend(&tokens, own, Plane::Affine(&far_codes), &causal), KIND)?;
    let far_sinks = tensor(other, Dtype::F32, &[2])?;
    refused("attend sinks", attend(&tokens, own, own, &Attend { sinks: Some(&far_sinks), ..causal }), KIND)
}

/// The storage, not the handle around it, says where a value lives.
pub fn storage_tells_where_a_value_lives(device: &Device, other: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[2, 4], 242);
    let own = Tensor::new(host.upload(device)?.into_storage(), other.clone());
    same("own storage", device, &device.cast(&own, Dtype::F32)?, &host)?;
    let far = Tensor::new(host.upload(other)?.into_storage(), device.clone());
    refused("foreign storage", device.cast(&far, Dtype::F32), KIND)?;
    if device.id() == other.id() {
        return Err(Broken::new("two devices share an identity"));
    }
    Ok(())
}
