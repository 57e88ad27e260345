//! `cargo xtask test`: everything that must pass, step by step.
//!
//! A step that fails does not stop the others; the summary at the end names it, and the command fails. A step
//! that runs tests and finds none fails too.

mod client;
mod contract;
mod report;
mod step;
mod tally;

use std::time::Instant;

use clap::Args;

use self::report::{Outcome, Report};
use self::step::{STEPS, Step, When};
use crate::error::{Error, Result};

/// What `cargo xtask test` can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Only what takes seconds to minutes: no starter model, no MLX, no other target.
    #[arg(long)]
    quick: bool,
    /// Leave out the MLX backend.
    #[arg(long)]
    no_mlx: bool,
    /// Only the steps whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl Options {
    /// Why a step is left out, if it is.
    fn reason_against(&self, step: &Step) -> Option<&'static str> {
        match step.when {
            When::Full | When::Mlx if self.quick => Some("--quick"),
            When::Mlx if self.no_mlx => Some("--no-mlx"),
            _ => None,
        }
    }

    fn selects(&self, step: &Step) -> bool {
        self.only.as_ref().is_none_or(|name| step.name.contains(name.as_str()))
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::default();
    for step in STEPS.iter().filter(|step| options.selects(step)) {
        let start = Instant::now();
        let outcome = match options.reason_against(step) {
            Some(reason) => Outcome::Skipped(reason.to_owned()),
            None => {
                println!("\n== {} ==", step.name);
                (step.run)(options.quick).unwrap_or_else(|error| Outcome::Failed(error.to_string()))
            }
        };
        if let Outcome::Failed(reason) = &outcome {
            println!("{} failed: {reason}", step.name);
        }
        report.add(step.name, start.elapsed(), outcome);
    }
    print!("\n{report}");
    match report.failures() {
        0 => Ok(()),
        count => Err(Error::unexpected(format!("steps that failed: {count}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(quick: bool, no_mlx: bool) -> Vec<&'static str> {
        let options = Options { quick, no_mlx, only: None };
        let left_out = STEPS.iter().filter(|step| options.reason_against(step).is_some());
        left_out.map(|step| step.name).collect()
    }

    #[test]
    fn nothing_is_left_out_unasked() {
        assert!(skipped(false, false).is_empty());
    }

    #[test]
    fn what_is_left_out_is_what_was_asked() {
        assert_eq!(
            skipped(false, true),
            ["mlx set-up", "mlx clippy", "mlx tests", "mlx end to end", "macos check"]
        );
        let quick = skipped(true, false);
        assert!(!quick.contains(&"tests") && !quick.contains(&"format") && quick.contains(&"mlx tests"));
    }

    #[test]
    fn a_name_selects_steps() {
        let options = Options { quick: false, no_mlx: false, only: Some("clippy".to_owned()) };
        let names: Vec<_> = STEPS.iter().filter(|step| options.selects(step)).map(|step| step.name).collect();
        assert_eq!(names, ["clippy", "mlx clippy"]);
    }
}
