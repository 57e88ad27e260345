//! `cargo xtask parity`: the golden models on one backend, as a table.

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
    parity::{self, Case, Change, Kind, Report, Tolerances},
};

/// Holds models to the numbers that mlx-lm computes with the same files.
#[derive(Debug, Parser)]
#[command(name = "parity")]
struct Arguments {
    /// Only this golden model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// Only the runs of one kind.
    #[arg(long, value_enum, value_name = "KIND")]
    cache: Option<Kind>,
    /// Folder with one folder for each golden model, trimmed or complete [default: those of `fixtures`].
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    /// Also writes the table's figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs no model, and says how the goldens in this folder differ from the others.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["backend", "cache"])]
    changes: Option<PathBuf>,
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
    let goldens = arguments.goldens.clone().unwrap_or_else(|| fixtures().join("tiny"));
    let (holds, json) = match &arguments.changes {
        Some(folder) => compare(arguments, &goldens, folder)?,
        None => check(arguments, &goldens)?,
    };
    if let Some(path) = &arguments.json {
        fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(holds)
}

fn check(arguments: &Arguments, goldens: &Path) -> Result<(bool, String)> {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml"))?;
    let device = arguments.backend.open()?;
    let mut reports = Vec::new();
    for folder in parity::cases(goldens, arguments.model.as_deref())? {
        let case = Case::read(&folder)?;
        let tolerance = tolerances.of(arguments.backend, &case.family)?;
        // A model that does not run is a breach beside the others, not the end of the table.
        let report = parity::run(&case, &device, &tolerance, arguments.cache);
        reports.push(
            report.unwrap_or_else(|error| {
                Report::failed(&case, device.traits().name, &tolerance, error.as_ref())
            }),
        );
    }
    print!("{}", parity::render(&reports));
    Ok((reports.iter().all(Report::holds), parity::json(&reports)?))
}

fn compare(arguments: &Arguments, old: &Path, new: &Path) -> Result<(bool, String)> {
    let mut changes = Vec::new();
    for folder in parity::cases(new, arguments.model.as_deref())? {
        let name = folder.file_name().unwrap_or_default();
        changes.push(Change::between(&Case::read(&old.join(name))?, &Case::read(&folder)?));
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
    }

    #[test]
    fn a_model_or_folder_that_is_not_there_is_an_error() {
        let error = run(&arguments(&["--model", "no-such"])).unwrap_err().to_string();
        assert!(error.ends_with("holds no such goldens: no-such"), "{error}");
        let error = run(&arguments(&["--goldens", "/no/such/folder"])).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/folder: "), "{error}");
    }

    #[test]
    fn one_kind_of_runs_of_one_model_holds() {
        assert!(run(&arguments(&["--model", "mistral", "--cache", "kvq8"])).unwrap());
    }

    #[test]
    fn goldens_do_not_differ_from_themselves() {
        let same = fixtures().join("tiny");
        assert!(run(&arguments(&["--model", "mistral", "--changes", same.to_str().unwrap()])).unwrap());
    }
}
