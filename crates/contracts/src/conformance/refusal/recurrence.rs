//! Refusals of layers that carry a state.

use super::tensor;
use crate::{
    conformance::{Outcome, behaviours, expect::refused, state::spans},
    tensor::{Convolution, Device, Dtype, ErrorKind, Rule, Scan, StateSpan, Tensor},
};

behaviours!("refusal":
    convolutions_that_do_not_fit_are_refused,
    scans_that_do_not_fit_are_refused,
    rows_that_do_not_cover_the_tokens_are_refused,
);

const F32: Dtype = Dtype::F32;

fn plain(weight: &Tensor) -> Convolution<'_> {
    Convolution { weight, bias: None, silu: true }
}

/// Weights, biases and tails of another shape or dtype; no taps; other axes.
pub fn convolutions_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    let (x, weight) = (tensor(device, F32, &[3, 8])?, tensor(device, F32, &[8, 4])?);
    let tails = [tensor(device, F32, &[3, 8])?];
    let of = |x: &Tensor, tail: &Tensor, how: &Convolution<'_>| {
        device.convolve(x, &[StateSpan { tokens: 0..3, state: tail }], how)
    };
    for (dtype, shape, kind) in [
        (F32, &[7, 4][..], ErrorKind::Shape),
        (F32, &[8], ErrorKind::Shape),
        (F32, &[8, 0], ErrorKind::Shape),
        (F32, &[8, 3], ErrorKind::Shape),
        (Dtype::F16, &[8, 4], ErrorKind::Dtype),
    ] {
        let weight = tensor(device, dtype, shape)?;
        refused(format!("weight {dtype:?} {shape:?}"), of(&x, &tails[0], &plain(&weight)), kind)?;
    }
    for (dtype, shape, kind) in [
        (F32, &[7][..], ErrorKind::Shape),
        (F32, &[8, 1], ErrorKind::Shape),
        (Dtype::Bf16, &[8], ErrorKind::Dtype),
    ] {
        let bias = tensor(device, dtype, shape)?;
        let how = Convolution { bias: Some(&bias), ..plain(&weight) };
        refused(format!("bias {dtype:?} {shape:?}"), of(&x, &tails[0], &how), kind)?;
    }
    for (dtype, shape, kind) in [
        (F32, &[4, 8][..], ErrorKind::Shape),
        (F32, &[3, 7], ErrorKind::Shape),
        (F32, &[1, 3, 8], ErrorKind::Shape),
        (Dtype::Bf16, &[3, 8], ErrorKind::Dtype),
    ] {
        let tail = tensor(device, dtype, shape)?;
        refused(format!("tail {dtype:?} {shape:?}"), of(&x, &tail, &plain(&weight)), kind)?;
    }
    let deep = tensor(device, F32, &[3, 8, 1])?;
    refused("three axes", of(&deep, &tails[0], &plain(&weight)), ErrorKind::Shape)?;
    let [x, weight, tail] = [&[3, 8][..], &[8, 4], &[3, 8]].map(|shape| tensor(device, Dtype::I32, shape));
    refused("integers", of(&x?, &tail?, &plain(&weight?)), ErrorKind::Dtype)
}

/// Each operand of another shape or dtype, one after the other.
pub fn scans_that_do_not_fit_are_refused(device: &Device) -> Outcome {
    // 3 tokens, 2 key heads of 5, 4 value heads of 6.
    let good: [&[usize]; 6] = [&[3, 2, 5], &[3, 2, 5], &[3, 4, 6], &[3, 4], &[3, 4], &[4, 6, 5]];
    let (shape, dtype) = (ErrorKind::Shape, ErrorKind::Dtype);
    let cases: [(usize, Dtype, &[usize], ErrorKind); 17] = [
        (0, F32, &[3, 2, 4], shape),
        (0, F32, &[2, 2, 5], shape),
        (0, Dtype::F16, &[3, 2, 5], dtype),
        (1, F32, &[3, 4, 5], shape),
        (1, F32, &[3, 10], shape),
        (1, Dtype::Bf16, &[3, 2, 5], dtype),
        (2, F32, &[3, 3, 6], shape),
        (2, F32, &[2, 4, 6], shape),
        (2, F32, &[3, 24], shape),
        (2, Dtype::I32, &[3, 4, 6], dtype),
        (3, F32, &[3, 4, 1], shape),
        (3, Dtype::F16, &[3, 4], dtype),
        (4, F32, &[3, 2], shape),
        (4, Dtype::Bf16, &[3, 4], dtype),
        (5, F32, &[4, 5, 6], shape),
        (5, F32, &[1, 4, 6, 5], shape),
        (5, Dtype::F16, &[4, 6, 5], dtype),
    ];
    for (wrong, dtype, shape, kind) in cases {
        let operand = |at: usize| {
            if at == wrong { tensor(device, dtype, shape) } else { tensor(device, F32, good[at]) }
        };
        let [queries, keys, values, decay, rate, state] = [0, 1, 2, 3, 4, 5].map(operand);
        let (queries, keys, values) = (&queries?, &keys?, &values?);
        let how = Scan { queries, keys, values, decay: &decay?, rate: &rate?, rule: Rule::Delta };
        let result = device.scan(&how, &spans(&[3], &[state?]));
        refused(format!("operand {wrong} {dtype:?} {shape:?}"), result, kind)?;
    }
    Ok(())
}

/// Tokens that no row or two rows claim, and rows out of order.
pub fn rows_that_do_not_cover_the_tokens_are_refused(device: &Device) -> Outcome {
    let (x, weight, tail) =
        (tensor(device, F32, &[3, 2])?, tensor(device, F32, &[2, 2])?, tensor(device, F32, &[1, 2])?);
    let [queries, keys, values] = [(); 3].map(|()| tensor(device, F32, &[3, 1, 2]));
    let [decay, rate] = [(); 2].map(|()| tensor(device, F32, &[3, 1]));
    let state = tensor(device, F32, &[1, 2, 2])?;
    let convolution = Convolution { weight: &weight, bias: None, silu: false };
    let (queries, keys, values) = (&queries?, &keys?, &values?);
    let scan = Scan { queries, keys, values, decay: &decay?, rate: &rate?, rule: Rule::Sum };
    let cases: [&[(usize, usize)]; 8] = [
        &[],
        &[(0, 2)],
        &[(0, 4)],
        &[(1, 3)],
        &[(0, 2), (1, 3)],
        &[(0, 1), (2, 3)],
        &[(2, 3), (0, 2)],
        &[(0, 3), (3, 2)],
    ];
    for tokens in cases {
        let rows = |state| -> Vec<_> {
            tokens.iter().map(|&(start, end)| StateSpan { tokens: start..end, state }).collect()
        };
        let result = device.convolve(&x, &rows(&tail), &convolution);
        refused(format!("convolve {tokens:?}"), result, ErrorKind::Index)?;
        refused(format!("scan {tokens:?}"), device.scan(&scan, &rows(&state)), ErrorKind::Index)?;
    }
    Ok(())
}
