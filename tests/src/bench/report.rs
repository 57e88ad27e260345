//! Medians and ratios, as a table for people and as JSON.

use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

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

    /// Each run of ours through the peer's next to it.
    pub fn paired(&self) -> Option<Spread> {
        let ratios: Vec<_> = self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect();
        let (low, high) = extremes(&ratios);
        Some(Spread { median: median(&ratios)?, low, high, runs: ratios.len() })
    }
}

/// Ratios of runs in turns, and how far they scatter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    low: f64,
    high: f64,
    runs: usize,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high, runs } = self;
        write!(f, "median ratio {median:.2}, between {low:.2} and {high:.2} in {runs} turns")
    }
}

fn extremes(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(*value), high.max(*value)))
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
    let (low, high) = extremes(values);
    format!("{middle:.1} ({low:.0} to {high:.0})")
}

/// The table's first line.
pub fn head(peer: &str) -> String {
    format!("{:<40} {:>22} {peer:>22} {:>7}", "", "tandem", "ratio")
}

/// A line of the table; `compared` says whether the ratio is shown.
pub fn line(row: &Row, compared: bool) -> String {
    let ratio =
        row.ratio().filter(|_| compared).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let name = format!("{}, {}", row.name, row.unit);
    format!("{name:<40} {:>22} {:>22} {ratio:>7}", cell(&row.ours), cell(&row.peer))
}

/// The table.
pub fn table(peer: &str, rows: &[Row], compared: bool) -> String {
    let mut text = head(peer) + "\n";
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line(row, compared));
    }
    text
}

/// The same as JSON.
pub fn json(peer: &str, rows: &[Row], compared: bool) -> Value {
    let row = |row: &Row| {
        let ratio = row.ratio().filter(|_| compared);
        let mut fields = Map::new();
        fields.insert("name".to_owned(), json!(row.name));
        fields.insert("unit".to_owned(), json!(row.unit));
        fields.insert("tandem".to_owned(), json!(row.ours));
        fields.insert(peer.to_owned(), json!(row.peer));
        fields.insert("ratio".to_owned(), json!(ratio));
        Value::Object(fields)
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
    fn turns_are_compared_one_by_one() {
        let row = Row { peer: vec![10.0, 10.0, 40.0], ..row() };
        let spread = row.paired().unwrap();
        assert_eq!(spread.to_string(), "median ratio 1.00, between 0.50 and 3.00 in 3 turns");
    }

    #[test]
    fn the_table_shows_medians_spreads_and_ratios() {
        insta::assert_snapshot!(table("llama.cpp", &[row()], true), @r"
                                                                 tandem              llama.cpp   ratio
        prefill 512, tok/s                              20.0 (10 to 30)        10.0 (10 to 10)    2.00
        ");
    }

    #[test]
    fn a_doubtful_peer_has_no_ratio() {
        assert!(line(&row(), false).ends_with("10.0 (10 to 10)       -"));
        assert_eq!(json("llama.cpp", &[row()], false)[0]["ratio"], Value::Null);
        assert_eq!(json("llama.cpp", &[row()], true)[0]["ratio"], json!(2.0));
    }
}
