//! `cargo xtask`: the workspace's commands. `cargo xtask --help` lists them.
//!
//! Depends on no crate of the workspace and runs programs instead, so that it works when they do not build.

mod bench;
mod debian;
mod demo;
mod error;
mod mlx;
mod model;
mod parity;
mod peer;
#[cfg(test)]
mod policy;
mod process;
mod python;
mod relay;
mod suite;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Result;

/// The command line.
#[derive(Parser, Debug)]
#[command(
    bin_name = "cargo xtask",
    about = "The commands of this workspace.",
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

/// The commands, in the order in which `--help` lists them.
#[derive(Subcommand, Debug)]
enum Task {
    /// Fetch a small model, build the program and serve the model over HTTP.
    Demo(demo::Options),
    /// Run everything that must pass, and install what that needs.
    Test(suite::Options),
    /// Set up MLX on Linux (on macOS there is nothing to set up).
    Mlx(mlx::Options),
    /// Hold models to the numbers that mlx-lm computes with the same files, or make those numbers anew.
    Parity(parity::Options),
    /// Measure speed, alone or in turns with llama.cpp or mlx-lm, and what the fast arithmetic costs in quality.
    Bench(bench::Options),
    /// Show that the conformance suite notices wrong tensor operations.
    Mutants(relay::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Demo(options) => demo::run(options),
        Task::Test(options) => suite::run(options),
        Task::Mlx(options) => mlx::run(options),
        Task::Parity(options) => parity::run(options),
        Task::Bench(options) => bench::run(options),
        Task::Mutants(options) => relay::run("mutants", options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
