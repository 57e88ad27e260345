//! One golden model: its files, and what mlx-lm computed with them.

use super::complete;
use crate::Result;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tandem_contracts::text::TokenId;
use tandem_models::{Checkpoint, Source, weights::File};

/// A folder of goldens.
#[derive(Debug)]
pub struct Case {
    /// Name of the folder.
    pub name: String,
    /// What its configuration calls the architecture.
    pub family: String,
    model: Model,
    /// Greedy runs by name of their prompt.
    pub greedy: BTreeMap<String, Greedy>,
    /// Greedy runs with other caches, by name.
    pub runs: BTreeMap<String, Run>,
    /// Log-probabilities behind each token of some of those.
    pub run_log_probabilities: BTreeMap<String, Vec<Vec<f32>>>,
    /// Logits of every token of prompt `p24`.
    pub prompt_logits: Vec<Vec<f32>>,
    /// Log-probabilities behind each greedy token after prompt `p40`.
    pub greedy_log_probabilities: Vec<Vec<f32>>,
}

/// The bytes of a model's files.
#[derive(Debug)]
enum Model {
    Folder { config: Vec<u8>, weights: Vec<u8> },
    Gguf(Vec<u8>),
}

/// What is read of a model's configuration here.
#[derive(Deserialize)]
struct Config {
    model_type: String,
}

/// What a case's `goldens.json` holds.
#[derive(Debug, Deserialize)]
pub(super) struct Goldens {
    pub(super) greedy: BTreeMap<String, Greedy>,
    #[serde(default)]
    pub(super) runs: BTreeMap<String, Run>,
}

/// A prompt and its greedy answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Greedy {
    /// Token ids of the prompt.
    pub prompt: Vec<TokenId>,
    /// Token ids of the answer.
    pub tokens: Vec<TokenId>,
    /// Distance between the two best logits behind each token.
    pub margins: Vec<f32>,
}

/// Greedy answers by a model with another cache than its ordinary one.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// Token ids.
    pub tokens: Answers,
    /// Smallest distance between the two best logits.
    pub min_margin: Option<f32>,
}

/// The answers of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Answers {
    /// To the prompt that the run's name tells.
    One(Vec<TokenId>),
    /// To each prompt of a batch.
    Batch(BTreeMap<String, Vec<TokenId>>),
}

/// Folders of goldens in a folder, sorted; with a name only that one.
///
/// # Errors
/// The folder cannot be read, or holds no such case.
pub fn cases(folder: &Path, name: Option<&str>) -> Result<Vec<PathBuf>> {
    let unreadable = |error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let wanted = name.is_none_or(|name| path.file_name().is_some_and(|file| file == name));
        if wanted && path.join("goldens.json").is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(format!("{}: holds no such goldens: {}", folder.display(), name.unwrap_or("any")).into());
    }
    Ok(found)
}

impl Case {
    /// Reads a folder.
    ///
    /// # Errors
    /// A file that is missing or malformed.
    pub fn read(folder: &Path) -> Result<Self> {
        let model = Model::Folder {
            config: bytes(&folder.join("config.json"))?,
            weights: bytes(&folder.join("model.safetensors"))?,
        };
        Self::with_model(folder, folder, model)
    }

    /// Reads the goldens of a folder, for the same model in a GGUF file.
    ///
    /// # Errors
    /// A file that is missing or malformed.
    pub fn read_gguf(folder: &Path, file: &Path) -> Result<Self> {
        Self::with_model(folder, file, Model::Gguf(bytes(file)?))
    }

    fn with_model(folder: &Path, named: &Path, model: Model) -> Result<Self> {
        let arrays = bytes(&folder.join("goldens.safetensors"))?;
        let arrays = SafeTensors::deserialize(&arrays)?;
        let goldens = complete::goldens(&bytes(&folder.join("goldens.json"))?, &arrays)?;
        let mut run_log_probabilities = BTreeMap::new();
        for name in goldens.runs.keys() {
            if let Some(array) = complete::array(name).into_iter().find(|it| arrays.tensor(it).is_ok()) {
                run_log_probabilities.insert(name.clone(), rows(&arrays, &array)?);
            }
        }
        let config: Config = serde_json::from_slice(&bytes(&folder.join("config.json"))?)?;
        Ok(Self {
            name: named.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            family: config.model_type,
            model,
            greedy: goldens.greedy,
            runs: goldens.runs,
            run_log_probabilities,
            prompt_logits: rows(&arrays, "logits_prompt24")?,
            greedy_log_probabilities: rows(&arrays, "logprobs_greedy_p40")?,
        })
    }

    /// Opens the model.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`].
    pub fn checkpoint(&self) -> Result<Checkpoint<'_>> {
        let source = match &self.model {
            Model::Gguf(bytes) => Source::Gguf(File { name: &self.name, bytes }),
            Model::Folder { config, weights } => {
                let files = vec![File { name: "model.safetensors", bytes: weights }];
                Source::Safetensors { config, generation: None, index: None, files }
            }
        };
        Ok(Checkpoint::open(source)?)
    }

    /// A greedy run.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn run(&self, prompt: &str) -> Result<&Greedy> {
        self.greedy
            .get(prompt)
            .ok_or_else(|| format!("{}: no greedy run of prompt: {prompt}", self.name).into())
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Rows of a matrix of floats.
pub(super) fn rows(arrays: &SafeTensors<'_>, name: &str) -> Result<Vec<Vec<f32>>> {
    let view = arrays.tensor(name)?;
    let &[_, width] = view.shape() else { return Err(format!("{name} must be a matrix").into()) };
    if view.dtype() != Dtype::F32 || width == 0 {
        return Err(format!("{name} must hold f32, holds: {}", view.dtype()).into());
    }
    let floats = view.data().chunks_exact(4).map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    Ok(floats.collect::<Vec<_>>().chunks(width).map(<[f32]>::to_vec).collect())
}
