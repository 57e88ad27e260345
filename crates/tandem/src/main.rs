//! The `tandem` program: parses the command line, runs one command, and says in one line what failed.

mod cli;
mod clock;
mod command;
mod error;
mod model_files;
mod terminal;
mod wiring;

use clap::Parser;
use cli::{Cli, Command};
use std::{io::IsTerminal, process::ExitCode};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose || matches!(cli.command, Command::Serve(_)));
    let result = match &cli.command {
        Command::Chat(arguments) => command::chat::run(arguments, cli.verbose),
        Command::Generate(arguments) => command::generate::run(arguments, cli.verbose),
        Command::Serve(arguments) => command::serve::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.render(cli.verbose));
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error; `TANDEM_LOG` says which, in the syntax of `tracing`. A server has a line for each request.
fn log(verbose: bool) {
    let level = if verbose { LevelFilter::INFO } else { LevelFilter::WARN };
    let filter =
        EnvFilter::builder().with_env_var("TANDEM_LOG").with_default_directive(level.into()).from_env_lossy();
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
