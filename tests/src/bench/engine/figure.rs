//! One figure of the engine, the bar that it is held to, and how both are shown.

use crate::{Result, bench::report::median, table};
use serde_json::{Value, json};

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// It is shown beside another.
    None,
}

/// A measurement, once for each turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// In what; empty for ratios.
    pub unit: &'static str,
    /// The turns; their median counts.
    pub values: Vec<f64>,
    /// What the median must be.
    pub bar: Bar,
}

impl Figure {
    /// A figure of some turns.
    pub fn new(name: impl Into<String>, unit: &'static str, values: Vec<f64>, bar: Bar) -> Self {
        Self { name: name.into(), unit, values, bar }
    }

    /// Whether the bar is held; without a turn no bar is.
    pub fn holds(&self) -> bool {
        match (self.bar, median(&self.values)) {
            (Bar::None, _) => true,
            (_, None) => false,
            (Bar::AtLeast(bar), Some(value)) => value >= bar,
            (Bar::AtMost(bar), Some(value)) => value <= bar,
        }
    }

    /// A line of the table: name, median and extremes, bar, and whether it is held.
    pub fn cells(&self) -> [String; 4] {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let low = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let value = match median(&self.values) {
            Some(middle) => format!("{}{unit} ({} to {})", short(middle), short(low), short(high)),
            None => "-".to_owned(),
        };
        let bar = match self.bar {
            Bar::AtLeast(bar) => format!("at least {bar}"),
            Bar::AtMost(bar) => format!("at most {bar}"),
            Bar::None => String::new(),
        };
        let verdict = match self.bar {
            Bar::None => "",
            _ if self.holds() => "held",
            _ => "MISSED",
        };
        [self.name.clone(), value, bar, verdict.to_owned()]
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        let (least, most) = match self.bar {
            Bar::AtLeast(bar) => (Some(bar), None),
            Bar::AtMost(bar) => (None, Some(bar)),
            Bar::None => (None, None),
        };
        json!({
            "name": self.name, "unit": self.unit, "values": self.values, "median": median(&self.values),
            "at_least": least, "at_most": most, "held": self.holds(),
        })
    }
}

/// Prints a table.
///
/// # Errors
/// Nothing was measured, or a bar is not held.
pub fn report(figures: &[Figure]) -> Result<()> {
    if figures.is_empty() {
        return Err("no part has this name".into());
    }
    print!("{}", table::render(["", "median", "bar", ""], figures.iter().map(Figure::cells)));
    let missed: Vec<&str> = figures.iter().filter(|it| !it.holds()).map(|it| it.name.as_str()).collect();
    match missed.as_slice() {
        [] => Ok(()),
        missed => Err(format!("bars are missed: {}", missed.join("; ")).into()),
    }
}

/// Three digits, as many as such measurements are worth.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The value below which `share` of the values lie: the smallest that is at least as large as so many of them.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_held_by_medians() {
        let figure = |values: &[f64], bar| Figure::new("x", "", values.to_vec(), bar);
        assert!(figure(&[0.5, 0.95, 9.0], Bar::AtLeast(0.95)).holds());
        assert!(!figure(&[0.5, 0.94, 9.0], Bar::AtLeast(0.95)).holds());
        assert!(figure(&[0.1], Bar::AtMost(0.1)).holds());
        assert!(!figure(&[0.11], Bar::AtMost(0.1)).holds());
        assert!(!figure(&[], Bar::AtMost(0.1)).holds() && figure(&[], Bar::None).holds());
    }

    #[test]
    fn a_line_says_the_figure_its_bar_and_the_verdict() {
        let figure = Figure::new("gap", "ms", vec![12.34, 0.5, 130.2], Bar::AtMost(4.0));
        assert_eq!(figure.cells(), ["gap", "12.3 ms (0.500 to 130)", "at most 4", "MISSED"]);
        assert_eq!(figure.json()["held"], false);
        let shown = Figure::new("gap", "", vec![2.0], Bar::None);
        assert_eq!(shown.cells(), ["gap", "2.00 (2.00 to 2.00)", "", ""]);
    }

    #[test]
    fn quantiles_by_hand() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(198.0));
        assert_eq!(quantile(&values, 1.0), Some(200.0));
        assert_eq!(quantile(&[3.0, 1.0], 0.5), Some(1.0));
        assert_eq!((quantile(&[7.0], 0.0), quantile(&[], 0.5)), (Some(7.0), None));
    }
}
