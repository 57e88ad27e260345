//! A model's files: found, mapped, and handed on as bytes.
//!
//! Weights are mapped, so that a file larger than memory is no error here and its pages are read when they are used.

use crate::error::{Error, Result};
use memmap2::{Mmap, UncheckedAdvice};
use serde_json::Value;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tandem_contracts::text::TokenId;
use tandem_models::{
    Source,
    weights::{File, shards},
};
use tandem_serve::text::SpecialTokens;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// How each layer's keys and values are best kept.
pub(crate) const KV_CONFIG: &str = "kv_config.json";

/// Small text files are read whole; no honest one is larger.
const TEXT_LIMIT: u64 = 256 << 20;

/// One weight file in memory.
#[derive(Debug)]
struct Mapped {
    name: String,
    bytes: Mmap,
}

impl Mapped {
    fn open(path: &Path) -> Result<Self> {
        require_file(path, &fs::metadata(path).map_err(|error| Error::file(path, error))?)?;
        let file = fs::File::open(path).map_err(|error| Error::file(path, error))?;
        // SAFETY: the mapping is read-only. A program that truncates the file while we read would end this process
        // with a signal, as with every program that maps its input; nothing is written through it.
        let bytes = unsafe { Mmap::map(&file) }.map_err(|error| Error::file(path, error))?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self { name, bytes })
    }

    fn file(&self) -> File<'_> {
        File { name: &self.name, bytes: &self.bytes }
    }

    /// Where in the file these bytes lie, if they are of this mapping.
    fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        (offset.checked_add(bytes.len())? <= self.bytes.len()).then_some(offset)
    }

    /// Lets the system have the pages of these bytes; they are read again should they be looked at once more.
    fn release(&self, bytes: &[u8]) {
        let Some(offset) = self.offset_of(bytes) else { return };
        // SAFETY: the mapping is read-only and of a file, so what is dropped are copies of the file's pages: a later
        // look finds the same bytes. The range lies inside the mapping.
        let advised =
            unsafe { self.bytes.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes.len()) };
        if let Err(error) = advised {
            tracing::debug!("pages of {} stay: {error}", self.name);
        }
    }
}

/// The files of one model.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    name: String,
    weights: Vec<Mapped>,
    folder: Option<Folder>,
}

/// What stands beside the weights in a model folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// `config.json`.
    pub config: Vec<u8>,
    /// `generation_config.json`.
    pub generation: Option<Vec<u8>>,
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    tokenizer_config: Value,
    /// `chat_template.jinja`, else the one in `tokenizer_config.json`.
    pub chat_template: Option<String>,
    /// `kv_config.json`.
    pub kv_config: Option<Vec<u8>>,
    index: Option<Vec<u8>>,
}

impl ModelFiles {
    /// Finds and maps the files of a model folder or a GGUF file.
    ///
    /// # Errors
    /// A file that is missing or cannot be read; the error names it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|error| {
            Error::file(path, error)
                .hint("--model takes a model folder or a GGUF file; `cargo xtask demo` fetches one")
        })?;
        let path = fs::canonicalize(path).map_err(|error| Error::file(path, error))?;
        let name = if metadata.is_dir() { path.file_name() } else { path.file_stem() };
        let name = name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
        if !metadata.is_dir() {
            return Ok(Self { name, weights: vec![Mapped::open(&path)?], folder: None });
        }
        let folder = Folder::read(&path)?;
        let weights =
            folder.weight_files(&path)?.iter().map(|file| Mapped::open(file)).collect::<Result<_>>()?;
        Ok(Self { name, weights, folder: Some(folder) })
    }

    /// Name of the folder, or of the file without its ending.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What stands beside the weights; `None` for a GGUF file, which carries everything itself.
    pub(crate) fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Bytes of the weight files.
    pub(crate) fn size(&self) -> u64 {
        self.weights.iter().map(|file| file.bytes.len() as u64).sum()
    }

    /// Lets the system have the pages of bytes of the weight files that were read for good.
    pub(crate) fn release(&self, bytes: &[u8]) {
        self.weights.iter().for_each(|file| file.release(bytes));
    }

    /// Hands the bytes to `read`, in the form in which models are opened.
    pub(crate) fn with_source<T>(&self, read: impl FnOnce(Source<'_>) -> T) -> T {
        let files: Vec<File<'_>> = self.weights.iter().map(Mapped::file).collect();
        match (&self.folder, &files[..]) {
            (None, [file]) => read(Source::Gguf(*file)),
            (folder, files) => {
                let folder = folder.as_ref();
                read(Source::Safetensors {
                    config: folder.map_or(&[], |folder| &folder.config),
                    generation: folder.and_then(|folder| folder.generation.as_deref()),
                    index: folder.and_then(|folder| folder.index.as_deref()),
                    files: files.to_vec(),
                })
            }
        }
    }
}

impl Folder {
    fn read(path: &Path) -> Result<Self> {
        let required = |name: &str, hint: &str| {
            optional(&path.join(name))?.ok_or_else(|| {
                let absent = io::Error::from(io::ErrorKind::NotFound);
                Error::file(&path.join(name), absent).hint(hint.to_owned())
            })
        };
        let tokenizer_config = match optional(&path.join(TOKENIZER_CONFIG))? {
            None => Value::Null,
            Some(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| Error::new(TOKENIZER_CONFIG).because(error))?
            }
        };
        let template = optional(&path.join("chat_template.jinja"))?
            .map(String::from_utf8)
            .transpose()
            .map_err(|error| Error::new("chat_template.jinja is no UTF-8 text").because(error))?;
        Ok(Self {
            config: required(
                "config.json",
                "a model folder holds config.json, tokenizer.json and *.safetensors",
            )?,
            tokenizer: required("tokenizer.json", "without tokenizer.json no text can be read or written")?,
            generation: optional(&path.join("generation_config.json"))?,
            index: optional(&path.join("model.safetensors.index.json"))?,
            kv_config: optional(&path.join(KV_CONFIG))?,
            chat_template: template.or_else(|| tokenizer_config["chat_template"].as_str().map(str::to_owned)),
            tokenizer_config,
        })
    }

    /// The special tokens that `tokenizer_config.json` names, and further tokens that end an answer.
    pub(crate) fn special_tokens(&self, end_tokens: &[TokenId]) -> SpecialTokens {
        // A token is its text, or an object that holds it.
        let token = |name: &str| {
            let token = &self.tokenizer_config[name];
            token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned)
        };
        SpecialTokens {
            begin: token("bos_token"),
            end: token("eos_token"),
            padding: token("pad_token"),
            unknown: token("unk_token"),
            end_ids: end_tokens.to_vec(),
            add_begin: self.tokenizer_config["add_bos_token"].as_bool(),
        }
    }

    /// The weight files: those of the index, else every `*.safetensors` in order of name.
    fn weight_files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        if let Some(index) = &self.index {
            let names =
                shards(index).map_err(|error| Error::new("model.safetensors.index.json").because(error))?;
            return Ok(names.iter().map(|name| path.join(name)).collect());
        }
        let entries = fs::read_dir(path).map_err(|error| Error::file(path, error))?;
        let mut files = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| Error::file(path, error))?;
        files.retain(|file| file.extension().is_some_and(|ending| ending == "safetensors"));
        files.sort();
        if files.is_empty() {
            return Err(Error::new(format!("{}: no *.safetensors file in this folder", path.display())));
        }
        Ok(files)
    }
}

/// A pipe would wait for a writer, and a device may never end.
fn require_file(path: &Path, metadata: &fs::Metadata) -> Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(Error::new(format!("{}: is no regular file", path.display())))
}

/// A small file's bytes, or `None` where there is no such file.
fn optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file(path, error)),
        Ok(metadata) if metadata.len() > TEXT_LIMIT => Err(Error::new(format!(
            "{} is too large to be what its name says: {}",
            path.display(),
            metadata.len()
        ))),
        Ok(metadata) => {
            require_file(path, &metadata)?;
            fs::read(path).map(Some).map_err(|error| Error::file(path, error))
        }
    }
}
