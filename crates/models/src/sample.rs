//! Small model files for tests, written from scratch: a llama of two layers, as safetensors and as GGUF, and models whose
//! layers carry states or have experts.

mod recurrent;
mod routed;

pub(crate) use recurrent::{RECURRENT, Recurrent};
pub(crate) use routed::{ROUTED, Routed};

use crate::{Checkpoint, Options, Result, Source, weights::File};
use half::f16;
use serde_json::{Value, json};
use std::{collections::BTreeMap, num::NonZeroUsize};
use tandem_contracts::{
    fake,
    model::Session,
    tensor::{Affine, Device},
};
use tandem_kv::{Layout, bank::Paging};

/// Extents of the sample llama.
pub(crate) const HIDDEN: usize = 32;
pub(crate) const HEADS: usize = 2;
pub(crate) const WIDTH: usize = 32;
pub(crate) const VOCABULARY: usize = 24;
pub(crate) const CONTEXT: usize = 40;
const LAYERS: usize = 2;
const INNER: usize = 64;

/// `config.json` of the sample.
pub(crate) fn config() -> Value {
    json!({
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": WIDTH, "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": [2, 3],
    })
}

/// A float tensor on the host.
#[derive(Clone, Debug)]
pub(crate) struct Floats {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Floats {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// Weights that are drawn one after the other.
#[derive(Debug)]
pub(crate) struct Draw {
    state: u32,
    pub(crate) weights: BTreeMap<String, Floats>,
}

impl Draw {
    pub(crate) fn new() -> Self {
        Self { state: 7, weights: BTreeMap::new() }
    }

    /// Matrices around 0, vectors around 1.
    pub(crate) fn add(&mut self, name: &str, shape: &[usize]) {
        let offset = if shape.len() == 1 { 1.0 } else { 0.0 };
        let mut next = || {
            self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let values = (0..shape.iter().product()).map(|_| offset + next() * 0.5).collect();
        self.weights.insert(name.to_owned(), Floats { shape: shape.to_vec(), values });
    }
}

/// The sample's weights, under the names of safetensors files.
pub(crate) fn weights() -> BTreeMap<String, Floats> {
    let mut draw = Draw::new();
    let mut add = |name: String, shape: &[usize]| draw.add(&name, shape);
    add("model.embed_tokens.weight".into(), &[VOCABULARY, HIDDEN]);
    add("model.norm.weight".into(), &[HIDDEN]);
    for layer in 0..LAYERS {
        let path = format!("model.layers.{layer}");
        add(format!("{path}.input_layernorm.weight"), &[HIDDEN]);
        add(format!("{path}.post_attention_layernorm.weight"), &[HIDDEN]);
        add(format!("{path}.self_attn.q_proj.weight"), &[HEADS * WIDTH, HIDDEN]);
        add(format!("{path}.self_attn.k_proj.weight"), &[WIDTH, HIDDEN]);
        add(format!("{path}.self_attn.v_proj.weight"), &[WIDTH, HIDDEN]);
        add(format!("{path}.self_attn.o_proj.weight"), &[HIDDEN, HEADS * WIDTH]);
        add(format!("{path}.mlp.gate_proj.weight"), &[INNER, HIDDEN]);
        add(format!("{path}.mlp.up_proj.weight"), &[INNER, HIDDEN]);
        add(format!("{path}.mlp.down_proj.weight"), &[HIDDEN, INNER]);
    }
    draw.weights
}

/// A safetensors file with a given header and data.
pub(crate) fn safetensors_raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// A safetensors file of float tensors.
pub(crate) fn safetensors(weights: &BTreeMap<String, Floats>) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in weights {
        let start = data.len();
        data.extend(tensor.bytes());
        let info = json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), info);
    }
    safetensors_raw(&Value::Object(header).to_string(), &data)
}

/// The sample on a fake device.
pub(crate) fn session() -> Box<dyn Session> {
    session_on(&fake::open())
}

/// The sample with rows that own their planes, with rows that share them, and with rows in blocks.
pub(crate) fn layouts() -> [Box<dyn Session>; 3] {
    let [own, shared] = [fake::open(), fake::open_for_shared_planes()].map(|device| session_on(&device));
    [own, shared, paged(usize::MAX)]
}

/// The sample with rows in blocks of four, which hold at most so many tokens together.
pub(crate) fn paged(most: usize) -> Box<dyn Session> {
    let block = NonZeroUsize::MIN.saturating_add(3);
    let layout = Some(Layout::Paged(Paging { block, tokens: 1, most }));
    load(&config(), &weights(), &fake::open(), Options { layout, ..Options::default() }).unwrap()
}

fn session_on(device: &Device) -> Box<dyn Session> {
    load(&config(), &weights(), device, Options::default()).unwrap()
}

/// Loads a model from files of these contents.
pub(crate) fn load(
    config: &Value,
    weights: &BTreeMap<String, Floats>,
    device: &Device,
    options: Options,
) -> Result<Box<dyn Session>> {
    let (config, weights) = (config.to_string(), safetensors(weights));
    let files = vec![File { name: "model.safetensors", bytes: &weights }];
    let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
    Checkpoint::open(source)?.load(device, options)
}

/// Writes GGUF files, honest or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct GgufWriter {
    values: Vec<u8>,
    value_count: u64,
    infos: Vec<u8>,
    info_count: u64,
    data: Vec<u8>,
}

impl GgufWriter {
    fn text(to: &mut Vec<u8>, text: &str) {
        to.extend((text.len() as u64).to_le_bytes());
        to.extend(text.as_bytes());
    }

    /// A metadata value from its type code and bytes.
    pub(crate) fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) -> &mut Self {
        Self::text(&mut self.values, key);
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.value_count += 1;
        self
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.value(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.value(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn string(&mut self, key: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::new();
        Self::text(&mut bytes, value);
        self.value(key, 8, &bytes)
    }

    pub(crate) fn strings(&mut self, key: &str, values: &[&str]) -> &mut Self {
        let mut bytes = 8u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| Self::text(&mut bytes, value));
        self.value(key, 9, &bytes)
    }

    /// A line of the table of tensors, without data.
    pub(crate) fn info(&mut self, name: &str, axes: &[u64], kind: u32, offset: u64) -> &mut Self {
        Self::text(&mut self.infos, name);
        self.infos.extend((axes.len() as u32).to_le_bytes());
        axes.iter().for_each(|axis| self.infos.extend(axis.to_le_bytes()));
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self.info_count += 1;
        self
    }

    /// A tensor of row-major shape.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, bytes: &[u8]) -> &mut Self {
        let axes: Vec<u64> = shape.iter().rev().map(|&axis| axis as u64).collect();
        self.info(name, &axes, kind, self.data.len() as u64);
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(self.info_count.to_le_bytes());
        file.extend(self.value_count.to_le_bytes());
        file.extend(&self.values);
        file.extend(&self.infos);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(&self.data);
        file
    }
}

/// The sample as GGUF: rows of queries and keys in pairs, as llama.cpp's converter leaves them.
pub(crate) fn gguf() -> GgufWriter {
    let mut writer = GgufWriter::default();
    writer
        .string("general.architecture", "llama")
        .string("general.name", "sample")
        .u32("llama.embedding_length", HIDDEN as u32)
        .u32("llama.block_count", LAYERS as u32)
        .u32("llama.feed_forward_length", INNER as u32)
        .u32("llama.attention.head_count", HEADS as u32)
        .u32("llama.attention.head_count_kv", 1)
        .u32("llama.attention.key_length", WIDTH as u32)
        .u32("llama.context_length", CONTEXT as u32)
        .f32("llama.rope.freq_base", 10_000.0)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a", "b", "ab"])
        .strings("tokenizer.ggml.merges", &["a b"])
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .string("tokenizer.chat_template", "{{ messages }}");
    for (name, tensor) in weights() {
        let name = name
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace("model.layers", "blk")
            .replace("input_layernorm", "attn_norm")
            .replace("post_attention_layernorm", "ffn_norm")
            .replace("self_attn.o_proj", "attn_output")
            .replace("self_attn.", "attn_")
            .replace("mlp.", "ffn_")
            .replace("_proj", "");
        let heads = if name.contains("attn_q") { HEADS } else { 1 };
        let pairs = name.contains("attn_q") || name.contains("attn_k");
        let tensor = if pairs { in_pairs(&tensor, heads) } else { tensor };
        writer.tensor(&name, &tensor.shape, 0, &tensor.bytes());
    }
    writer
}

/// Row `side * half + pair` of each head goes to row `2 pair + side`.
fn in_pairs(tensor: &Floats, heads: usize) -> Floats {
    let (rows, columns) = (tensor.shape[0], tensor.shape[1]);
    let width = rows / heads;
    let mut values = vec![0.0; rows * columns];
    for row in 0..rows {
        let (head, within) = (row / width, row % width);
        let to = head * width + 2 * (within % (width / 2)) + within / (width / 2);
        values[to * columns..(to + 1) * columns]
            .copy_from_slice(&tensor.values[row * columns..(row + 1) * columns]);
    }
    Floats { shape: tensor.shape.clone(), values }
}

/// What is left of values that became affine codes, by the definition of MLX's `quantize`; scales and results are of floats
/// to which `round` rounds.
pub(crate) fn through_codes(values: &[f32], format: Affine, round: fn(f32) -> f32) -> Vec<f32> {
    let most = f32::from((1u16 << format.bits) - 1);
    let through = |group: &[f32]| {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let largest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let size = ((largest - least) / most).max(1e-7);
        let (scale, edge) = if least.abs() > largest.abs() { (size, least) } else { (-size, largest) };
        let steps = (edge / scale).round_ties_even();
        let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
        let one = |value: &f32| {
            let code = ((value - bias) / scale).round_ties_even().clamp(0.0, most);
            round(round(scale).mul_add(code, round(bias)))
        };
        group.iter().map(one).collect::<Vec<_>>()
    };
    values.chunks(format.group.into()).flat_map(through).collect()
}

/// A block of Q4_0: scale and 32 codes in ggml's order.
pub(crate) fn q4_0(scale: f32, codes: &[u8; 32]) -> Vec<u8> {
    let mut block = f16::from_f32(scale).to_le_bytes().to_vec();
    block.extend((0..16).map(|i| codes[i] | (codes[i + 16] << 4)));
    block
}
