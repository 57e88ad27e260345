//! `cargo xtask parity`: the golden models on one backend; with `--regen` the goldens made anew and compared.
//!
//! ```text
//!   fixtures/tiny --mlx-lm, in its own environment--> a folder of the same form --compare--> a table of changes
//! ```
//!
//! Invariant: what is in `fixtures` stays as it is, unless `--write` says otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::error::{Error, Result};
use crate::{process, python, relay, workspace};

/// What `cargo xtask parity` can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Only this golden model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where to compute [default: cpu].
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Only the runs of one kind: plain, chunks, batch, trim, rotating, kvq8, kvq4, prompt-cache.
    #[arg(long, value_name = "KIND")]
    cache: Option<String>,
    /// Folder with one folder for each golden model, trimmed or complete [default: those of `fixtures`].
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    /// Also write the table's figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Make the goldens anew with mlx-lm, here or else in a temporary folder, and say what changed.
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["backend", "cache"])]
    regen: Option<Option<PathBuf>>,
    /// Put what was made anew in the place of the old.
    #[arg(long, requires = "regen")]
    write: bool,
}

/// A backend that is held to the goldens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The naive device of the port's own tests.
    Fake,
    /// Pure Rust.
    Cpu,
    /// MLX; on Linux this sets it up first.
    Mlx,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Fake => "fake",
            Self::Cpu => "cpu",
            Self::Mlx => "mlx",
        }
    }
}

impl Options {
    /// What the program of the `tandem-tests` package is told.
    fn arguments(&self) -> Result<Vec<String>> {
        let path = |path: &PathBuf| Ok::<_, Error>(absolute(path)?.display().to_string());
        let values = [
            ("--model", self.model.clone()),
            ("--backend", self.backend.map(|backend| backend.name().to_owned())),
            ("--cache", self.cache.clone()),
            ("--goldens", self.goldens.as_ref().map(path).transpose()?),
            ("--json", self.json.as_ref().map(path).transpose()?),
        ];
        let given = values.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        Ok(given.flatten().collect())
    }

    fn goldens(&self) -> PathBuf {
        self.goldens.clone().unwrap_or_else(|| workspace::root().join("fixtures/tiny"))
    }
}

/// A path for programs that are started in another folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::file(path))
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.regen {
        None => relay::run("parity", &relay::Options::of(options.arguments()?)),
        Some(folder) => regenerate(options, folder.as_deref()),
    }
}

fn regenerate(options: &Options, folder: Option<&Path>) -> Result<()> {
    let (source, made) = (absolute(&options.goldens())?, destination(folder)?);
    let mut script = Command::new(python::environment("mlx-lm")?);
    script.arg(workspace::root().join("fixtures/regenerate.py")).arg(&source).arg(&made);
    process::run(script.args(&options.model))?;
    println!("made anew: {}", made.display());

    let mut arguments = options.arguments()?;
    arguments.extend(["--changes".to_owned(), made.display().to_string()]);
    let compared = relay::run("parity", &relay::Options::of(arguments));
    if !options.write {
        return compared;
    }
    let names = replace(&made, &source)?;
    println!("written: {} to {}", names.join(", "), source.display());
    println!("a test of tandem-tests prints the lines that `fixtures/PROVENANCE.md` then needs");
    Ok(())
}

/// The named folder, or else an empty one among the system's temporary files.
fn destination(folder: Option<&Path>) -> Result<PathBuf> {
    let made = match folder {
        Some(folder) => absolute(folder)?,
        None => std::env::temp_dir().join(format!("tandem-goldens-{}", std::process::id())),
    };
    fs::create_dir_all(&made).map_err(Error::file(&made))?;
    Ok(made)
}

/// Copies the goldens of every model over the old ones; configurations and weights are the same. Gives the models' names.
fn replace(made: &Path, kept: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(made).map_err(Error::file(made))? {
        let name = entry.map_err(Error::file(made))?.file_name();
        for file in ["goldens.json", "goldens.safetensors"] {
            let (from, to) = (made.join(&name).join(file), kept.join(&name).join(file));
            fs::copy(&from, &to).map_err(Error::file(&from))?;
        }
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(words: &[&str]) -> std::result::Result<Options, String> {
        let words = std::iter::once("parity").chain(words.iter().copied());
        Line::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_handed_on_as_they_were_given() {
        let options = parsed(&["--backend", "mlx", "--cache", "kvq8", "--goldens", "/goldens"]).unwrap();
        let expected = ["--backend", "mlx", "--cache", "kvq8", "--goldens", "/goldens"];
        assert_eq!(options.arguments().unwrap(), expected);
        assert!(parsed(&[]).unwrap().arguments().unwrap().is_empty());
    }

    #[test]
    fn a_folder_for_new_goldens_may_be_named_or_not() {
        assert_eq!(parsed(&[]).unwrap().regen, None);
        assert_eq!(parsed(&["--regen"]).unwrap().regen, Some(None));
        assert_eq!(parsed(&["--regen", "/new", "--write"]).unwrap().regen, Some(Some("/new".into())));
        assert!(parsed(&["--write"]).unwrap_err().contains("--regen"));
        assert!(parsed(&["--regen", "--backend", "cpu"]).unwrap_err().contains("--backend"));
        assert!(parsed(&["--backend", "gpu"]).unwrap_err().contains("gpu"));
    }

    #[test]
    fn only_goldens_are_replaced() {
        let folder = std::env::temp_dir().join(format!("xtask-replace-{}", std::process::id()));
        let (made, kept) = (folder.join("made"), folder.join("kept"));
        for (root, text) in [(&made, "new"), (&kept, "old")] {
            fs::create_dir_all(root.join("llama")).unwrap();
            for file in ["goldens.json", "goldens.safetensors", "config.json"] {
                fs::write(root.join("llama").join(file), text).unwrap();
            }
        }
        assert_eq!(replace(&made, &kept).unwrap(), ["llama"]);
        let read = |file: &str| fs::read_to_string(kept.join("llama").join(file)).unwrap();
        assert_eq!((read("goldens.json"), read("config.json")), ("new".to_owned(), "old".to_owned()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
