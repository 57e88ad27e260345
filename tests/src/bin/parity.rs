//! `cargo xtask parity`: golden models on some backends, as a table.

use clap::Parser;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tandem_tests::{
    Result,
    device::Backend,
    fixtures,
    parity::{self, Answered, Case, Change, Held, Kind, Real, Report, Tolerances},
};

/// Holds models to the numbers that mlx-lm computes with the same files.
#[derive(Debug, Parser)]
#[command(name = "parity")]
struct Arguments {
    /// Only this golden model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where to compute; several with commas between.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cpu")]
    backend: Vec<Backend>,
    /// Only the runs of one kind.
    #[arg(long, value_enum, value_name = "KIND")]
    cache: Option<Kind>,
    /// Folder with one folder for each golden model, trimmed or complete [default: those of `fixtures`].
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    /// Also writes the table's figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Holds this model with real weights, in a GGUF file, in the place of tiny ones; may be given for several.
    #[arg(long, value_name = "NAME=FILE", value_parser = weights, conflicts_with = "cache")]
    real: Vec<(String, PathBuf)>,
    /// Runs no model, and says how the goldens in this folder differ from the others.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["backend", "cache"])]
    changes: Option<PathBuf>,
}

/// A model's name and its file.
fn weights(text: &str) -> std::result::Result<(String, PathBuf), String> {
    let (name, file) =
        text.split_once('=').ok_or("a name and a file are needed, as in: smollm2=model.gguf")?;
    Ok((name.to_owned(), file.into()))
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every case holds, or no golden changed.
fn run(arguments: &Arguments) -> Result<bool> {
    let own = if arguments.real.is_empty() { fixtures().join("tiny") } else { fixtures() };
    let goldens = arguments.goldens.clone().unwrap_or(own);
    let (holds, json) = match (&arguments.changes, &arguments.real[..]) {
        (Some(folder), _) => compare(arguments, &goldens, folder)?,
        (None, []) => check(arguments, &goldens)?,
        (None, real) => answers(arguments, &goldens, real)?,
    };
    if let Some(path) = &arguments.json {
        fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(holds)
}

fn check(arguments: &Arguments, goldens: &Path) -> Result<(bool, String)> {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml"))?;
    let mut reports = Vec::new();
    for backend in &arguments.backend {
        let device = backend.open()?;
        for folder in parity::cases(goldens, arguments.model.as_deref())? {
            let case = Case::read(&folder)?;
            let tolerance = tolerances.of(*backend, &case.family)?;
            // A model that does not run is a breach beside the others, not the end of the table.
            let report = parity::run(&case, &device, &tolerance, arguments.cache);
            reports.push(report.unwrap_or_else(|error| {
                Report::failed(&case, device.traits().name, &tolerance, error.as_ref())
            }));
        }
    }
    print!("{}", parity::render(&reports));
    Ok((reports.iter().all(Report::holds), parity::json(&reports)?))
}

fn answers(arguments: &Arguments, goldens: &Path, real: &[(String, PathBuf)]) -> Result<(bool, String)> {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml"))?;
    let mut answers = Vec::new();
    for (name, file) in wanted(arguments, real)? {
        let golden = Real::read(&goldens.join(name))?;
        for backend in &arguments.backend {
            let tolerance = tolerances.of_real(*backend, name)?.logit_error;
            let mut held = Held::load(name, &golden, file, &backend.open()?, tolerance)?;
            for prompt in golden.runs.keys() {
                answers.push(held.answer(prompt)?);
            }
        }
    }
    print!("{}", parity::render_answers(&answers));
    Ok((answers.iter().all(Answered::holds), serde_json::to_string_pretty(&answers)?))
}

/// The models with real weights that `--model` leaves.
fn wanted<'a>(arguments: &Arguments, real: &'a [(String, PathBuf)]) -> Result<Vec<&'a (String, PathBuf)>> {
    let named = |name: &String| arguments.model.as_ref().is_none_or(|wanted| wanted == name);
    let found: Vec<_> = real.iter().filter(|(name, _)| named(name)).collect();
    match &arguments.model {
        Some(model) if found.is_empty() && !real.is_empty() => {
            Err(format!("no file is named for: {model}").into())
        }
        _ => Ok(found),
    }
}

fn compare(arguments: &Arguments, old: &Path, new: &Path) -> Result<(bool, String)> {
    let mut changes = Vec::new();
    if arguments.real.is_empty() {
        for folder in parity::cases(new, arguments.model.as_deref())? {
            let name = folder.file_name().unwrap_or_default();
            changes.push(Change::between(&Case::read(&old.join(name))?, &Case::read(&folder)?));
        }
    }
    for (name, _) in wanted(arguments, &arguments.real)? {
        let read = |root: &Path| Real::read(&root.join(name));
        changes.push(Change::between_real(name, &read(old)?, &read(new)?));
    }
    print!("{}", parity::changes(&changes));
    Ok((changes.iter().all(Change::is_none), serde_json::to_string_pretty(&changes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> std::result::Result<Arguments, String> {
        let words = std::iter::once("parity").chain(words.iter().copied());
        Arguments::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn arguments(words: &[&str]) -> Arguments {
        parsed(words).unwrap()
    }

    #[test]
    fn a_wrong_argument_is_named_with_what_there_is() {
        let cache = parsed(&["--cache", "rings"]).unwrap_err();
        assert!(cache.contains("'rings'") && cache.contains("rotating, kvq8, kvq4, prompt-cache"), "{cache}");
        assert!(parsed(&["--backend", "gpu"]).unwrap_err().contains("'gpu'"));
        assert!(parsed(&["--model"]).unwrap_err().contains("--model <NAME>"));
        assert!(parsed(&["llama"]).unwrap_err().contains("'llama'"));
        assert!(parsed(&["--changes", "a", "--cache", "kvq8"]).is_err());
        assert!(parsed(&["--real", "model.gguf"]).unwrap_err().contains("smollm2=model.gguf"));
        assert!(parsed(&["--real", "smollm2=a", "--cache", "kvq8"]).is_err());
    }

    #[test]
    fn a_model_or_folder_that_is_not_there_is_an_error() {
        let error = run(&arguments(&["--model", "no-such"])).unwrap_err().to_string();
        assert!(error.ends_with("holds no such goldens: no-such"), "{error}");
        let error = run(&arguments(&["--goldens", "/no/such/folder"])).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/folder: "), "{error}");
    }

    #[test]
    fn real_weights_need_a_file_and_goldens() {
        let message = |words: &[&str]| run(&arguments(words)).unwrap_err().to_string();
        assert_eq!(
            message(&["--real", "smollm2=/no/such", "--model", "gemma"]),
            "no file is named for: gemma"
        );
        assert!(message(&["--real", "smollm2=/no/such"]).starts_with("/no/such: "));
        assert!(message(&["--real", "llama=/no/such"]).contains("llama/greedy.json: "));
    }

    #[test]
    fn several_backends_share_a_table() {
        assert_eq!(arguments(&[]).backend, [Backend::Cpu]);
        assert_eq!(arguments(&["--backend", "cpu,mlx"]).backend, [Backend::Cpu, Backend::Mlx]);
    }

    #[test]
    fn one_kind_of_runs_of_one_model_holds() {
        assert!(run(&arguments(&["--model", "mistral", "--cache", "kvq8"])).unwrap());
    }

    #[test]
    fn goldens_do_not_differ_from_themselves() {
        let same = fixtures().join("tiny");
        assert!(run(&arguments(&["--model", "mistral", "--changes", same.to_str().unwrap()])).unwrap());
        let same = fixtures();
        let real = ["--real", "smollm2=/none", "--changes", same.to_str().unwrap()];
        assert!(run(&arguments(&real)).unwrap());
    }
}
