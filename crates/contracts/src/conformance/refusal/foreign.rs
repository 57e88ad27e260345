//! Refusals of handles that belong to another device: each operand of each operation.

use super::{dense, rope, tensor};
use crate::{
    conformance::{
        Broken, Outcome,
        affine::Codes,
        behaviours,
        expect::{refused, same},
        host::Host,
        span::{Row, spans},
    },
    tensor::{
        Activation, Affine, Attend, Binary, Convolution, Device, Dtype, ErrorKind, KvAppend, KvWrite, Plane,
        Precision, Quantized, Reduce, Rule, Scalar, Scan, StateSpan, Tensor, Unary, Weight,
    },
};

behaviours!("refusal", beside:
    foreign_operands_are_refused,
    foreign_products_are_refused,
    foreign_layers_are_refused,
    foreign_planes_are_refused,
    foreign_states_are_refused,
    storage_tells_where_a_value_lives,
);

const EXACT: Precision = Precision::Exact;
const KIND: ErrorKind = ErrorKind::Foreign;

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
    refused("pad", device.pad(&far, 0, 1, 0, Scalar::Float(0.0)), KIND)?;
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
    refused("linear_add weight", device.linear_add(residual.clone(), &own, &far_weight, EXACT), KIND)?;
    let (halves, far_halves) = (tensor(device, Dtype::F32, &[2, 64])?, tensor(other, Dtype::F32, &[2, 64])?);
    let far_residual = tensor(other, Dtype::F32, &[2, 3])?;
    let add = |residual, gate_up, weight| {
        device.gated_linear_add(residual, (gate_up, Activation::Silu), weight, EXACT)
    };
    refused("gated_linear_add residual", add(far_residual, &halves, &weight), KIND)?;
    refused("gated_linear_add halves", add(residual.clone(), &far_halves, &weight), KIND)?;
    refused("gated_linear_add weight", add(residual, &halves, &far_weight), KIND)
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
    let (near, away) = (rope(device, 2)?, rope(other, 2)?);
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
    for (mut plane, tokens) in [(far_plane.clone(), &tokens), (plane.clone(), &far_tokens)] {
        let append = KvAppend { plane: &mut plane, tokens, writes: &writes };
        refused("kv_append_each", device.kv_append_each(&mut [append]), KIND)?;
    }
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

/// Operands and states of layers that carry one.
pub fn foreign_states_are_refused(device: &Device, other: &Device) -> Outcome {
    let both = |shape: &[usize]| {
        Ok::<_, Broken>([tensor(device, Dtype::F32, shape)?, tensor(other, Dtype::F32, shape)?])
    };
    let ([x, far_x], [weight, far_weight]) = (both(&[2, 4])?, both(&[4, 3])?);
    let ([bias, far_bias], [tail, far_tail]) = (both(&[4])?, both(&[2, 4])?);
    let convolve = |x: &Tensor, weight: &Tensor, bias: &Tensor, tail: &Tensor| {
        let how = Convolution { weight, bias: Some(bias), silu: true };
        device.convolve(x, &[StateSpan { tokens: 0..2, state: tail }], &how)
    };
    refused("convolve x", convolve(&far_x, &weight, &bias, &tail), KIND)?;
    refused("convolve weight", convolve(&x, &far_weight, &bias, &tail), KIND)?;
    refused("convolve bias", convolve(&x, &weight, &far_bias, &tail), KIND)?;
    refused("convolve tail", convolve(&x, &weight, &bias, &far_tail), KIND)?;
    let shapes: [&[usize]; 6] = [&[2, 1, 3], &[2, 1, 3], &[2, 2, 5], &[2, 2], &[2, 2], &[2, 5, 3]];
    for far in 0..shapes.len() {
        let operand = |at: usize| tensor(if at == far { other } else { device }, Dtype::F32, shapes[at]);
        let [queries, keys, values, decay, rate, state] = [0, 1, 2, 3, 4, 5].map(operand);
        let (queries, keys, values) = (&queries?, &keys?, &values?);
        let how = Scan { queries, keys, values, decay: &decay?, rate: &rate?, rule: Rule::Delta };
        let result = device.scan(&how, &[StateSpan { tokens: 0..2, state: &state? }]);
        refused(format!("scan operand {far}"), result, KIND)?;
    }
    Ok(())
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
