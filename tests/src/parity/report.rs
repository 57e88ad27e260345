//! What the checks found, as a table for people and as JSON for programs.

use serde::Serialize;

/// The outcome of all checks of one case on one backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the golden model.
    pub case: String,
    /// Name of the device.
    pub backend: String,
    /// Greedy tokens equal to the golden ones, each run counted until it parts.
    pub equal: usize,
    /// Greedy tokens in all.
    pub tokens: usize,
    /// Largest difference of a logit or log-probability.
    pub logit_error: f32,
    /// The same over quantised caches.
    pub code_error: f32,
    /// Where the first run parted from the golden one, within the margin or not.
    pub divergence: Option<String>,
    /// What is not allowed.
    pub breaches: Vec<String>,
    /// Wall clock, loading included.
    pub seconds: f64,
}

impl Report {
    pub(super) fn new(case: &str, backend: &str) -> Self {
        Self {
            case: case.to_owned(),
            backend: backend.to_owned(),
            equal: 0,
            tokens: 0,
            logit_error: 0.0,
            code_error: 0.0,
            divergence: None,
            breaches: Vec::new(),
            seconds: 0.0,
        }
    }

    pub(super) fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }

    /// Whether everything was as it must be: no breach, and at least 80 of 100 tokens compared.
    pub fn holds(&self) -> bool {
        self.breaches.is_empty() && self.equal * 5 >= self.tokens * 4
    }
}

/// One table of all reports, and a line for each breach.
pub fn render(reports: &[Report]) -> String {
    let head =
        ["case", "backend", "tokens equal", "logit error", "over codes", "first divergence", "seconds"]
            .map(str::to_owned);
    let mut lines = vec![head];
    for report in reports {
        lines.push([
            report.case.clone(),
            report.backend.clone(),
            format!("{}/{}", report.equal, report.tokens),
            format!("{:.1e}", report.logit_error),
            format!("{:.1e}", report.code_error),
            report.divergence.clone().unwrap_or_else(|| "none".to_owned()),
            format!("{:.2}", report.seconds),
        ]);
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    let (equal, tokens) =
        reports.iter().fold((0, 0), |sum, report| (sum.0 + report.equal, sum.1 + report.tokens));
    text.push_str(&format!("{equal} of {tokens} tokens compared and equal\n"));
    for report in reports {
        for breach in &report.breaches {
            text.push_str(&format!("breach: {} on {}: {breach}\n", report.case, report.backend));
        }
    }
    text
}

/// All reports as a JSON array.
pub fn json(reports: &[Report]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_line_for_each_case_and_then_the_breaches() {
        let good = Report {
            equal: 128,
            tokens: 128,
            logit_error: 1.25e-6,
            seconds: 0.5,
            ..Report::new("llama", "cpu")
        };
        let mut bad = Report {
            equal: 31,
            tokens: 128,
            logit_error: 0.5,
            divergence: Some("p7 token 3, margin 0.1".to_owned()),
            seconds: 12.0,
            ..Report::new("llama_swa", "cpu")
        };
        bad.breach("p7: token 3 differs, margin 0.1".to_owned());
        assert!(good.holds() && !bad.holds());
        insta::assert_snapshot!(render(&[good, bad]), @r"
        case       backend  tokens equal  logit error  over codes  first divergence        seconds
        llama      cpu      128/128       1.2e-6       0.0e0       none                    0.50
        llama_swa  cpu      31/128        5.0e-1       0.0e0       p7 token 3, margin 0.1  12.00
        159 of 256 tokens compared and equal
        breach: llama_swa on cpu: p7: token 3 differs, margin 0.1
        ");
    }
}
