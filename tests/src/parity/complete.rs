//! Both forms of goldens: the trimmed one of `fixtures`, and the complete one that the script wrote which made them.
//!
//! A complete file holds prompts and runs apart, also runs in which mlx-lm failed, and arrays for every prompt. Of it is
//! read what `fixtures/trim.py` would keep, by the same rule.

use super::case::{Answers, Goldens, Greedy, Run, rows};
use crate::Result;
use safetensors::SafeTensors;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_contracts::text::TokenId;

/// Beginnings of the names of runs that are checked.
const KEPT: [&str; 4] = ["kvq", "rotating16", "batchgen", "prompt_cache"];

#[derive(Deserialize)]
struct Complete {
    prompts: BTreeMap<String, Vec<TokenId>>,
    runs: BTreeMap<String, Attempt>,
}

/// A run, with its answers where mlx-lm could do it.
#[derive(Deserialize)]
struct Attempt {
    ok: bool,
    tokens: Option<Answers>,
    min_margin: Option<f32>,
}

/// Reads either form.
///
/// # Errors
/// It is malformed, or lacks an array that belongs to it.
pub(super) fn goldens(json: &[u8], arrays: &SafeTensors<'_>) -> Result<Goldens> {
    let value: serde_json::Value = serde_json::from_slice(json)?;
    if value.get("greedy").is_some() {
        return Ok(serde_json::from_value(value)?);
    }
    let Complete { prompts, mut runs } = serde_json::from_value(value)?;
    let mut greedy = BTreeMap::new();
    for (name, prompt) in prompts {
        let margins =
            rows(arrays, &format!("logprobs_greedy_{name}"))?.iter().map(|row| margin(row)).collect();
        let answer = runs.remove(&format!("greedy_{name}")).and_then(|run| run.tokens);
        let Some(Answers::One(tokens)) = answer else {
            return Err(format!("no greedy answer to prompt: {name}").into());
        };
        greedy.insert(name, Greedy { prompt, tokens, margins });
    }
    let kept =
        runs.into_iter().filter(|(name, run)| run.ok && KEPT.iter().any(|kept| name.starts_with(kept)));
    let run = |(name, run): (String, Attempt)| {
        run.tokens.map(|tokens| (name, Run { tokens, min_margin: run.min_margin }))
    };
    Ok(Goldens { greedy, runs: kept.filter_map(run).collect() })
}

/// Names under which the log-probabilities of a run may be stored.
pub(super) fn array(run: &str) -> Vec<String> {
    let short = run.strip_prefix("rotating16_keep4_").map(|prompt| format!("logprobs_rot16keep4_{prompt}"));
    std::iter::once(format!("logprobs_{run}")).chain(short).collect()
}

/// Distance between the two best of a row.
fn margin(row: &[f32]) -> f32 {
    let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &value in row {
        if value > best {
            (best, second) = (value, best);
        } else if value > second {
            second = value;
        }
    }
    best - second
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::{Dtype, tensor::TensorView};

    const TRIMMED: &str = r#"{"greedy": {"p7": {"prompt": [1], "tokens": [2], "margins": [0.5]}}}"#;
    const COMPLETE: &str = r#"{"prompts": {"p7": [1]}, "runs": {
        "greedy_p7": {"ok": true, "tokens": [2], "min_margin": 0.5},
        "greedy_p7_prefill5": {"ok": true, "tokens": [2]},
        "trim5_rollback": {"ok": true},
        "kvq8g32_start0_p7": {"ok": true, "tokens": [2], "min_margin": 0.25},
        "kvq4g32_start0_p7": {"ok": false, "error": "NotImplementedError"},
        "batchgen_4rows": {"ok": true, "tokens": {"p7": [2]}}}}"#;

    /// Arrays with the log-probabilities of one token: the best two are half apart.
    fn read(json: &str) -> Goldens {
        let bytes: Vec<u8> = [-2.0f32, -0.5, -1.0].iter().flat_map(|it| it.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![1, 3], &bytes).unwrap();
        let file = safetensors::serialize([("logprobs_greedy_p7", view)], None).unwrap();
        goldens(json.as_bytes(), &SafeTensors::deserialize(&file).unwrap()).unwrap()
    }

    #[test]
    fn both_forms_say_the_same() {
        for json in [TRIMMED, COMPLETE] {
            let greedy = &read(json).greedy["p7"];
            assert_eq!((&greedy.prompt[..], &greedy.tokens[..]), (&[1][..], &[2][..]));
            assert_eq!(greedy.margins, [0.5]);
        }
    }

    #[test]
    fn of_the_complete_form_what_is_checked_stays() {
        assert!(read(TRIMMED).runs.is_empty());
        let runs = read(COMPLETE).runs;
        assert_eq!(runs.keys().collect::<Vec<_>>(), ["batchgen_4rows", "kvq8g32_start0_p7"]);
        assert_eq!(runs["kvq8g32_start0_p7"].min_margin, Some(0.25));
    }

    #[test]
    fn rings_have_two_names() {
        assert_eq!(
            array("rotating16_keep4_p40"),
            ["logprobs_rotating16_keep4_p40", "logprobs_rot16keep4_p40"]
        );
        assert_eq!(array("kvq8g64_start0_p24"), ["logprobs_kvq8g64_start0_p24"]);
    }
}
