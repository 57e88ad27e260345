//! Weights of several parts, whether or not their formats let them be joined.

use tandem_backend_mlx::{Options, open};
use tandem_contracts::tensor::{Affine, Device, Dtype, Precision, Result, Tensor, Weight};

const INPUTS: usize = 64;

/// Numbers from -1 to 1 that repeat after a while.
fn sample(device: &Device, rows: usize, seed: usize) -> Result<Tensor> {
    let values: Vec<f32> =
        (0..rows * INPUTS).map(|i| ((i * 37 + seed * 101) % 201) as f32 / 100.0 - 1.0).collect();
    device.upload_f32(&values, &[rows, INPUTS])
}

/// A weight and the floats that it stands for.
fn affine(device: &Device, rows: usize, seed: usize, format: Affine) -> Result<(Weight, Vec<f32>)> {
    let quantized = device.quantize(&sample(device, rows, seed)?, format)?;
    let values = device.dequantize(&quantized)?.to_vec::<f32>()?;
    Ok((Weight::Affine(quantized), values))
}

fn dense(device: &Device, rows: usize, seed: usize) -> Result<(Weight, Vec<f32>)> {
    let rows = sample(device, rows, seed)?;
    Ok((Weight::Dense(rows.clone()), rows.to_vec::<f32>()?))
}

fn near(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= 1e-4, "{got} is not {expected}");
    }
}

fn check(device: &Device, parts: Vec<(Weight, Vec<f32>)>) -> Result<()> {
    let (weights, values): (Vec<Weight>, Vec<Vec<f32>>) = parts.into_iter().unzip();
    let rows: Vec<f32> = values.concat();
    let weight = device.prepare_linear(&weights)?;
    assert_eq!((weight.inputs(), weight.outputs() * INPUTS), (INPUTS, rows.len()));

    // Few tokens go through the codes; for many the codes may become floats first.
    for tokens in [3, 20] {
        let x = sample(device, tokens, 9)?;
        let inputs = x.to_vec::<f32>()?;
        let product: Vec<f32> = inputs
            .chunks(INPUTS)
            .flat_map(|x| rows.chunks(INPUTS).map(move |w| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>()))
            .collect();
        near(&device.linear(&x, &weight, Precision::Exact)?.to_vec::<f32>()?, &product);
    }

    let ids: Vec<i32> = (0..weight.outputs() as i32).rev().collect();
    let looked_up = device.embed(&weight, &device.upload_i32(&ids, &[ids.len()])?)?;
    let looked_up = device.cast(&looked_up, Dtype::F32)?.to_vec::<f32>()?;
    near(&looked_up, &rows.chunks(INPUTS).rev().collect::<Vec<_>>().concat());
    Ok(())
}

#[test]
fn parts_of_one_format() -> Result<()> {
    let device = open(Options::default())?;
    let format = Affine { bits: 4, group: 32 };
    check(&device, vec![affine(&device, 5, 1, format)?, affine(&device, 2, 2, format)?])?;
    check(&device, vec![dense(&device, 3, 1)?, dense(&device, 4, 2)?])
}

#[test]
fn parts_of_many_formats_keep_their_order() -> Result<()> {
    let device = open(Options::default())?;
    let four = Affine { bits: 4, group: 32 };
    let eight = Affine { bits: 8, group: 64 };
    check(
        &device,
        vec![
            affine(&device, 2, 1, four)?,
            affine(&device, 3, 2, four)?,
            affine(&device, 4, 3, eight)?,
            dense(&device, 1, 4)?,
            affine(&device, 2, 5, four)?,
        ],
    )
}

/// Few pairs of a row and an expert go through the product in their own order, many sorted by expert.
#[test]
fn experts_of_many_rows_are_those_of_each_row() -> Result<()> {
    const EXPERTS: usize = 5;
    let device = open(Options::default())?;
    let stack = |outputs, seed| {
        device.reshape(&sample(&device, EXPERTS * outputs, seed)?, &[EXPERTS, outputs, INPUTS])
    };
    let codes = device.quantize(&stack(3, 1)?, Affine { bits: 4, group: 32 })?;
    let (coded, plain) = (device.dequantize(&codes)?.to_vec::<f32>()?, stack(2, 2)?.to_vec::<f32>()?);
    let weight = device.prepare_linear(&[Weight::Affine(codes), Weight::Dense(stack(2, 2)?)])?;
    for (rows, choices) in [(9, 7), (32, 2), (45, 2), (64, 1)] {
        let x = sample(&device, rows, 9)?;
        // Not in order, and the last expert has no row.
        let chosen: Vec<i32> = (0..rows * choices).map(|i| (i * 7 % 11 % (EXPERTS - 1)) as i32).collect();
        let choice = device.upload_i32(&chosen, &[rows, choices])?;
        let got = device.gather_linear(&x, &weight, &choice, Precision::Exact)?.to_vec::<f32>()?;
        let x = x.to_vec::<f32>()?;
        let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
        let expected: Vec<f32> = chosen
            .iter()
            .enumerate()
            .flat_map(|(pair, &expert)| {
                let x = &x[pair / choices * INPUTS..][..INPUTS];
                let matrix = |of: &[f32], outputs: usize| -> Vec<f32> {
                    let size = outputs * INPUTS;
                    of[expert as usize * size..][..size].chunks(INPUTS).map(|w| dot(x, w)).collect()
                };
                [matrix(&coded, 3), matrix(&plain, 2)].concat()
            })
            .collect();
        near(&got, &expected);
    }
    Ok(())
}

#[test]
fn the_prepared_form_is_the_only_copy() -> Result<()> {
    let device = open(Options::default())?;
    let format = Affine { bits: 4, group: 32 };
    let (weight, _) = affine(&device, 8, 1, format)?;
    let prepared = device.prepare_linear(&[weight])?;
    // Codes of half a byte, and two f32 for every 32 of them.
    assert_eq!(prepared.bytes(), 8 * (INPUTS / 2 + INPUTS / 32 * 8));
    Ok(())
}
