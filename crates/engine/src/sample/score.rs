//! Log-probabilities of tokens.
//!
//! They are those of the model's logits after bias, penalties and mask, before filters and temperature, as mlx-lm
//! gives them. Invariant: a score depends on the row's logits alone; the sum runs in f64 in the order of ids.

use super::candidate::ordered;
use tandem_contracts::{request::Score, text::TokenId};

/// The log-probability of a token, and the `top` most likely ones with theirs. `best` is the largest logit.
pub(super) fn score(logits: &[f32], best: f32, token: TokenId, top: usize) -> Score {
    let distance = |logit: f32| f64::from(logit) - f64::from(best);
    let total = logits.iter().map(|&logit| distance(logit).exp()).sum::<f64>().ln();
    let log_probability = |token: TokenId| {
        logits.get(token as usize).map_or(f32::NEG_INFINITY, |&logit| (distance(logit) - total) as f32)
    };
    let likely = if top == 0 { Vec::new() } else { ordered(logits, best, f32::NEG_INFINITY, top) };
    Score {
        log_probability: log_probability(token),
        top: likely.iter().map(|it| (it.token(), log_probability(it.token()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_by_hand() {
        // Probabilities 1/8, 1/2, 1/4, 1/8 and 0, whatever is added to the logits.
        for shift in [0.0, 30.0, -200.0_f32] {
            let logits = [1.0_f32, 4.0, 2.0, 1.0].map(|weight| weight.ln() + shift);
            let logits = [&logits[..], &[f32::NEG_INFINITY]].concat();
            let scored = score(&logits, logits[1], 2, 3);
            // Logits near 200 are spaced 1.5e-5 apart.
            let near = |found: f32, probability: f32| (found - probability.ln()).abs() < 2e-5;
            assert!(near(scored.log_probability, 0.25), "{scored:?}");
            let ids: Vec<TokenId> = scored.top.iter().map(|&(token, _)| token).collect();
            assert_eq!(ids, [1, 2, 0]);
            assert!(near(scored.top[0].1, 0.5) && scored.top[1].1 == scored.log_probability);
            assert_eq!(score(&logits, logits[1], 4, 9).log_probability, f32::NEG_INFINITY);
            assert_eq!(score(&logits, logits[1], 4, 9).top.len(), 4);
            assert_eq!(score(&logits, logits[1], 1, 0).top, []);
        }
    }
}
