//! What differs between two folders of goldens: those that are kept, and those that were made anew.

use super::{
    Answer, Case, Real,
    case::{Answers, Run},
};
use crate::{drive::distance, table};
use serde::Serialize;

/// How one case's goldens differ from those made before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// Name of the golden model.
    pub case: String,
    /// Runs whose tokens are others, or that are in one of the two folders only.
    pub runs: Vec<String>,
    /// Largest change of a margin; infinite where their number is another.
    pub margin: f32,
    /// Largest change of a logit or log-probability; infinite where shapes differ.
    pub logit: f32,
}

impl Change {
    /// Compares the goldens of one model.
    pub fn between(old: &Case, new: &Case) -> Self {
        let mut change = Self { case: old.name.clone(), ..Self::default() };
        let prompts =
            old.greedy.keys().chain(new.greedy.keys().filter(|name| !old.greedy.contains_key(*name)));
        for name in prompts {
            match (old.greedy.get(name), new.greedy.get(name)) {
                (Some(old), Some(new)) if old.prompt == new.prompt && old.tokens == new.tokens => {
                    change.margin = change.margin.max(distance(&old.margins, &new.margins));
                }
                _ => change.runs.push(format!("greedy {name}")),
            }
        }
        let runs = old.runs.keys().chain(new.runs.keys().filter(|name| !old.runs.contains_key(*name)));
        for name in runs {
            match (old.runs.get(name), new.runs.get(name)) {
                (Some(old), Some(new)) if same_tokens(old, new) => change.margin(old, new),
                _ => change.runs.push(name.clone()),
            }
        }
        change.rows(&old.prompt_logits, &new.prompt_logits);
        change.rows(&old.greedy_log_probabilities, &new.greedy_log_probabilities);
        for (name, rows) in &old.run_log_probabilities {
            change.rows(rows, new.run_log_probabilities.get(name).map_or(&[], Vec::as_slice));
        }
        change
    }

    /// Compares the answers of a model with real weights.
    pub fn between_real(case: &str, old: &Real, new: &Real) -> Self {
        let mut change = Self { case: case.to_owned(), ..Self::default() };
        let prompts = old.runs.keys().chain(new.runs.keys().filter(|name| !old.runs.contains_key(*name)));
        for name in prompts {
            match (old.runs.get(name), new.runs.get(name)) {
                (Some(old), Some(new)) if old.prompt == new.prompt && old.tokens == new.tokens => {
                    change.margin = change.margin.max(distance(&margins(old), &margins(new)));
                    for (old, new) in
                        [(&old.best, &new.best), (&old.second, &new.second), (&old.total, &new.total)]
                    {
                        change.logit = change.logit.max(distance(old, new));
                    }
                }
                _ => change.runs.push(name.clone()),
            }
        }
        change
    }

    /// The smallest margins of runs that do not keep those of every token.
    fn margin(&mut self, old: &Run, new: &Run) {
        self.margin = match (old.min_margin, new.min_margin) {
            (Some(old), Some(new)) => self.margin.max((old - new).abs()),
            (None, None) => self.margin,
            _ => f32::INFINITY,
        };
    }

    fn rows(&mut self, old: &[Vec<f32>], new: &[Vec<f32>]) {
        let counted = if old.len() == new.len() { 0.0 } else { f32::INFINITY };
        let largest = old.iter().zip(new).map(|(old, new)| distance(old, new)).fold(counted, f32::max);
        self.logit = self.logit.max(largest);
    }

    /// Whether nothing is different.
    pub fn is_none(&self) -> bool {
        self.runs.is_empty() && self.margin == 0.0 && self.logit == 0.0
    }
}

fn margins(answer: &Answer) -> Vec<f32> {
    answer.best.iter().zip(&answer.second).map(|(best, second)| best - second).collect()
}

fn same_tokens(old: &Run, new: &Run) -> bool {
    match (&old.tokens, &new.tokens) {
        (Answers::One(old), Answers::One(new)) => old == new,
        (Answers::Batch(old), Answers::Batch(new)) => old == new,
        _ => false,
    }
}

/// A table of the cases that changed, and how many did not.
pub fn changes(all: &[Change]) -> String {
    let changed: Vec<_> = all.iter().filter(|change| !change.is_none()).collect();
    let mut text = String::new();
    if !changed.is_empty() {
        let line = |change: &&Change| {
            let runs = if change.runs.is_empty() { "none".to_owned() } else { change.runs.join(", ") };
            [change.case.clone(), format!("{:.1e}", change.logit), format!("{:.1e}", change.margin), runs]
        };
        text = table::render(["case", "logits by", "margins by", "other tokens"], changed.iter().map(line));
    }
    text.push_str(&format!("goldens that changed: {} of {}\n", changed.len(), all.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn case() -> Case {
        Case::read(&fixtures().join("tiny/llama")).unwrap()
    }

    #[test]
    fn goldens_differ_in_nothing_from_themselves() {
        assert!(Change::between(&case(), &case()).is_none());
    }

    #[test]
    fn tokens_margins_and_logits_are_told_apart() {
        let (old, mut new) = (case(), case());
        new.prompt_logits[0][0] += 0.25;
        new.greedy.get_mut("p7").unwrap().margins[3] += 0.5;
        new.greedy.get_mut("p13").unwrap().tokens[0] += 1;
        new.runs.remove("batchgen_4rows");
        let change = Change::between(&old, &new);
        assert_eq!(change.runs, ["greedy p13", "batchgen_4rows"]);
        assert!((change.margin - 0.5).abs() < 1e-5 && (change.logit - 0.25).abs() < 1e-5);
        new.prompt_logits.pop();
        assert_eq!(Change::between(&old, &new).logit, f32::INFINITY);
    }

    #[test]
    fn real_answers_are_told_apart_by_tokens_and_logits() {
        let old = Real::read(&fixtures().join("smollm2")).unwrap();
        assert!(Change::between_real("smollm2", &old, &old).is_none());
        let mut new = old.clone();
        new.runs.get_mut("code").unwrap().best[3] += 0.5;
        new.runs.get_mut("list").unwrap().total[0] -= 0.25;
        new.runs.get_mut("story").unwrap().tokens[63] += 1;
        new.runs.remove("rhyme");
        let change = Change::between_real("smollm2", &old, &new);
        assert_eq!(change.runs, ["rhyme", "story"]);
        assert!((change.margin - 0.5).abs() < 1e-4 && (change.logit - 0.5).abs() < 1e-4);
    }

    #[test]
    fn the_table_shows_what_changed() {
        let same = Change { case: "qwen3".to_owned(), ..Change::default() };
        let near = Change { case: "llama".to_owned(), logit: 2e-6, margin: 1e-6, ..Change::default() };
        let runs = vec!["greedy p7".to_owned(), "batchgen_4rows".to_owned()];
        let far = Change { case: "llama_swa".to_owned(), runs, logit: 0.5, ..Change::default() };
        assert_eq!(changes(std::slice::from_ref(&same)), "goldens that changed: 0 of 1\n");
        insta::assert_snapshot!(changes(&[same, near, far]), @r"
        case       logits by  margins by  other tokens
        llama      2.0e-6     1.0e-6      none
        llama_swa  5.0e-1     0.0e0       greedy p7, batchgen_4rows
        goldens that changed: 2 of 3
        ");
    }
}
