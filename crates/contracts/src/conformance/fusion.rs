//! Provided operations of products and activations: held to a naive reference, and overrides to their bodies.
//!
//! An override may have an arithmetic of its own, so it need not have the body's bits; both lie within the
//! operation's bound, hence within twice that of each other.

use super::{
    Broken, Outcome,
    affine::Codes,
    behaviours,
    expect::{near, same, same_bits},
    host::{Host, indices},
    linear::{Matrix, product},
    tolerance::{roundings, unit},
    unary::erf,
};
use crate::tensor::{Activation, Affine, Binary, Device, Dtype, Linear, Tensor, fused};

behaviours!("fusion":
    norm_linear_is_its_body,
    linear_add_is_its_body,
    gated_linear_add_is_its_body,
    gated_activations,
    gated_is_its_body,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Holds a result to the reference, and to what the body gives.
fn hold(
    device: &Device,
    place: &str,
    [own, body]: [&Tensor; 2],
    expected: &Host,
    bound: impl Fn(usize) -> f64,
) -> Outcome {
    near(place, device, own, expected, &bound)?;
    near(format!("{place}, against the body"), device, own, &Host::download(device, body)?, |i| {
        2.0 * bound(i)
    })
}

/// Operands: 3 tokens of 64, and an affine weight of 7 outputs.
struct Operands {
    x: Host,
    weight: Codes,
    prepared: Linear,
}

impl Operands {
    fn new(device: &Device) -> Result<Self, Broken> {
        let weight = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[7, 64], 104);
        let prepared = device.prepare_linear(&[weight.weight(device)?])?;
        Ok(Self { x: Host::sample(Dtype::F32, &[3, 64], 105), weight, prepared })
    }
}

/// `norm_linear` is `rms_norm`, then `linear`. The norm errs by about half as many roundings as the product.
pub fn norm_linear_is_its_body(device: &Device) -> Outcome {
    let Operands { x, weight, prepared } = Operands::new(device)?;
    let scale = Host::sample(Dtype::F32, &[64], 106);
    let normal = Host::build(Dtype::F32, &x.shape, |index| {
        let mean = (0..64).map(|i| x.at(&[index[0], i]).powi(2)).sum::<f64>() / 64.0;
        x.at(index) / (mean + 1e-5).sqrt() * scale.values[index[1]]
    });
    let (x, scale) = (x.upload(device)?, scale.upload(device)?);
    for &precision in device.traits().precisions {
        let (expected, bounds) = product(&normal, &Matrix::affine(&weight), precision);
        let body = device.linear(&device.rms_norm(&x, Some(&scale), 1e-5)?, &prepared, precision)?;
        let own = device.norm_linear(&x, (&scale, 1e-5), &prepared, precision)?;
        hold(device, &format!("{precision:?}"), [&own, &body], &expected, |i| 2.0 * bounds[i])?;
    }
    Ok(())
}

/// `linear_add` is `linear`, then a sum with the residual, from a last handle and from a shared one.
pub fn linear_add_is_its_body(device: &Device) -> Outcome {
    let Operands { x, weight, prepared } = Operands::new(device)?;
    let residual = Host::sample(Dtype::F32, &[3, 7], 107);
    let uploaded = x.upload(device)?;
    for &precision in device.traits().precisions {
        let (products, bounds) = product(&x, &Matrix::affine(&weight), precision);
        let expected = Host::build(Dtype::F32, &[3, 7], |index| products.at(index) + residual.at(index));
        let bound = |i: usize| bounds[i] + roundings(Dtype::F32, 2.0, expected.values[i]);
        let kept = residual.upload(device)?;
        let y = device.linear(&uploaded, &prepared, precision)?;
        let body = device.binary(Binary::Add, kept.clone(), &y)?;
        let own = device.linear_add(kept.clone(), &uploaded, &prepared, precision)?;
        hold(device, &format!("{precision:?}, shared"), [&own, &body], &expected, bound)?;
        same("the residual", device, &kept, &residual)?;
        let own = device.linear_add(residual.upload(device)?, &uploaded, &prepared, precision)?;
        hold(device, &format!("{precision:?}, last"), [&own, &body], &expected, bound)?;
    }
    Ok(())
}

/// `gated_linear_add` is `gated`, then `linear_add`, from a last handle and from a shared one. The activation errs by
/// no more than the product, whose inputs are as many.
pub fn gated_linear_add_is_its_body(device: &Device) -> Outcome {
    let Operands { weight, prepared, .. } = Operands::new(device)?;
    let halves = Host::sample(Dtype::F32, &[3, 128], 108);
    let residual = Host::sample(Dtype::F32, &[3, 7], 107);
    let uploaded = halves.upload(device)?;
    for (&precision, activation) in device.traits().precisions.iter().zip(ACTIVATIONS.into_iter().cycle()) {
        let inner = Host::build(Dtype::F32, &[3, 64], |index| {
            activate(activation, halves.at(index)) * halves.at(&[index[0], 64 + index[1]])
        });
        let (products, bounds) = product(&inner, &Matrix::affine(&weight), precision);
        let expected = Host::build(Dtype::F32, &[3, 7], |index| products.at(index) + residual.at(index));
        let bound = |i: usize| 2.0 * bounds[i] + roundings(Dtype::F32, 2.0, expected.values[i]);
        let kept = residual.upload(device)?;
        let inner = device.gated(&uploaded, activation)?;
        let body = device.linear_add(kept.clone(), &inner, &prepared, precision)?;
        let gate_up = (&uploaded, activation);
        let own = device.gated_linear_add(kept.clone(), gate_up, &prepared, precision)?;
        hold(device, &format!("{precision:?}, shared"), [&own, &body], &expected, bound)?;
        if device.traits().batch_invariant {
            same_bits(format!("{precision:?}, against the body"), device, &own, &body)?;
        }
        same("the residual", device, &kept, &residual)?;
        let own = device.gated_linear_add(residual.upload(device)?, gate_up, &prepared, precision)?;
        hold(device, &format!("{precision:?}, last"), [&own, &body], &expected, bound)?;
    }
    Ok(())
}

const ACTIVATIONS: [Activation; 3] = [Activation::Silu, Activation::GeluTanh, Activation::Gelu];

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / 2.0 * (1.0 + inner.tanh())
        }
        Activation::Gelu => x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    }
}

/// `1 + tanh` and `1 + erf` cancel below zero, so the bound is relative to the operands; `erf` itself may err by
/// 1e-6, and a body in 16 bits rounds about ten times.
fn gated_bound(dtype: Dtype, size: f64) -> f64 {
    let narrow = if dtype == Dtype::F32 { 0.0 } else { 10.0 * unit(dtype) * size };
    roundings(dtype, 32.0, size) + 1e-6 * size + narrow
}

/// Every activation of joined halves, dense and strided, and of no tokens.
pub fn gated_activations(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for [tokens, width] in [[3, 10], [1, 66], [0, 4]] {
            let host = Host::sample(dtype, &[tokens, 2 * width], 119);
            let up = |index: &[usize]| host.at(&[index[0], width + index[1]]);
            for activation in ACTIVATIONS {
                let shape = [tokens, width];
                let expected =
                    Host::build(dtype, &shape, |index| activate(activation, host.at(index)) * up(index));
                let sizes: Vec<f64> =
                    indices(&shape).iter().map(|index| (host.at(index) * up(index)).abs()).collect();
                let bound = |i: usize| gated_bound(dtype, sizes[i]);
                for (form, x) in host.forms(device)? {
                    let place = format!("{activation:?} {dtype:?} {shape:?}, {form}");
                    near(place, device, &device.gated(&x, activation)?, &expected, bound)?;
                }
            }
        }
    }
    Ok(())
}

/// An override of `gated` and its body agree.
pub fn gated_is_its_body(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let host = Host::sample(dtype, &[3, 38], 120);
        for activation in ACTIVATIONS {
            let x = host.upload(device)?;
            let (own, body) = (device.gated(&x, activation)?, fused::gated(device, &x, activation)?);
            // Operands are within 4.
            let bound = 2.0 * gated_bound(dtype, 16.0);
            let body = Host::download(device, &body)?;
            near(format!("{activation:?} {dtype:?}"), device, &own, &body, |_| bound)?;
        }
    }
    Ok(())
}
