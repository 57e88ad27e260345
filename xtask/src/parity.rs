//! `cargo xtask parity`: golden models on some backends; with `--regen` the goldens made anew and compared.
//!
//! ```text
//!   fixtures/tiny, or real weights --mlx-lm, in its own environment--> a folder of the same form --compare--> a table of changes
//! ```
//!
//! Invariant: what is in `fixtures` stays as it is, unless `--write` says otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::error::{Error, Result};
use crate::{debian, mlx, model, process, python, relay, workspace};

/// The goldens of a tiny model.
const TINY: &[&str] = &["goldens.json", "goldens.safetensors"];
/// The goldens of a model with real weights.
const REAL: &[&str] = &["greedy.json"];

/// What `cargo xtask parity` can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Real weights in the place of tiny models: ten prompts and 64 greedy tokens of smollm2 (SmolLM2-135M-Instruct,
    /// Apache-2.0, 93 MB) and gemma3-270m (Gemma Terms of Use, 238 MB), which are fetched when they are not there.
    #[arg(long, conflicts_with = "cache")]
    real: bool,
    /// Only this golden model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where to compute; several with commas between [default: cpu].
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Backend>,
    /// Only the runs of one kind: plain, chunks, batch, trim, rotating, kvq8, kvq4, prompt-cache.
    #[arg(long, value_name = "KIND")]
    cache: Option<String>,
    /// Folder with one folder for each golden model, trimmed or complete [default: those of `fixtures`].
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    /// Also write the table's figures to this file, and the whole answers of real weights.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Make the goldens (trimmed ones) anew with mlx-lm, here or else in a temporary folder, and say what changed.
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
        let backends: Vec<_> = self.backend.iter().map(|backend| backend.name()).collect();
        let values = [
            ("--model", self.model.clone()),
            ("--backend", (!backends.is_empty()).then(|| backends.join(","))),
            ("--cache", self.cache.clone()),
            ("--goldens", self.goldens.as_ref().map(path).transpose()?),
            ("--json", self.json.as_ref().map(path).transpose()?),
        ];
        let given = values.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        Ok(given.flatten().collect())
    }

    /// The same, with a file for each model that has real weights.
    fn arguments_and(&self, files: &[(&str, PathBuf)]) -> Result<Vec<String>> {
        let named =
            |(name, file): &(&str, PathBuf)| ["--real".to_owned(), format!("{name}={}", file.display())];
        Ok(self.arguments()?.into_iter().chain(files.iter().flat_map(named)).collect())
    }

    /// The files of the wanted models with real weights, by name; none where those are not wanted.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        if !self.real {
            return Ok(Vec::new());
        }
        let models = model::named(self.model.as_deref())?;
        models.into_iter().map(|model| Ok((model.name, model.fetch()?))).collect()
    }

    fn goldens(&self) -> PathBuf {
        let own = if self.real { "fixtures" } else { "fixtures/tiny" };
        self.goldens.clone().unwrap_or_else(|| workspace::root().join(own))
    }
}

/// A path for programs that are started in another folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::file(path))
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let files = options.files()?;
    match &options.regen {
        None => compare(options, options.arguments_and(&files)?),
        Some(folder) => regenerate(options, &files, folder.as_deref()),
    }
}

/// Compares with the goldens. Those of tiny models were made with the BLAS library within mlx, and are held to it here; those
/// of real weights with OpenBLAS, see [`answer`].
fn compare(options: &Options, arguments: Vec<String>) -> Result<()> {
    let mut program = relay::program("parity", &relay::Options::of(arguments))?;
    if options.backend.contains(&Backend::Mlx) && !options.real {
        mlx::with_reference_blas(&mut program)?;
    }
    process::run(&mut program)
}

fn regenerate(options: &Options, files: &[(&str, PathBuf)], folder: Option<&Path>) -> Result<()> {
    let (source, made) = (absolute(&options.goldens())?, destination(folder)?);
    if files.is_empty() {
        let mut script = Command::new(python::environment("mlx-lm")?);
        script.arg(workspace::root().join("fixtures/regenerate.py")).arg(&source).arg(&made);
        process::run(script.args(&options.model))?;
    }
    for (name, file) in files {
        answer(file, &made.join(name))?;
    }
    println!("made anew: {}", made.display());

    let mut arguments = options.arguments_and(files)?;
    arguments.extend(["--changes".to_owned(), made.display().to_string()]);
    let compared = relay::run("parity", &relay::Options::of(arguments));
    if !options.write {
        return compared;
    }
    let names = replace(&made, &source, if options.real { REAL } else { TINY })?;
    println!("written: {} to {}", names.join(", "), source.display());
    println!("a test of tandem-tests prints the lines that `fixtures/PROVENANCE.md` then needs");
    Ok(())
}

/// Writes mlx-lm's greedy answers by real weights into a folder. The BLAS library within mlx takes ten times as long
/// as OpenBLAS, which is put in its place where the system has it.
fn answer(weights: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let mut script = Command::new(python::environment("mlx-lm")?);
    script
        .arg(workspace::root().join("fixtures/real.py"))
        .arg("greedy")
        .arg(weights)
        .arg(folder.join(REAL[0]));
    if let Some(library) = debian::openblas() {
        script.env("LD_PRELOAD", library);
    }
    process::run(&mut script)
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

/// Copies these files of every model over the old ones; configurations and weights are the same. Gives the models' names.
fn replace(made: &Path, kept: &Path, files: &[&str]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(made).map_err(Error::file(made))? {
        let name = entry.map_err(Error::file(made))?.file_name();
        for file in files {
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
        assert_eq!(parsed(&["--backend", "cpu,mlx"]).unwrap().arguments().unwrap(), ["--backend", "cpu,mlx"]);
        assert!(parsed(&[]).unwrap().arguments().unwrap().is_empty());
    }

    #[test]
    fn real_weights_are_named_with_their_files() {
        let options = parsed(&["--real", "--model", "smollm2"]).unwrap();
        let arguments = options.arguments_and(&[("smollm2", "/models/a.gguf".into())]).unwrap();
        assert_eq!(arguments, ["--model", "smollm2", "--real", "smollm2=/models/a.gguf"]);
        assert!(options.goldens().ends_with("fixtures"));
        assert!(parsed(&[]).unwrap().goldens().ends_with("fixtures/tiny"));
        assert!(parsed(&["--real", "--cache", "kvq8"]).unwrap_err().contains("--cache"));
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
        assert_eq!(replace(&made, &kept, TINY).unwrap(), ["llama"]);
        let read = |file: &str| fs::read_to_string(kept.join("llama").join(file)).unwrap();
        assert_eq!((read("goldens.json"), read("config.json")), ("new".to_owned(), "old".to_owned()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
