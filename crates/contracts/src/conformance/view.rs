//! Operands that are views of views: every operation reads elements, not memory.
//!
//! A device is compared with itself on dense copies, so nothing is left to tolerance where it has one arithmetic.

use super::{
    Broken, Outcome,
    affine::Codes,
    behaviours,
    expect::{near, same_bits},
    host::Host,
    span::{Row, spans},
};
use crate::tensor::{
    Activation, Affine, Attend, Binary, Device, Dtype, KvWrite, Plane, Precision, Reduce, Result, Rope,
    Scalar, Tensor, Unary, Weight,
};

behaviours!("view":
    operations_read_repeated_views,
    products_read_repeated_views,
    layers_read_repeated_views,
    attention_reads_strided_operands,
);

/// Equal bits where the device has one arithmetic; else within 256 roundings of the largest value, which is more than
/// the sums here have terms.
fn agree(device: &Device, place: &str, view: &Tensor, dense: &Tensor) -> Outcome {
    if device.traits().batch_invariant || !view.dtype().is_float() {
        return same_bits(place, device, view, dense);
    }
    let expected = Host::download(device, dense)?;
    let largest =
        expected.values.iter().filter(|x| x.is_finite()).fold(1.0f64, |largest, x| largest.max(x.abs()));
    near(place, device, view, &expected, |_| largest * 2f64.powi(-16))
}

/// `[4, 3, 64]` made of one row that repeats along two axes, turned around; and the same, dense.
fn repeated(device: &Device, dtype: Dtype) -> std::result::Result<[Tensor; 2], Broken> {
    let row = Host::sample(dtype, &[1, 1, 66], 250);
    let wide = device.broadcast(&row.upload(device)?, &[3, 4, 66])?;
    let view = device.transpose(&device.slice(&wide, &[0..3, 0..4, 1..65])?, &[1, 0, 2])?;
    let dense = Host::build(dtype, &[4, 3, 64], |index| row.at(&[0, 0, index[2] + 1])).upload(device)?;
    Ok([view, dense])
}

type Operation<'a> = (&'static str, Box<dyn Fn(&Tensor) -> Result<Tensor> + 'a>);

fn try_all(device: &Device, [view, dense]: &[Tensor; 2], operations: &[Operation<'_>]) -> Outcome {
    operations.iter().try_for_each(|(name, operation)| {
        agree(device, &format!("{name} {:?}", view.dtype()), &operation(view)?, &operation(dense)?)
    })
}

/// Layout, indexing, elementwise operations and reductions.
pub fn operations_read_repeated_views(device: &Device) -> Outcome {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::I32, Dtype::U8] {
        let index = device.upload_i32(&[2, 0, 3, 3], &[2, 2])?;
        let own = Host::sample_indices(&[4, 3, 2], 64, 251).upload(device)?;
        let operations: Vec<Operation<'_>> = vec![
            ("cast", Box::new(|x| device.cast(x, Dtype::Bf16))),
            ("view", Box::new(|x| device.view(x, Dtype::I8))),
            ("reshape", Box::new(|x| device.reshape(x, &[2, 384]))),
            ("concat", Box::new(|x| device.concat(&[x, x], 1))),
            ("pad", Box::new(|x| device.pad(x, 1, 1, 2, Scalar::Int(1)))),
            ("take", Box::new(|x| device.take(x, &index, 0))),
            ("take_along_axis", Box::new(|x| device.take_along_axis(x, &own, 2))),
            (
                "put_along_axis",
                Box::new(|x| device.put_along_axis(x.clone(), &own, &device.cast(&own, dtype)?, 2)),
            ),
            ("select", Box::new(|x| device.select(&device.binary(Binary::Less, x.clone(), x)?, x, x))),
            ("binary", Box::new(|x| device.binary(Binary::Multiply, x.clone(), x))),
            ("reduce", Box::new(|x| device.reduce(Reduce::Sum, x, 0))),
            ("maximum", Box::new(|x| device.reduce(Reduce::Maximum, x, 2))),
            ("cumsum", Box::new(|x| device.cumsum(x, 1))),
            ("argmax", Box::new(|x| device.argmax(x, 2))),
            ("argsort", Box::new(|x| device.argsort(x, 2))),
        ];
        try_all(device, &repeated(device, dtype)?, &operations)?;
    }
    Ok(())
}

/// Matrix products, quantisation, and prepared weights made of views and multiplied with views.
pub fn products_read_repeated_views(device: &Device) -> Outcome {
    let format = Affine { bits: 4, group: 32 };
    let weight =
        device.prepare_linear(&[Codes::sample(format, Dtype::F32, &[5, 64], 252).weight(device)?])?;
    let rows = |x: &Tensor| device.slice(x, &[0..4, 0..1, 0..64]);
    let matrix = |x: &Tensor| device.reshape(&rows(x)?, &[4, 64]);
    let x = Host::sample(Dtype::F32, &[3, 64], 253).upload(device)?;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let operations: Vec<Operation<'_>> = vec![
            ("matmul", Box::new(|x| device.matmul(x, &device.transpose(x, &[0, 2, 1])?))),
            ("codes", Box::new(|x| Ok(device.quantize(x, format)?.codes))),
            ("dequantize", Box::new(|x| device.dequantize(&device.quantize(x, format)?))),
            ("linear", Box::new(|x| device.linear(&matrix(x)?, &weight, Precision::Exact))),
            (
                "prepare_linear",
                Box::new(|y| {
                    let prepared = device.prepare_linear(&[Weight::Dense(matrix(y)?)])?;
                    device.linear(&x, &prepared, Precision::Exact)
                }),
            ),
        ];
        try_all(device, &repeated(device, dtype)?, &operations)?;
    }
    Ok(())
}

/// Norms, softmax, rotary positions, convolution, activations, and appends of repeated tokens.
pub fn layers_read_repeated_views(device: &Device) -> Outcome {
    let positions = device.upload_i32(&[3, 1, 4, 1], &[4])?;
    let rope = Rope { frequencies: device.upload_f32(&[1.0, 0.2], &[2])?, interleaved: true, scale: 1.0 };
    let writes = [KvWrite { tokens: 1..4, row: 1, column: 2 }];
    for dtype in [Dtype::F32, Dtype::F16] {
        let plane = Host::sample(dtype, &[2, 3, 6, 64], 254).upload(device)?;
        let taps = Host::sample(dtype, &[64, 2], 255).upload(device)?;
        let operations: Vec<Operation<'_>> = vec![
            ("softmax", Box::new(|x| device.softmax(x, 2))),
            ("rms_norm", Box::new(|x| device.rms_norm(x, None, 1e-5))),
            ("layer_norm", Box::new(|x| device.layer_norm(x, None, None, 1e-5))),
            ("rope", Box::new(|x| device.rope(x.clone(), &rope, &positions))),
            ("conv1d", Box::new(|x| device.conv1d(x, &taps))),
            (
                "gated",
                Box::new(|x| {
                    device.gated(
                        &device.slice(&device.reshape(x, &[12, 64])?, &[0..12, 1..63])?,
                        Activation::Silu,
                    )
                }),
            ),
            ("unary", Box::new(|x| device.unary(Unary::Sigmoid, x.clone()))),
            ("kv_append", Box::new(|x| device.kv_append(plane.clone(), x, &writes))),
        ];
        try_all(device, &repeated(device, dtype)?, &operations)?;
    }
    Ok(())
}

/// Queries and planes that are turned or cut out of larger tensors.
pub fn attention_reads_strided_operands(device: &Device) -> Outcome {
    let q = Host::sample(Dtype::F32, &[3, 4, 8], 256);
    let keys = Host::sample(Dtype::F32, &[2, 2, 7, 8], 257).forms(device)?;
    let values = Host::sample(Dtype::F32, &[2, 2, 7, 6], 258).forms(device)?;
    let rows = [Row::plain(1, 7, 2), Row::plain(0, 4, 1)];
    let attend = |q: &Tensor, keys: &Tensor, values: &Tensor| {
        let packed = spans(&rows, Plane::Plain(keys), Plane::Plain(values));
        device.attend(q, &packed, &Attend::causal(0.3))
    };
    let dense = attend(&q.upload(device)?, &keys[0].1, &values[0].1)?;
    for (form, q) in q.forms(device)? {
        for ((plane_form, keys), (_, values)) in keys.iter().zip(&values) {
            agree(
                device,
                &format!("{form} queries, {plane_form} planes"),
                &attend(&q, keys, values)?,
                &dense,
            )?;
        }
    }
    Ok(())
}
