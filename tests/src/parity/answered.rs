//! What answers by real weights are beside mlx-lm's, as a table for people and as JSON for programs.

use super::real::Divergence;
use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;

/// Characters of an answer in the table; the JSON has all of it.
const SHOWN: usize = 80;

/// One prompt's answer beside the golden one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answered {
    /// Name of the model.
    pub case: String,
    /// Name of the device.
    pub backend: String,
    /// Name of the prompt.
    pub prompt: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Steps whose most likely token is the golden one.
    pub equal: usize,
    /// Steps in all.
    pub tokens: usize,
    /// Largest difference of a golden logit.
    pub logit_error: f32,
    /// What that may be, and how near two logits must be to change places.
    pub tolerance: f32,
    /// Where another token is the most likely.
    pub divergences: Vec<Divergence>,
    /// The text of the golden answer.
    pub answer: String,
    /// What is not allowed.
    pub breaches: Vec<String>,
    /// Wall clock, without loading.
    pub seconds: f64,
}

impl Answered {
    /// Counts a step.
    pub(super) fn add(&mut self, step: usize, error: f32, divergence: Option<Divergence>) {
        if error > self.tolerance && self.logit_error <= self.tolerance {
            self.breaches.push(format!("token {step}: logit error {error:.1e}"));
        }
        self.logit_error = self.logit_error.max(error);
        let Some(divergence) = divergence else {
            self.equal += 1;
            return;
        };
        let near = |gap: f32| gap < self.tolerance;
        if !(near(divergence.gap) && near(divergence.golden_gap)) {
            self.breaches.push(format!("token {step}: {}", divergence.described()));
        }
        self.divergences.push(divergence);
    }

    /// Whether everything was as it must be.
    pub fn holds(&self) -> bool {
        self.breaches.is_empty()
    }
}

impl Divergence {
    fn described(&self) -> String {
        let Self { golden, ours, gap, golden_gap, .. } = self;
        format!("{ours} for {golden}, apart by {gap:.1e} here, by {golden_gap:.1e} in mlx-lm")
    }
}

/// A table of all answers, one of the models, the golden answers, and a line for each breach.
pub fn render_answers(all: &[Answered]) -> String {
    let head = [
        "model",
        "backend",
        "prompt",
        "tokens",
        "tokens equal",
        "logit error",
        "first divergence",
        "gap here",
        "gap in mlx-lm",
        "seconds",
    ];
    let line = |answered: &Answered| {
        let first = answered.divergences.first();
        let gap = |of: fn(&Divergence) -> f32| first.map_or("-".to_owned(), |it| format!("{:.1e}", of(it)));
        [
            answered.case.clone(),
            answered.backend.clone(),
            answered.prompt.clone(),
            answered.prompt_tokens.to_string(),
            format!("{}/{}", answered.equal, answered.tokens),
            format!("{:.1e}", answered.logit_error),
            first
                .map_or("none".to_owned(), |it| format!("token {}: {} for {}", it.token, it.ours, it.golden)),
            gap(|it| it.gap),
            gap(|it| it.golden_gap),
            format!("{:.2}", answered.seconds),
        ]
    };
    let mut text = table::render(head, all.iter().map(line));
    text.push('\n');
    text.push_str(&models(all));
    text.push_str("\nmlx-lm's answers, to their end or their first characters:\n");
    text.push_str(&answers(all));
    for answered in all {
        for breach in &answered.breaches {
            let Answered { case, backend, prompt, .. } = answered;
            text.push_str(&format!("breach: {case} on {backend}: {prompt}: {breach}\n"));
        }
    }
    text
}

/// Each model on each backend, beside its tolerance.
fn models(all: &[Answered]) -> String {
    let mut sums: BTreeMap<(&str, &str), Answered> = BTreeMap::new();
    for answered in all {
        let sum = sums.entry((&answered.case, &answered.backend)).or_default();
        sum.equal += answered.equal;
        sum.tokens += answered.tokens;
        sum.logit_error = sum.logit_error.max(answered.logit_error);
        sum.tolerance = answered.tolerance;
    }
    let line = |((case, backend), sum): ((&str, &str), Answered)| {
        let equal = format!("{}/{}", sum.equal, sum.tokens);
        let (error, tolerance) = (format!("{:.1e}", sum.logit_error), format!("{:.0e}", sum.tolerance));
        [case.to_owned(), backend.to_owned(), equal, error, tolerance]
    };
    let head = ["model", "backend", "tokens equal", "largest logit error", "tolerance"];
    table::render(head, sums.into_iter().map(line))
}

/// The golden answers, each once.
fn answers(all: &[Answered]) -> String {
    let texts: BTreeMap<_, _> =
        all.iter().map(|it| ((it.case.as_str(), it.prompt.as_str()), it.answer.as_str())).collect();
    let line = |((case, prompt), answer): ((&str, &str), &str)| {
        let shown: String = answer.chars().take(SHOWN).collect();
        [case.to_owned(), prompt.to_owned(), format!("{shown:?}")]
    };
    table::render(["model", "prompt", "answer"], texts.into_iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(prompt: &str) -> Answered {
        let (case, backend, prompt) = ("smollm2".to_owned(), "cpu".to_owned(), prompt.to_owned());
        let answer = "Paris.<|im_end|>\n".to_owned();
        Answered {
            case,
            backend,
            prompt,
            prompt_tokens: 7,
            tokens: 2,
            tolerance: 1e-3,
            answer,
            ..Answered::default()
        }
    }

    fn divergence(gap: f32, golden_gap: f32) -> Option<Divergence> {
        Some(Divergence { token: 1, golden: 5, ours: 9, gap, golden_gap })
    }

    #[test]
    fn near_logits_may_change_places() {
        let outcome = |divergence: Option<Divergence>| {
            let mut it = answered("capital");
            it.add(1, 1e-4, divergence);
            (it.equal, it.holds())
        };
        assert_eq!(outcome(None), (1, true));
        assert_eq!(outcome(divergence(9e-4, 9e-4)), (0, true));
        assert_eq!(outcome(divergence(1e-3, 1e-4)), (0, false));
        assert_eq!(outcome(divergence(1e-4, f32::INFINITY)), (0, false));
        assert_eq!(outcome(divergence(f32::NAN, 1e-4)), (0, false));
    }

    #[test]
    fn the_table_shows_divergences_answers_and_breaches() {
        let (mut same, mut near, mut far) = (answered("capital"), answered("code"), answered("story"));
        (0..2).for_each(|step| same.add(step, 2e-5, None));
        near.add(0, 1e-4, None);
        near.add(1, 2e-4, divergence(1e-4, 3e-4));
        far.add(0, 0.5, None);
        far.add(1, 0.75, divergence(0.5, f32::INFINITY));
        assert!(same.holds() && near.holds() && !far.holds());
        insta::assert_snapshot!(render_answers(&[same, near, far]), @r#"
        model    backend  prompt   tokens  tokens equal  logit error  first divergence  gap here  gap in mlx-lm  seconds
        smollm2  cpu      capital  7       2/2           2.0e-5       none              -         -              0.00
        smollm2  cpu      code     7       1/2           2.0e-4       token 1: 9 for 5  1.0e-4    3.0e-4         0.00
        smollm2  cpu      story    7       1/2           7.5e-1       token 1: 9 for 5  5.0e-1    inf            0.00

        model    backend  tokens equal  largest logit error  tolerance
        smollm2  cpu      4/6           7.5e-1               1e-3

        mlx-lm's answers, to their end or their first characters:
        model    prompt   answer
        smollm2  capital  "Paris.<|im_end|>\n"
        smollm2  code     "Paris.<|im_end|>\n"
        smollm2  story    "Paris.<|im_end|>\n"
        breach: smollm2 on cpu: story: token 0: logit error 5.0e-1
        breach: smollm2 on cpu: story: token 1: 9 for 5, apart by 5.0e-1 here, by inf in mlx-lm
        "#);
    }
}
