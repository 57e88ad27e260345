//! The summary at the end: each step with its time and outcome, then the counts.

use std::fmt;
use std::time::Duration;

use super::tally::Tally;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is well; there was nothing to count.
    Passed,
    /// All is well, and this many tests ran.
    Tested(Tally),
    /// It did not run, for this reason.
    Skipped(String),
    /// It failed, for this reason.
    Failed(String),
}

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<(&'static str, Duration, Outcome)>,
}

impl Report {
    /// Adds a step that has ended.
    pub(super) fn add(&mut self, name: &'static str, time: Duration, outcome: Outcome) {
        self.lines.push((name, time, outcome));
    }

    /// How many steps failed.
    pub(super) fn failures(&self) -> usize {
        self.lines.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_))).count()
    }

    /// The tests of all steps. A failed step counts as one failed test: its runner may have stopped early.
    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for (_, _, outcome) in &self.lines {
            match outcome {
                Outcome::Tested(tally) => total += *tally,
                Outcome::Failed(_) => total.failed += 1,
                Outcome::Passed | Outcome::Skipped(_) => {}
            }
        }
        total
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum = Duration::ZERO;
        for (name, time, outcome) in &self.lines {
            sum += *time;
            let seconds = time.as_secs_f64();
            match outcome {
                Outcome::Passed => writeln!(f, "{name:<18} {seconds:>7.1} s  passed")?,
                Outcome::Tested(tally) => {
                    writeln!(f, "{name:<18} {seconds:>7.1} s  passed: {} tests", tally.passed)?;
                }
                Outcome::Skipped(reason) => writeln!(f, "{name:<18} {:>7}    skipped: {reason}", "")?,
                Outcome::Failed(reason) => writeln!(f, "{name:<18} {seconds:>7.1} s  FAILED: {reason}")?,
            }
        }
        let total = self.total();
        writeln!(f, "{:<18} {:>7.1} s\n", "total", sum.as_secs_f64())?;
        write!(f, "{} passed, {} failed", total.passed, total.failed)?;
        match total.ignored {
            0 => writeln!(f),
            ignored => writeln!(f, ", {ignored} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_a_table_and_a_count() {
        let mut report = Report::default();
        report.add("format", Duration::from_millis(1250), Outcome::Passed);
        report.add(
            "tests",
            Duration::from_secs(90),
            Outcome::Tested(Tally { passed: 12, failed: 0, ignored: 1 }),
        );
        report.add("deny", Duration::ZERO, Outcome::Skipped("not installed".to_owned()));
        report.add("clippy", Duration::from_secs(20), Outcome::Failed("exit status: 101".to_owned()));
        assert_eq!(report.failures(), 1);
        insta::assert_snapshot!(report.to_string(), @"
        format                 1.2 s  passed
        tests                 90.0 s  passed: 12 tests
        deny                          skipped: not installed
        clippy                20.0 s  FAILED: exit status: 101
        total                111.2 s

        12 passed, 1 failed, 1 skipped
        ");
    }
}
