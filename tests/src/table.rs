//! Columns of text, each as wide as its widest cell.

/// A head and lines of as many cells.
pub fn render<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    lines: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let lines: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(lines).collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["one".to_owned(), "1".to_owned()], ["eleven".to_owned(), "11".to_owned()]];
        assert_eq!(render(["name", "n"], lines), "name    n\none     1\neleven  11\n");
    }
}
