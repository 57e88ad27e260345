//! Adapters as mlx-lm writes them: for each module a pair of small matrices in `adapters.safetensors`, `lora_a`
//! `[inputs, rank]` and `lora_b` `[rank, outputs]`, and beside it `adapter_config.json`:
//!
//! ```json
//! {"fine_tune_type": "lora", "num_layers": 16, "lora_parameters": {"rank": 8, "scale": 20.0, "dropout": 0.0}}
//! ```
//!
//! Invariants of an [`Adapter`]: every module has both matrices, they meet in the rank that the configuration names, and
//! their elements are finite. Whether a model has such modules is found out when it is mounted.

use super::{Entry, File, Weights};
use crate::{
    config::{Fields, MOST, WIDEST, missing},
    error::{Error, ErrorKind, Result, printable},
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Name under which errors speak of the configuration.
const CONFIG: &str = "adapter_config.json";

/// What is learned beside a model's own weights (LoRA; Hu et al., arXiv:2106.09685): a module that gives `y` of `x` gives
/// `y + scale * ((x A) B)` with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    pub(crate) scale: f32,
    /// By path of the module.
    pub(crate) modules: BTreeMap<String, LowRank>,
}

/// A matrix `[inputs, outputs]` as a product of two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LowRank {
    /// Inputs, rank, outputs.
    pub(crate) extents: [usize; 3],
    /// `[inputs, rank]`.
    pub(crate) a: Vec<f32>,
    /// `[rank, outputs]`.
    pub(crate) b: Vec<f32>,
}

impl Adapter {
    /// Reads `adapter_config.json` and `adapters.safetensors`.
    ///
    /// # Errors
    /// A malformed file; another kind than `lora`; a tensor that is no half of a pair, or does not have the rank that the
    /// configuration names. The error names the file, and the tensor where it is about one.
    pub fn read(config: &[u8], file: File<'_>) -> Result<Self> {
        let Facts { rank, scale, layers } = Facts::read(config).map_err(|error| error.in_file(CONFIG))?;
        let mut weights = Weights::safetensors(&[file], None)?;
        let mut paths = BTreeSet::new();
        for name in weights.entries.keys() {
            let path = HALVES.iter().find_map(|half| name.strip_suffix(*half)).ok_or_else(|| {
                let message = "is neither lora_a nor lora_b of a module";
                Error::new(ErrorKind::Tensor, message).of_tensor(name).in_file(file.name)
            })?;
            paths.insert(path.to_owned());
        }
        let adapted: BTreeSet<&str> = paths.iter().filter_map(|path| layer(path)).collect();
        if let Some(layers) = layers.filter(|layers| adapted.len() > *layers) {
            let message = format!("holds {} layers, its configuration says: {layers}", adapted.len());
            return Err(Error::new(ErrorKind::Tensor, message).in_file(file.name));
        }
        let mut modules = BTreeMap::new();
        for path in paths {
            let mut half = |which: usize| {
                let name = format!("{path}{}", HALVES[which]);
                let half = weights.take(&name).and_then(|entry| matrix(&entry, rank, 1 - which));
                half.map_err(|error| error.of_tensor(&name).in_file(file.name))
            };
            let ((inputs, a), (outputs, b)) = (half(0)?, half(1)?);
            modules.insert(path, LowRank { extents: [inputs, rank, outputs], a, b });
        }
        Ok(Self { scale, modules })
    }
}

/// Endings of names.
const HALVES: [&str; 2] = [".lora_a", ".lora_b"];

/// The number behind `layers.` in a module's path.
fn layer(path: &str) -> Option<&str> {
    path.split_once("layers.").and_then(|(_, rest)| rest.split('.').next())
}

/// A matrix whose axis of that number is the rank: its other extent, and its elements.
fn matrix(entry: &Entry<'_>, rank: usize, axis: usize) -> Result<(usize, Vec<f32>)> {
    let wrong = || {
        let expected = if axis == 0 { format!("[{rank}, outputs]") } else { format!("[inputs, {rank}]") };
        Error::new(ErrorKind::Tensor, format!("must have the shape {expected}, has: {:?}", entry.shape()))
    };
    let &[rows, columns] = entry.shape() else { return Err(wrong()) };
    let (own, other) = if axis == 0 { (rows, columns) } else { (columns, rows) };
    if own != rank {
        return Err(wrong());
    }
    let values = entry.floats()?;
    match values.iter().all(|value| value.is_finite()) {
        true => Ok((other, values)),
        false => Err(Error::format("an element is infinite or not a number")),
    }
}

/// What the configuration says.
struct Facts {
    rank: usize,
    scale: f32,
    /// Layers that are adapted at most, the model's last ones; none where all may be.
    layers: Option<usize>,
}

impl Facts {
    fn read(bytes: &[u8]) -> Result<Self> {
        let parsed: std::result::Result<Map<String, Value>, _> = serde_json::from_slice(bytes);
        let object = parsed.map_err(|error| Error::config("is no json object").because(error))?;
        let fields = Fields(&object);
        if let Some(other) = fields.text("fine_tune_type")?.filter(|kind| *kind != "lora") {
            return Err(Error::unsupported(format!(
                "adapters of fine_tune_type lora are read, got: {}",
                printable(other)
            )));
        }
        let parameters = fields.object("lora_parameters")?.ok_or_else(|| missing("lora_parameters"))?;
        // Negative numbers stand for all.
        let all = object.get("num_layers").and_then(Value::as_i64).is_some_and(i64::is_negative);
        Ok(Self {
            rank: parameters.count("rank", WIDEST)?.ok_or_else(|| missing("lora_parameters.rank"))?,
            scale: parameters.required("scale")?,
            layers: if all { None } else { fields.whole("num_layers", MOST)? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Floats, safetensors};
    use serde_json::json;

    fn config() -> Value {
        json!({ "fine_tune_type": "lora", "num_layers": 1, "lora_parameters": { "rank": 2, "scale": 20.0, "dropout": 0.0 } })
    }

    fn pair() -> BTreeMap<String, Floats> {
        let floats = |shape: &[usize], first: f32| Floats {
            shape: shape.to_vec(),
            values: (0..shape.iter().product()).map(|i| first + i as f32).collect(),
        };
        let path = "model.layers.1.self_attn.q_proj";
        [(format!("{path}.lora_a"), floats(&[3, 2], 0.5)), (format!("{path}.lora_b"), floats(&[2, 4], -1.0))]
            .into()
    }

    fn read(config: &Value, tensors: &BTreeMap<String, Floats>) -> Result<Adapter> {
        let bytes = safetensors(tensors);
        Adapter::read(config.to_string().as_bytes(), File { name: "adapters.safetensors", bytes: &bytes })
    }

    #[test]
    fn pairs_are_read() {
        let adapter = read(&config(), &pair()).unwrap();
        assert_eq!(adapter.scale, 20.0);
        let low_rank = LowRank {
            extents: [3, 2, 4],
            a: vec![0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
            b: vec![-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        };
        assert_eq!(adapter.modules, [("model.layers.1.self_attn.q_proj".to_owned(), low_rank)].into());
        assert_eq!(
            read(&json!({ "lora_parameters": { "rank": 2, "scale": 1 }, "num_layers": -1 }), &pair())
                .unwrap()
                .scale,
            1.0
        );
    }

    #[test]
    fn malformed_configurations_are_refused() {
        for (field, value, expected) in [
            ("fine_tune_type", json!("dora"), "adapters of fine_tune_type lora are read, got: dora"),
            ("fine_tune_type", json!(3), "fine_tune_type must be text, got: 3"),
            ("num_layers", json!(1.5), "num_layers must be a whole number from 0 to 4096, got: 1.5"),
            ("lora_parameters", json!(null), "the configuration lacks: lora_parameters"),
            ("lora_parameters", json!({ "scale": 1.0 }), "the configuration lacks: lora_parameters.rank"),
            ("lora_parameters", json!({ "rank": 2, "alpha": 16 }), "the configuration lacks: scale"),
            (
                "lora_parameters",
                json!({ "rank": 0, "scale": 1.0 }),
                "rank must be a whole number from 1 to 1048576, got: 0",
            ),
            (
                "lora_parameters",
                json!({ "rank": 2, "scale": -1.0 }),
                "scale must be a number above 0, got: -1.0",
            ),
        ] {
            let mut config = config();
            config[field] = value;
            assert_eq!(
                read(&config, &pair()).unwrap_err().to_string(),
                format!("adapter_config.json: {expected}")
            );
        }
    }

    #[test]
    fn tensors_that_do_not_fit_are_refused_by_name() {
        let path = "model.layers.1.self_attn.q_proj";
        let refusal = |change: &dyn Fn(&mut BTreeMap<String, Floats>)| {
            let mut tensors = pair();
            change(&mut tensors);
            read(&config(), &tensors).unwrap_err().to_string()
        };
        let (a, b) = (format!("{path}.lora_a"), format!("{path}.lora_b"));
        type Change<'c> = &'c dyn Fn(&mut BTreeMap<String, Floats>);
        let cases: [(Change<'_>, String); 7] = [
            (
                &|it| it.get_mut(&a).unwrap().shape.swap(0, 1),
                format!("tensor {a}: must have the shape [inputs, 2], has: [2, 3]"),
            ),
            (
                &|it| it.get_mut(&b).unwrap().shape = vec![8],
                format!("tensor {b}: must have the shape [2, outputs], has: [8]"),
            ),
            (&|it| drop(it.remove(&b)), format!("tensor {b}: is not there")),
            (&|it| drop(it.remove(&a)), format!("tensor {a}: is not there")),
            (
                &|it| it.get_mut(&b).unwrap().values[3] = f32::NAN,
                format!("tensor {b}: an element is infinite or not a number"),
            ),
            (
                &|it| drop(it.insert(format!("{path}.m"), Floats { shape: vec![1], values: vec![1.0] })),
                format!("tensor {path}.m: is neither lora_a nor lora_b of a module"),
            ),
            (
                &|it| {
                    it.extend(pair().into_iter().map(|(name, it)| (name.replace("layers.1", "layers.0"), it)))
                },
                "holds 2 layers, its configuration says: 1".to_owned(),
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(refusal(change), format!("adapters.safetensors: {expected}"));
        }
    }
}
