//! Counts tests from the lines that test runners end with, while they go by.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::process;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Tally {
    /// From `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s`.
    fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |name: &str| {
            let field = counts.split("; ").find_map(|field| field.strip_suffix(name));
            field.and_then(|number| number.trim().parse().ok())
        };
        Some(Self { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored")? })
    }
}

/// Runs a command that runs Rust's tests, passes on what it prints, and counts. It fails if a test failed, if the
/// command did, or if there was no test.
pub(super) fn run(command: &mut Command) -> Result<Tally> {
    run_as(command, Tally::of_line)
}

/// Like [`run`], for a runner whose closing lines are counted by `of_line`.
pub(super) fn run_as(command: &mut Command, of_line: fn(&str) -> Option<Tally>) -> Result<Tally> {
    process::announce(command);
    let start = command.stdout(Stdio::piped()).spawn();
    let mut child = start.map_err(|error| process::failed(command, error.to_string()))?;
    let mut tally = Tally::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(|error| process::failed(command, error.to_string()))?;
        println!("{line}");
        if let Some(counted) = of_line(&line) {
            tally += counted;
        }
    }
    let status = child.wait().map_err(|error| process::failed(command, error.to_string()))?;
    if !status.success() {
        let outcome = format!("{status}, {} passed, {} failed", tally.passed, tally.failed);
        return Err(process::failed(command, outcome));
    }
    if tally.passed == 0 {
        return Err(Error::unexpected("no test ran"));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_line_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.10s";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 12, failed: 3, ignored: 1 }));
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["test result", "test a::b ... ok", "test result: ok. 1 passed", ""] {
            assert_eq!(Tally::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn counts_add_up_over_binaries() {
        let script =
            "for i in 1 2; do echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; x'; done";
        let tally = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(tally, Tally { passed: 4, failed: 0, ignored: 2 });
    }

    #[test]
    fn no_test_is_a_failure() {
        assert!(run(Command::new("sh").args(["-c", "echo nothing"])).is_err());
        assert!(run(Command::new("sh").args(["-c", "exit 1"])).is_err());
    }
}
