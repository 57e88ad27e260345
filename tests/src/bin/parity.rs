//! Runs the goldens on one backend and prints a table; ends with a failure when a tolerance is broken.

use clap::Parser;
use std::{fs, path::PathBuf, process::ExitCode};
use tandem_tests::{
    Result,
    device::Backend,
    fixtures,
    parity::{self, Case, Tolerances},
};

/// Holds models to the numbers that mlx-lm computes with the same files.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this golden model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// Folder with one folder for each golden model.
    #[arg(long, value_name = "DIR")]
    goldens: Option<PathBuf>,
    /// Also writes the reports to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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

/// Whether every case holds.
fn run(arguments: &Arguments) -> Result<bool> {
    let goldens = arguments.goldens.clone().unwrap_or_else(|| fixtures().join("tiny"));
    let tolerances = Tolerances::read(&fixtures().join("parity.toml"))?;
    let tolerance = tolerances.of(arguments.backend)?;
    let device = arguments.backend.open()?;
    let mut reports = Vec::new();
    for folder in parity::cases(&goldens, arguments.model.as_deref())? {
        reports.push(parity::run(&Case::read(&folder)?, &device, tolerance)?);
    }
    print!("{}", parity::render(&reports));
    println!("tolerance of {}: {:e}, for {}", arguments.backend, tolerance.logit_error, tolerance.reason);
    if let Some(path) = &arguments.json {
        fs::write(path, parity::json(&reports)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(reports.iter().all(parity::Report::holds))
}
