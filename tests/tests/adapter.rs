//! Adapters on golden models: what they add is what merged weights would give, and rows of different sets share steps
//! without changing each other's bits.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde_json::json;
use std::{collections::BTreeMap, fs};
use tandem_contracts::{
    model::{AdapterSet, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
    tensor::{Device, Precision},
};
use tandem_models::{
    Checkpoint, DecoderSession, Options, Source,
    weights::{Adapter, File},
};
use tandem_tests::{
    device::Backend,
    drive::{Logits, distance},
    fixtures,
    parity::{Case, Tolerances},
};

const RANK: usize = 3;
const SCALE: f32 = 1.5;

/// Shape and elements.
type Floats = (Vec<usize>, Vec<f32>);

/// A golden model of floats, from its folder.
struct Model {
    config: Vec<u8>,
    weights: BTreeMap<String, Floats>,
}

/// A file of floats.
fn file(tensors: &BTreeMap<String, Floats>) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> =
        tensors.values().map(|(_, values)| values.iter().flat_map(|it| it.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, (shape, _)), bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

impl Model {
    fn read(name: &str) -> Self {
        let folder = fixtures().join("tiny").join(name);
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let floats = |view: &TensorView<'_>| {
            assert_eq!(view.dtype(), Dtype::F32, "{name}");
            let values = view.data().chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap()));
            (view.shape().to_vec(), values.collect())
        };
        let weights = tensors.iter().map(|(name, view)| (name.to_owned(), floats(&view))).collect();
        Self { config: fs::read(folder.join("config.json")).unwrap(), weights }
    }

    /// Modules of the layers that are matrices: path, outputs and inputs.
    fn modules(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.weights.iter().filter_map(|(name, (shape, _))| {
            let path = name
                .strip_suffix(".weight")
                .filter(|path| path.contains("layers.") && path.contains("proj"))?;
            let &[outputs, inputs] = &shape[..] else { return None };
            Some((path, outputs, inputs))
        })
    }

    /// Random pairs for those whose number `takes`.
    fn pairs(&self, seed: u32, takes: impl Fn(usize) -> bool) -> BTreeMap<String, Floats> {
        let mut state = seed;
        let mut draw = |count: usize| -> Vec<f32> {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            (0..count).map(|_| 0.3 * next()).collect()
        };
        let mut pairs = BTreeMap::new();
        for (_, (path, outputs, inputs)) in self.modules().enumerate().filter(|(index, _)| takes(*index)) {
            pairs.insert(format!("{path}.lora_a"), (vec![inputs, RANK], draw(inputs * RANK)));
            pairs.insert(format!("{path}.lora_b"), (vec![RANK, outputs], draw(RANK * outputs)));
        }
        assert!(!pairs.is_empty());
        pairs
    }

    /// `W + scale * (A B)`, transposed as weights are, in f64.
    fn merged(mut self, pairs: &BTreeMap<String, Floats>) -> Self {
        for (name, (_, a)) in pairs.iter().filter(|(name, _)| name.ends_with("lora_a")) {
            let path = name.strip_suffix(".lora_a").unwrap();
            let (_, b) = &pairs[&format!("{path}.lora_b")];
            let (shape, weight) = self.weights.get_mut(&format!("{path}.weight")).unwrap();
            let (outputs, inputs) = (shape[0], shape[1]);
            for (index, weight) in weight.iter_mut().enumerate() {
                let (output, input) = (index / inputs, index % inputs);
                let product = |k: usize| f64::from(a[input * RANK + k]) * f64::from(b[k * outputs + output]);
                *weight =
                    (f64::from(*weight) + f64::from(SCALE) * (0..RANK).map(product).sum::<f64>()) as f32;
            }
        }
        self
    }

    fn load(&self, device: &Device, precision: Precision) -> DecoderSession {
        let weights = file(&self.weights);
        let files = vec![File { name: "model.safetensors", bytes: &weights }];
        let source = Source::Safetensors { config: &self.config, generation: None, index: None, files };
        let options = Options { precision: Some(precision), ..Options::default() };
        Checkpoint::open(source).unwrap().load_releasing(device, options, &|_| ()).unwrap()
    }
}

fn adapter(pairs: &BTreeMap<String, Floats>) -> Adapter {
    let config = json!({ "lora_parameters": { "rank": RANK, "scale": SCALE } }).to_string();
    Adapter::read(config.as_bytes(), File { name: "adapters.safetensors", bytes: &file(pairs) }).unwrap()
}

/// Runs a step of rows of slots at positions, each with a set; gives the logits of each row's tokens.
fn step(
    session: &mut DecoderSession,
    device: &Device,
    rows: &[(u32, usize, &[u32], AdapterSet)],
) -> Vec<Vec<Logits>> {
    let row = |&(slot, position, ids, adapters): &(u32, usize, &[u32], AdapterSet)| RowStep {
        slot: Slot(slot),
        position,
        tokens: TokenSource::Ids(ids.to_vec()),
        wanted: Wanted::All,
        adapters,
    };
    let stepped = session.step(&Step { rows: rows.iter().map(row).collect() }).unwrap();
    let logits = stepped.logits.unwrap();
    device.eval(&stepped.touched.iter().chain([&logits]).collect::<Vec<_>>()).unwrap();
    let width = session.capabilities().vocabulary;
    let all: Vec<Logits> = logits.to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect();
    let mut all = all.into_iter();
    rows.iter().map(|(_, _, ids, _)| all.by_ref().take(ids.len()).collect()).collect()
}

fn alone(session: &mut DecoderSession, device: &Device, ids: &[u32], set: AdapterSet) -> Vec<Logits> {
    session.open(Slot(99), &StatePolicy::Plain, None).unwrap();
    let logits = step(session, device, &[(99, 0, ids, set)]).remove(0);
    session.discard(Slot(99));
    logits
}

fn ids(salt: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + salt * 11 + 3) % 100).collect()
}

/// Families with joined matrices, norms behind branches, inputs of layers, states, and experts.
const MODELS: [&str; 6] = ["llama", "phi3", "gemma4_text", "lfm2", "qwen3_5", "mixtral"];

/// The largest distance of logits from those of merged weights.
fn from_merged(backend: Backend, name: &str) -> f32 {
    let device = backend.open().unwrap();
    let model = Model::read(name);
    let pairs = model.pairs(7, |_| true);
    let mut session = model.load(&device, Precision::Exact);
    let bare = alone(&mut session, &device, &ids(1, 20), AdapterSet::BASE);
    let set = session.mount(&[&adapter(&pairs)]).unwrap();
    let got = alone(&mut session, &device, &ids(1, 20), set);
    assert_eq!(alone(&mut session, &device, &ids(1, 20), AdapterSet::BASE), bare, "{name}");
    let mut merged = model.merged(&pairs).load(&device, Precision::Exact);
    let expected = alone(&mut merged, &device, &ids(1, 20), AdapterSet::BASE);
    let far = |a: &[Logits], b: &[Logits]| a.iter().zip(b).map(|(a, b)| distance(a, b)).fold(0.0, f32::max);
    assert!(far(&bare, &expected) > 0.1, "{name}: the adapter does nothing");
    far(&got, &expected)
}

/// An adapter in mlx-lm's own files gives mlx-lm's own numbers.
fn hold_to_mlx_lm(backend: Backend) {
    let folder = fixtures().join("adapter");
    let read = |name| fs::read(folder.join(name)).unwrap();
    let (config, tensors, goldens) =
        (read("adapter_config.json"), read("adapters.safetensors"), read("goldens.safetensors"));
    let adapter = Adapter::read(&config, File { name: "adapters.safetensors", bytes: &tensors }).unwrap();
    let case = Case::read(&fixtures().join("tiny/llama")).unwrap();
    let tolerance =
        Tolerances::read(&fixtures().join("parity.toml")).unwrap().of(backend, &case.family).unwrap();
    let device = backend.open().unwrap();
    let mut session = Model::read("llama").load(&device, Precision::Exact);
    let set = session.mount(&[&adapter]).unwrap();
    let got = alone(&mut session, &device, &case.run("p24").unwrap().prompt, set);
    let goldens = SafeTensors::deserialize(&goldens).unwrap();
    let expected = goldens.tensor("logits_prompt24").unwrap();
    let expected = expected.data().chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap()));
    let far = distance(&got.concat(), &expected.collect::<Vec<_>>());
    assert!(far <= tolerance.logit_error, "{far}");
    assert!(distance(&got.concat(), &case.prompt_logits.concat()) > 0.1);
}

#[test]
fn fake_adds_what_mlx_lm_does() {
    hold_to_mlx_lm(Backend::Fake);
}

#[test]
fn cpu_adds_what_mlx_lm_does() {
    hold_to_mlx_lm(Backend::Cpu);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_adds_what_mlx_lm_does() {
    hold_to_mlx_lm(Backend::Mlx);
}

/// Both round sums of the same products otherwise; logits of these models reach 15.
const TOLERANCE: f32 = 1e-4;

fn hold_to_merged(backend: Backend) {
    for name in MODELS {
        let far = from_merged(backend, name);
        assert!(far <= TOLERANCE, "{name}: {far}");
    }
}

#[test]
fn fake_adds_what_merged_weights_would() {
    hold_to_merged(Backend::Fake);
}

#[test]
fn cpu_adds_what_merged_weights_would() {
    hold_to_merged(Backend::Cpu);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_adds_what_merged_weights_would() {
    hold_to_merged(Backend::Mlx);
}

/// Rows of two sets, of both together and of none, in chunks and in changing order, are the rows alone.
fn hold_company(backend: Backend) {
    let device = backend.open().unwrap();
    for (name, &precision) in
        MODELS.iter().flat_map(|name| device.traits().precisions.iter().map(move |it| (name, it)))
    {
        let model = Model::read(name);
        let (x, y) = (adapter(&model.pairs(7, |_| true)), adapter(&model.pairs(8, |index| index % 3 == 0)));
        let mut session = model.load(&device, precision);
        let sets = [
            session.mount(&[&x]).unwrap(),
            session.mount(&[&y]).unwrap(),
            session.mount(&[]).unwrap(),
            session.mount(&[&x, &y]).unwrap(),
        ];
        let rows = [(0, 12), (1, 9), (2, 7), (0, 5), (3, 8)]
            .map(|(set, count): (usize, u32)| (sets[set], ids(count, count)));
        let expected: Vec<_> =
            rows.iter().map(|(set, ids)| alone(&mut session, &device, ids, *set)).collect();
        assert_ne!(alone(&mut session, &device, &rows[0].1, sets[1]), expected[0]);
        let mut held = [0; 5];
        (0..5).for_each(|slot| session.open(Slot(slot), &StatePolicy::Plain, None).unwrap());
        for plan in [
            &[(0, 3), (1, 5), (2, 2), (3, 1), (4, 4)][..],
            &[(4, 4), (2, 5), (0, 1)],
            &[(3, 4), (0, 8), (1, 4)],
        ] {
            let parts: Vec<_> = plan
                .iter()
                .map(|&(row, count): &(usize, usize)| {
                    let tokens = held[row]..held[row] + count;
                    held[row] = tokens.end;
                    (row, tokens)
                })
                .collect();
            let step_rows: Vec<_> = parts
                .iter()
                .map(|(row, tokens)| (*row as u32, tokens.start, &rows[*row].1[tokens.clone()], rows[*row].0))
                .collect();
            for ((row, tokens), got) in parts.iter().zip(step(&mut session, &device, &step_rows)) {
                assert_eq!(got, expected[*row][tokens.clone()], "{name} {precision:?} row {row}");
            }
        }
        assert_eq!(held, [12, 9, 7, 5, 8]);
    }
}

#[test]
fn company_changes_no_bit_on_the_fake() {
    hold_company(Backend::Fake);
}

#[test]
fn company_changes_no_bit_on_the_cpu() {
    hold_company(Backend::Cpu);
}

#[test]
fn adapters_that_do_not_fit_are_refused_whole() {
    let device = Backend::Fake.open().unwrap();
    let model = Model::read("mixtral");
    let mut session = model.load(&device, Precision::Exact);
    let good = model.pairs(7, |_| true);
    let path = "model.layers.1.self_attn.q_proj";
    let renamed = |to: &str| -> BTreeMap<String, Floats> {
        good.iter().map(|(name, it)| (name.replace(path, to), it.clone())).collect()
    };
    let wide = |half: &str, shape: [usize; 2]| {
        let mut pairs = good.clone();
        pairs.insert(format!("{path}.{half}"), (shape.to_vec(), vec![0.5; shape[0] * shape[1]]));
        pairs
    };
    let [outputs, inputs] = model.weights[&format!("{path}.weight")].0[..] else { unreachable!() };
    let no_module = "the model has no such module that takes adapters";
    let cases: [(BTreeMap<String, Floats>, String); 5] = [
        (
            renamed("model.layers.1.self_attn.r_proj"),
            format!("tensor model.layers.1.self_attn.r_proj: {no_module}"),
        ),
        (
            renamed("model.layers.1.block_sparse_moe.gate"),
            format!("tensor model.layers.1.block_sparse_moe.gate: {no_module}"),
        ),
        (renamed("lm_head"), format!("tensor lm_head: {no_module}")),
        (
            wide("lora_a", [inputs + 1, RANK]),
            format!(
                "tensor {path}: the module has [{inputs}, {outputs}] inputs and outputs, its adapter has: [{}, {outputs}]",
                inputs + 1
            ),
        ),
        (
            wide("lora_b", [RANK, 2 * outputs]),
            format!(
                "tensor {path}: the module has [{inputs}, {outputs}] inputs and outputs, its adapter has: [{inputs}, {}]",
                2 * outputs
            ),
        ),
    ];
    for (pairs, expected) in cases {
        assert_eq!(session.mount(&[&adapter(&good), &adapter(&pairs)]).unwrap_err().to_string(), expected);
    }
    // The first set that is there has the first number, and no other is known.
    assert_eq!(session.mount(&[&adapter(&good)]).unwrap(), AdapterSet(1));
    session.open(Slot(0), &StatePolicy::Plain, None).unwrap();
    let tokens = TokenSource::Ids(vec![1]);
    let row = RowStep { slot: Slot(0), position: 0, tokens, wanted: Wanted::Last, adapters: AdapterSet(2) };
    let refused = session.step(&Step { rows: vec![row] }).unwrap_err();
    assert!(refused.to_string().contains("no such adapters are mounted: 2"), "{refused}");
}
