//! Medians and ratios, as a table for people and as JSON.

use serde_json::{Value, json};
use std::fmt::Write;

/// The runs of one measurement, ours and the peer's in turns.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// In what; of times and bytes less is better.
    pub unit: &'static str,
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

/// A measurement's figures with their spread.
fn cell(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{middle:.1} ({low:.0} to {high:.0})")
}

/// The table's first line.
pub fn head() -> String {
    format!("{:<40} {:>22} {:>22} {:>7}", "", "tandem", "llama.cpp", "ratio")
}

/// A line of the table; `compared` says whether the ratio is shown.
pub fn line(row: &Row, compared: bool) -> String {
    let ratio =
        row.ratio().filter(|_| compared).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let name = format!("{}, {}", row.name, row.unit);
    format!("{name:<40} {:>22} {:>22} {ratio:>7}", cell(&row.ours), cell(&row.peer))
}

/// The table.
pub fn table(rows: &[Row], compared: bool) -> String {
    let mut text = head() + "\n";
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line(row, compared));
    }
    text
}

/// The same as JSON.
pub fn json(rows: &[Row], compared: bool) -> Value {
    let row = |row: &Row| {
        let ratio = row.ratio().filter(|_| compared);
        json!({"name": row.name, "unit": row.unit, "tandem": row.ours, "llama.cpp": row.peer, "ratio": ratio})
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row { name: "prefill 512".to_owned(), unit: "tok/s", ours: vec![30.0, 10.0, 20.0], peer: vec![10.0] }
    }

    #[test]
    fn medians_and_ratios_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(row().ratio(), Some(2.0));
    }

    #[test]
    fn the_table_shows_medians_spreads_and_ratios() {
        insta::assert_snapshot!(table(&[row()], true), @r"
                                                                 tandem              llama.cpp   ratio
        prefill 512, tok/s                              20.0 (10 to 30)        10.0 (10 to 10)    2.00
        ");
    }

    #[test]
    fn a_doubtful_peer_has_no_ratio() {
        assert!(line(&row(), false).ends_with("10.0 (10 to 10)       -"));
        assert_eq!(json(&[row()], false)[0]["ratio"], Value::Null);
        assert_eq!(json(&[row()], true)[0]["ratio"], json!(2.0));
    }
}
