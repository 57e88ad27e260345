//! `cargo xtask parity`, `mutants`, `bench engine`, `bench serve`, `bench spec` and `bench quality`: programs of the `tandem-tests` package, built in release.

use std::process::Command;

use clap::Args;

use crate::error::Result;
use crate::{mlx, process, workspace};

/// What is handed on.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Arguments of the program itself (`--help` shows them).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Options {
    /// The same behind a subcommand.
    pub(crate) fn after(&self, subcommand: &str) -> Self {
        Self { arguments: [&[subcommand.to_owned()], self.arguments.as_slice()].concat() }
    }

    /// These arguments.
    pub(crate) fn of(arguments: Vec<String>) -> Self {
        Self { arguments }
    }
}

/// The program `name` with the arguments. MLX is built in (and set up first, on Linux) when an argument names it.
pub(crate) fn program(name: &str, options: &Options) -> Result<Command> {
    let mut command = workspace::cargo(["run", "--release", "--package", "tandem-tests", "--bin", name]);
    if options.arguments.iter().any(|argument| argument.split(['=', ',']).any(|word| word == "mlx")) {
        mlx::run(&mlx::Options::default())?;
        command.args(["--features", "mlx"]);
    }
    command.arg("--").args(&options.arguments);
    Ok(command)
}

/// Runs it.
pub(crate) fn run(name: &str, options: &Options) -> Result<()> {
    process::run(&mut program(name, options)?)
}
