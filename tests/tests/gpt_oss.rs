//! gpt-oss as its authors publish it answers as the same model in MLX's form: rows of gates and ups in turn, MXFP4 in
//! blocks of 16 bytes, floats elsewhere.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs};
use tandem_contracts::model::Wanted;
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_tests::{
    device::Backend,
    drive::{Driver, Logits},
    fixtures,
};

/// Extents of the golden model: experts, width inside, width outside.
const EXTENTS: [usize; 3] = [4, 32, 64];

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Tensors = BTreeMap<String, Stored>;

fn golden() -> (Value, Tensors) {
    let folder = fixtures().join("tiny/gpt_oss_wide-mxfp4");
    let config = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    let file = fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let stored = |view: &TensorView<'_>| Stored {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    (config, tensors.iter().map(|(name, view)| (name.to_owned(), stored(&view))).collect())
}

/// Rows of each expert in turn, one of the first and one of the second.
fn in_turn(gate: &Stored, up: &Stored, shape: &[usize]) -> Stored {
    let size = gate.bytes.len() / (EXTENTS[0] * EXTENTS[1]);
    let rows = gate.bytes.chunks(size).zip(up.bytes.chunks(size));
    let bytes = rows.flat_map(|(gate, up)| [gate, up].concat()).collect();
    Stored { dtype: gate.dtype, shape: shape.to_vec(), bytes }
}

/// Experts under the authors' names.
fn with_blocks(mut tensors: Tensors) -> Tensors {
    let [experts, inner, hidden] = EXTENTS;
    for layer in 0..2 {
        let path = format!("model.layers.{layer}.mlp.experts");
        for (part, name, dtype) in
            [("weight", "blocks", Dtype::U8), ("scales", "scales", Dtype::U8), ("bias", "bias", Dtype::F32)]
        {
            let [gate, up, down] = ["gate", "up", "down"].map(|which| Stored {
                dtype,
                ..tensors.remove(&format!("{path}.{which}_proj.{part}")).unwrap()
            });
            let behind = |inputs: usize| match name {
                "blocks" => vec![inputs / 32, 16],
                "scales" => vec![inputs / 32],
                _ => vec![],
            };
            let shape = [vec![experts, 2 * inner], behind(hidden)].concat();
            tensors.insert(format!("{path}.gate_up_proj_{name}"), in_turn(&gate, &up, &shape));
            let shape = [vec![experts, hidden], behind(inner)].concat();
            tensors.insert(format!("{path}.down_proj_{name}"), Stored { shape, ..down });
        }
    }
    tensors
}

/// What MXFP4 or 8-bit codes of a module stand for: each is exact in f32.
fn decoded(codes: &Stored, scales: &Stored, biases: Option<&Stored>) -> Stored {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let floats = |it: &Stored| {
        it.bytes.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap())).collect::<Vec<f32>>()
    };
    let values: Vec<f32> = match biases {
        Some(biases) => {
            let (scales, biases) = (floats(scales), floats(biases));
            let codes = codes.bytes.iter().enumerate();
            codes.map(|(i, code)| scales[i / 64].mul_add(f32::from(*code), biases[i / 64])).collect()
        }
        None => {
            let nibbles = codes.bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            let sign = |nibble: u8| if nibble & 8 == 0 { 1.0 } else { -1.0 };
            let value = |nibble: u8| sign(nibble) * MAGNITUDES[usize::from(nibble & 7)];
            let scale = |i: usize| 2f32.powi(i32::from(scales.bytes[i / 32]) - 127);
            nibbles.enumerate().map(|(i, nibble)| value(nibble) * scale(i)).collect()
        }
    };
    let rows = codes.shape[0];
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Stored { dtype: Dtype::F32, shape: vec![rows, values.len() / rows], bytes }
}

/// The whole model as its authors would have it.
fn authors() -> (Value, Tensors) {
    let (mut config, tensors) = golden();
    let mut tensors = with_blocks(tensors);
    let coded: Vec<String> =
        tensors.keys().filter_map(|name| name.strip_suffix(".scales").map(str::to_owned)).collect();
    for path in coded {
        let scales = tensors.remove(&format!("{path}.scales")).unwrap();
        let biases = tensors.remove(&format!("{path}.biases"));
        let weight = tensors.get_mut(&format!("{path}.weight")).unwrap();
        *weight = decoded(weight, &scales, biases.as_ref());
    }
    let fields = config.as_object_mut().unwrap();
    fields.remove("quantization");
    fields.insert(
        "quantization_config".to_owned(),
        json!({ "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"] }),
    );
    (config, tensors)
}

fn logits(backend: Backend, (config, tensors): &(Value, Tensors)) -> Result<Vec<Logits>, String> {
    let views = tensors
        .iter()
        .map(|(name, it)| (name.as_str(), TensorView::new(it.dtype, it.shape.clone(), &it.bytes).unwrap()));
    let (file, config) = (serialize(views, None).unwrap(), config.to_string());
    let files = vec![File { name: "model.safetensors", bytes: &file }];
    let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
    let checkpoint = Checkpoint::open(source).map_err(|error| error.to_string())?;
    let device = backend.open().unwrap();
    let loaded = Driver::load_with(checkpoint, &device, Options::default());
    let mut driver = loaded.map_err(|error| error.to_string())?;
    let slot = driver.open().unwrap();
    let prompt: Vec<u32> = (0..24).map(|i| (i * 37 + 5) % 128).collect();
    Ok(driver.step(&[(slot, &prompt, Wanted::All)]).unwrap())
}

fn hold(backend: Backend) {
    let (config, tensors) = golden();
    let expected = logits(backend, &(config.clone(), tensors.clone())).unwrap();
    assert_eq!(logits(backend, &(config, with_blocks(tensors))).unwrap(), expected);
    assert_eq!(logits(backend, &authors()).unwrap(), expected);
}

#[test]
fn the_authors_form_is_mlx_form_on_the_fake() {
    hold(Backend::Fake);
}

#[test]
fn the_authors_form_is_mlx_form_on_the_cpu() {
    hold(Backend::Cpu);
}

#[test]
fn shapes_that_lie_are_refused_by_file_and_tensor() {
    let path = "model.layers.0.mlp.experts";
    let refusal = |name: &str, change: &dyn Fn(&mut Stored)| {
        let (config, mut tensors) = authors();
        change(tensors.get_mut(&format!("{path}.{name}")).unwrap());
        logits(Backend::Fake, &(config, tensors)).unwrap_err()
    };
    let shaped = |shape: &'static [usize]| move |it: &mut Stored| it.shape = shape.to_vec();
    let octets = |it: &mut Stored| (it.dtype, it.shape[3]) = (Dtype::U32, 4);
    let halved = |it: &mut Stored| {
        it.shape[1] /= 2;
        it.bytes.truncate(it.bytes.len() / 2);
    };
    let no_number = |it: &mut Stored| it.bytes[5] = 255;
    type Change<'c> = &'c dyn Fn(&mut Stored);
    let cases: [(&str, Change<'_>, &str); 8] = [
        (
            "gate_up_proj_blocks",
            &shaped(&[4, 32, 4, 16]),
            "must have the shape [4, 64, 2, 16], has: [4, 32, 4, 16]",
        ),
        ("gate_up_proj_blocks", &octets, "elements must be U8, are: Plain(U32)"),
        ("gate_up_proj_scales", &halved, "must have the shape [4, 64, 2], has: [4, 32, 2]"),
        ("gate_up_proj_scales", &no_number, "a scale is not a number"),
        ("gate_up_proj_bias", &shaped(&[64, 4]), "must have the shape [4, 64], has: [64, 4]"),
        ("down_proj_blocks", &halved, "must have the shape [4, 64, 1, 16], has: [4, 32, 1, 16]"),
        ("down_proj_scales", &shaped(&[4, 64]), "must have the shape [4, 64, 1], has: [4, 64]"),
        ("down_proj_bias", &halved, "must have the shape [4, 64], has: [4, 32]"),
    ];
    for (name, change, expected) in cases {
        assert_eq!(refusal(name, change), format!("model.safetensors: tensor {path}.{name}: {expected}"));
    }
    let (config, mut tensors) = authors();
    tensors.remove(&format!("{path}.down_proj_scales")).unwrap();
    let refused = logits(Backend::Fake, &(config, tensors)).unwrap_err();
    assert_eq!(refused, format!("model.safetensors: tensor {path}.down_proj_scales: is not there"));
}
