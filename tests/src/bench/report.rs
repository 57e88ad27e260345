//! Medians and ratios, as a table for people and as JSON.

use super::case::Case;
use serde_json::{Value, json};
use std::fmt::Write;

/// The runs of one case, in tokens per second.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case.
    pub case: Case,
    /// Our runs.
    pub ours: Vec<f64>,
    /// The peer's runs; empty when there is no peer.
    pub peer: Vec<f64>,
}

impl Row {
    /// Ours through the peer's, by medians.
    pub fn ratio(&self) -> Option<f64> {
        Some(median(&self.ours)? / median(&self.peer)?)
    }
}

/// The middle of some numbers, or of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// A case's figures with their spread.
fn cell(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{middle:.1} ({low:.0} to {high:.0})")
}

/// The table.
pub fn table(rows: &[Row]) -> String {
    let mut text =
        format!("{:<26} {:>26} {:>26} {:>7}\n", "tokens per second", "tandem", "llama.cpp", "ratio");
    for row in rows {
        let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<26} {:>26} {:>26} {ratio:>7}", row.case, cell(&row.ours), cell(&row.peer));
    }
    text
}

/// The same as JSON.
pub fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| json!({"case": row.case.to_string(), "tandem": row.ours, "llama.cpp": row.peer, "ratio": row.ratio()});
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let row = Row { case: Case::Prefill { tokens: 512 }, ours: vec![30.0, 10.0, 20.0], peer: vec![10.0] };
        assert_eq!(row.ratio(), Some(2.0));
        insta::assert_snapshot!(table(&[row]), @r"
        tokens per second                              tandem                  llama.cpp   ratio
        prefill 512                           20.0 (10 to 30)            10.0 (10 to 10)    2.00
        ");
    }
}
