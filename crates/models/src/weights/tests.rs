//! Tests of a checkpoint: its files together, whichever their format.

use super::*;
use crate::{
    Checkpoint, Options, Source,
    sample::{self, safetensors_raw},
};
use tandem_contracts::{
    fake,
    tensor::{Affine, Dtype, Element, Quantized},
};

const FOUR: Option<Scheme> = Some(Scheme::Affine(Affine { bits: 4, group: 32 }));

/// One tensor of a header: dtype, shape, bytes.
fn file(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        let info = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()] });
        header.insert((*name).to_owned(), info);
    }
    safetensors_raw(&serde_json::Value::Object(header).to_string(), &data)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Takes `m` as a matrix of a shape and dequantises it.
fn matrix(bytes: &[u8], scheme: Option<Scheme>, shape: [usize; 2]) -> Result<Vec<f32>> {
    let device = fake::open();
    let mut weights = Weights::safetensors(&[File { name: "w", bytes }], None)?;
    let dense = match weights.matrix("m", scheme, &shape, &device)? {
        Weight::Dense(dense) => dense,
        Weight::Affine(quantized) => device.dequantize(&quantized)?,
    };
    weights.finish()?;
    Ok(device.cast(&dense, Dtype::F32)?.to_vec()?)
}

#[test]
fn affine_planes_stay_codes() {
    // Two rows of 32 codes, 0 to 15 twice; scales 1 and 2, biases 0 and -1.
    let codes: Vec<u8> = [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe].repeat(4);
    let bytes = file(&[
        ("m.weight", "U32", &[2, 4], codes),
        ("m.scales", "F32", &[2, 1], floats(&[1.0, 2.0])),
        ("m.biases", "F32", &[2, 1], floats(&[0.0, -1.0])),
    ]);
    let values = matrix(&bytes, FOUR, [2, 32]).unwrap();
    assert_eq!(values[..16], (0..16).map(|code| code as f32).collect::<Vec<_>>()[..]);
    assert_eq!(values[32..48], (0..16).map(|code| (2 * code) as f32 - 1.0).collect::<Vec<_>>()[..]);
}

#[test]
fn planes_that_do_not_fit_are_refused_by_name() {
    let planes = |shape: &[usize], scales: &[f32], biases: Option<&str>| {
        let mut tensors = vec![
            ("m.weight", "U32", shape, vec![0; shape.iter().product::<usize>() * 4]),
            ("m.scales", "F32", &[2, 1][..], floats(scales)),
        ];
        if let Some(dtype) = biases {
            tensors.push(("m.biases", dtype, &[2, 1], floats(&[0.0, 0.0])));
        }
        file(&tensors)
    };
    let good = [1.0, 1.0];
    for (bytes, scheme, shape, expected) in [
        (planes(&[2, 4], &good, Some("F32")), None, [2, 32], "the configuration names no quantisation"),
        (planes(&[2, 4], &good, None), FOUR, [2, 32], "w: tensor m.biases: is not there"),
        (planes(&[2, 4], &good, Some("I32")), FOUR, [2, 32], "biases must be F32, are: Plain(I32)"),
        (planes(&[2, 3], &good, Some("F32")), FOUR, [2, 32], "must have the shape [2, 4], has: [2, 3]"),
        (planes(&[2, 4], &good, Some("F32")), FOUR, [2, 64], "must have the shape [2, 8], has: [2, 4]"),
        (
            planes(&[2, 4], &good, Some("F32")),
            FOUR,
            [2, 33],
            "33 inputs are no whole number of groups of: 32",
        ),
        (
            planes(&[2, 4], &[1.0, f32::NAN], Some("F32")),
            FOUR,
            [2, 32],
            "a scale is infinite or not a number",
        ),
        (planes(&[2, 4], &[1.0, f32::INFINITY], Some("F32")), FOUR, [2, 32], "a scale is infinite"),
    ] {
        let error = matrix(&bytes, scheme, shape).unwrap_err();
        assert_eq!(error.file(), Some("w"));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn extents_of_empty_tensors_enter_no_arithmetic() {
    let huge = [0, usize::MAX];
    let bytes = file(&[
        ("m.weight", "U32", &huge, vec![]),
        ("m.scales", "F32", &huge, vec![]),
        ("m.biases", "F32", &huge, vec![]),
    ]);
    assert!(matrix(&bytes, FOUR, [2, 32]).is_err());
    assert!(matrix(&file(&[("m.weight", "F32", &huge, vec![])]), None, [2, 32]).is_err());
}

#[test]
fn block_scaled_floats_are_decoded() {
    let bytes = file(&[("m.weight", "U32", &[1, 8], vec![0x38; 32]), ("m.scales", "U8", &[1, 1], vec![128])]);
    let scheme = Some(Scheme::Microscaling(Microscaling::Mxfp8));
    assert_eq!(matrix(&bytes, scheme, [1, 32]).unwrap(), [2.0; 32]);
    assert!(matrix(&bytes, scheme, [1, 64]).is_err());
}

#[test]
fn blocks_of_gguf_become_affine_codes() {
    let codes: [u8; 32] = std::array::from_fn(|i| (i % 16) as u8);
    let rows = [sample::q4_0(0.5, &codes), sample::q4_0(-1.0, &codes)].concat();
    let bytes = sample::GgufWriter::default().tensor("m.weight", &[2, 32], 2, &rows).finish();
    let device = fake::open();
    let gguf = Gguf::parse(File { name: "w", bytes: &bytes }).unwrap();
    let Weight::Affine(quantized) =
        Weights::gguf(gguf, 1, 1).unwrap().matrix("m", None, &[2, 32], &device).unwrap()
    else {
        panic!("blocks are affine");
    };
    let values =
        device.cast(&device.dequantize(&quantized).unwrap(), Dtype::F32).unwrap().to_vec::<f32>().unwrap();
    let expected = |scale: f32| codes.map(|code| scale * (f32::from(code) - 8.0));
    assert_eq!(values, [expected(0.5), expected(-1.0)].concat());

    // 8 times this scale is beyond f16.
    let loud = sample::q4_0(60_000.0, &codes);
    let bytes = sample::GgufWriter::default().tensor("m.weight", &[1, 32], 2, &loud).finish();
    let gguf = Gguf::parse(File { name: "w", bytes: &bytes }).unwrap();
    let error = Weights::gguf(gguf, 1, 1).unwrap().matrix("m", None, &[1, 32], &device).unwrap_err();
    assert_eq!(error.to_string(), "w: tensor m.weight: a scale is infinite or not a number");
}

#[test]
fn both_kinds_of_files_give_the_same_weights() {
    let device = fake::open();
    let (plain, gguf) = (sample::safetensors(&sample::weights()), sample::gguf().finish());
    let mut from_plain = Weights::safetensors(&[File { name: "w", bytes: &plain }], None).unwrap();
    let parsed = Gguf::parse(File { name: "w", bytes: &gguf }).unwrap();
    let mut from_gguf = Weights::gguf(parsed, sample::HEADS, 1).unwrap();
    for (name, tensor) in sample::weights() {
        let [outputs, inputs] = tensor.shape[..] else { continue };
        let path = name.trim_end_matches(".weight");
        for weights in [&mut from_plain, &mut from_gguf] {
            let Weight::Dense(weight) = weights.matrix(path, None, &[outputs, inputs], &device).unwrap()
            else {
                panic!("the sample is dense");
            };
            assert_eq!(weight.to_vec::<f32>().unwrap(), tensor.values, "{name}");
        }
    }
}

#[test]
fn missing_and_left_over_tensors_are_named() {
    let open = |weights: &std::collections::BTreeMap<String, sample::Floats>| {
        let (config, bytes) = (sample::config().to_string(), sample::safetensors(weights));
        let files = vec![File { name: "w", bytes: &bytes }];
        let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
        Checkpoint::open(source)?.load(&fake::open(), Options::default()).map(drop)
    };
    let mut weights = sample::weights();
    open(&weights).unwrap();
    let one = weights["model.norm.weight"].clone();
    weights.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), one.clone());
    weights.insert("lm_head.weight".into(), one.clone());
    open(&weights).unwrap();
    weights.insert("model.layers.2.norm.weight".into(), one.clone());
    let message = open(&weights).unwrap_err().to_string();
    assert_eq!(
        message,
        "w: tensor model.layers.2.norm.weight: the model has no such weight, left over in all: 1"
    );
    weights.remove("model.layers.2.norm.weight");
    // Nothing but a module's whole name makes a tensor superfluous, and biases of codes belong to codes.
    for stray in ["model.evilrope_freqs.weight", "model.layers.0.self_attn.q_proj.biases"] {
        weights.insert(stray.into(), one.clone());
        let message = open(&weights).unwrap_err().to_string();
        assert_eq!(message, format!("w: tensor {stray}: the model has no such weight, left over in all: 1"));
        weights.remove(stray);
    }
    weights.remove("model.norm.weight");
    assert_eq!(open(&weights).unwrap_err().to_string(), "w: tensor model.norm.weight: is not there");
    weights.insert("model.norm.weight".into(), sample::Floats { shape: vec![16, 2], ..one });
    let message = open(&weights).unwrap_err().to_string();
    assert_eq!(message, "w: tensor model.norm.weight: must have the shape [32], has: [16, 2]");
}

/// Each format against what llama.cpp's own package decodes from the same bytes.
#[test]
fn every_format_of_gguf_is_decoded_as_ggml_does() {
    let bytes = include_bytes!("../../../../fixtures/gguf/blocks.gguf");
    let expected = include_bytes!("../../../../fixtures/gguf/blocks.safetensors");
    let expected = ::safetensors::SafeTensors::deserialize(expected).unwrap();
    let device = fake::open();
    let mut weights = Weights::gguf(Gguf::parse(File { name: "w", bytes }).unwrap(), 1, 1).unwrap();
    for name in ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"] {
        let dense = match weights.matrix(name, None, &[3, 96], &device).unwrap() {
            Weight::Dense(dense) => device.cast(&dense, Dtype::F32).unwrap(),
            // Scales of f32, so that the products are as exact as ggml's.
            Weight::Affine(quantized) => device
                .dequantize(&Quantized {
                    scales: device.cast(&quantized.scales, Dtype::F32).unwrap(),
                    biases: device.cast(&quantized.biases, Dtype::F32).unwrap(),
                    ..quantized
                })
                .unwrap(),
        };
        let expected: Vec<f32> =
            expected.tensor(name).unwrap().data().chunks_exact(4).map(f32::read).collect();
        let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (got, expected) in dense.to_vec::<f32>().unwrap().iter().zip(&expected) {
            // Codes shifted by 8 or 128 round once more, by the last bit of the largest value at most.
            assert!((got - expected).abs() <= largest * f32::EPSILON, "{name}: {got} is not {expected}");
        }
    }
    for (name, width, is_coded) in [
        ("Q5_0", 32, true),
        ("Q5_1", 32, true),
        ("Q2_K", 256, false),
        ("Q3_K", 256, false),
        ("Q4_K", 256, true),
        ("Q5_K", 256, true),
        ("Q6_K", 256, false),
    ] {
        let weight = weights.matrix(name, None, &[4, width], &device).unwrap();
        assert_eq!(matches!(weight, Weight::Affine(_)), is_coded, "{name}");
        let got = match weight {
            Weight::Dense(dense) => dense,
            Weight::Affine(quantized) => device.dequantize(&quantized).unwrap(),
        };
        let expected = expected.tensor(name).unwrap().data().chunks_exact(4).map(f32::read);
        assert_eq!(got.to_vec::<f32>().unwrap(), expected.collect::<Vec<_>>(), "{name}");
    }
    weights.finish().unwrap();
}
