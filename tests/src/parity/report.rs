//! What the checks found, as a table for people and as JSON for programs.

use super::{Case, Tolerance};
use crate::table;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Least share of steps that the margin rule leaves to be compared.
const COMPARED: f64 = 0.8;

/// The outcome of all checks of one case on one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Name of the golden model.
    pub case: String,
    /// What its configuration calls the architecture.
    pub family: String,
    /// Name of the device.
    pub backend: String,
    /// Greedy tokens equal to the golden ones, each run counted until it parts.
    pub equal: usize,
    /// Greedy tokens in all.
    pub tokens: usize,
    /// Share of these that are compared, as a run ends where it parts.
    pub compared: f64,
    /// Largest difference of a logit or log-probability.
    pub logit_error: f32,
    /// What that may be.
    pub tolerance: f32,
    /// The largest difference over quantised caches.
    pub code_error: f32,
    /// Where the first run parted from the golden one, within the margin or not.
    pub divergence: Option<String>,
    /// What is not allowed.
    pub breaches: Vec<String>,
    /// Wall clock, loading included.
    pub seconds: f64,
}

impl Report {
    pub(super) fn new(case: &Case, backend: &str, tolerance: &Tolerance) -> Self {
        Self {
            case: case.name.clone(),
            family: case.family.clone(),
            backend: backend.to_owned(),
            tolerance: tolerance.logit_error,
            ..Self::default()
        }
    }

    /// The report of a case that could not be run to its end.
    pub fn failed(case: &Case, backend: &str, tolerance: &Tolerance, error: &dyn std::error::Error) -> Self {
        let mut report = Self::new(case, backend, tolerance);
        report.breach(format!("cannot be run: {error}"));
        report
    }

    pub(super) fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }

    /// Once all checks are done: a case of which too little could be compared holds nothing.
    pub(super) fn finish(mut self, time: Duration) -> Self {
        self.seconds = time.as_secs_f64();
        self.compared = if self.tokens == 0 { 1.0 } else { self.equal as f64 / self.tokens as f64 };
        if self.compared < COMPARED {
            let (share, bar) = (percent(self.compared), percent(COMPARED));
            self.breach(format!("too few steps can be compared: {share}, at least: {bar}"));
        }
        self
    }

    /// Whether everything was as it must be.
    pub fn holds(&self) -> bool {
        self.breaches.is_empty()
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A table of all cases, one of their families, the share of steps compared, and a line for each breach.
pub fn render(reports: &[Report]) -> String {
    let head = [
        "case",
        "backend",
        "tokens equal",
        "compared",
        "logit error",
        "over codes",
        "first divergence",
        "seconds",
    ];
    let line = |report: &Report| {
        [
            report.case.clone(),
            report.backend.clone(),
            format!("{}/{}", report.equal, report.tokens),
            percent(report.compared),
            format!("{:.1e}", report.logit_error),
            format!("{:.1e}", report.code_error),
            report.divergence.clone().unwrap_or_else(|| "none".to_owned()),
            format!("{:.2}", report.seconds),
        ]
    };
    let mut text = table::render(head, reports.iter().map(line));
    text.push('\n');
    text.push_str(&families(reports));
    let (equal, tokens) =
        reports.iter().fold((0, 0), |sum, report| (sum.0 + report.equal, sum.1 + report.tokens));
    let share = equal as f64 / tokens.max(1) as f64;
    text.push_str(&format!("\n{equal} of {tokens} steps compared and equal: {}\n", percent(share)));
    for report in reports {
        for breach in &report.breaches {
            text.push_str(&format!("breach: {} on {}: {breach}\n", report.case, report.backend));
        }
    }
    text
}

/// The largest error of each family, beside what it may be.
fn families(reports: &[Report]) -> String {
    let mut largest: BTreeMap<(&str, &str), (f32, f32)> = BTreeMap::new();
    for report in reports {
        let entry = largest.entry((&report.family, &report.backend)).or_insert((0.0, report.tolerance));
        entry.0 = entry.0.max(report.logit_error);
    }
    let line = |((family, backend), (error, tolerance)): ((&str, &str), (f32, f32))| {
        [family.to_owned(), backend.to_owned(), format!("{error:.1e}"), format!("{tolerance:.0e}")]
    };
    table::render(["family", "backend", "largest logit error", "tolerance"], largest.into_iter().map(line))
}

/// All reports as a JSON array.
///
/// # Errors
/// Those of the writer.
pub fn json(reports: &[Report]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(case: &str, equal: usize) -> Report {
        let (case, family, backend) = (case.to_owned(), "llama".to_owned(), "cpu".to_owned());
        Report { case, family, backend, equal, tokens: 128, tolerance: 1e-4, ..Report::default() }
    }

    #[test]
    fn a_table_has_one_line_for_each_case_and_then_families_and_breaches() {
        let good = Report { logit_error: 1.25e-6, ..report("llama", 128) }.finish(Duration::from_millis(500));
        let mut bad = Report { logit_error: 0.5, ..report("llama_swa", 31) };
        bad.divergence = Some("p7 token 3, margin 0.1".to_owned());
        bad.breach("p7: token 3 differs, margin 0.1".to_owned());
        let bad = bad.finish(Duration::from_secs(12));
        assert!(good.holds() && !bad.holds());
        insta::assert_snapshot!(render(&[good, bad]), @r"
        case       backend  tokens equal  compared  logit error  over codes  first divergence        seconds
        llama      cpu      128/128       100.0%    1.2e-6       0.0e0       none                    0.50
        llama_swa  cpu      31/128        24.2%     5.0e-1       0.0e0       p7 token 3, margin 0.1  12.00

        family  backend  largest logit error  tolerance
        llama   cpu      5.0e-1               1e-4

        159 of 256 steps compared and equal: 62.1%
        breach: llama_swa on cpu: p7: token 3 differs, margin 0.1
        breach: llama_swa on cpu: too few steps can be compared: 24.2%, at least: 80.0%
        ");
    }

    #[test]
    fn four_fifths_are_enough() {
        assert!(report("llama", 103).finish(Duration::ZERO).holds());
        assert!(!report("llama", 102).finish(Duration::ZERO).holds());
    }
}
