//! The filters of the chain, each over the tokens that the one before it left, in the chain's order.
//!
//! Every sum runs in f32 in that order, over weights relative to the first token that is left:
//!
//! - top-p keeps a token while the mass of those before it is below `top_p`, as mlx-lm's `apply_top_p` does;
//! - min-p keeps tokens whose log-probability is at most `ln(min_p)` away from the best one's;
//! - typical-p orders tokens by how far their surprise is from the entropy of all that are left, and keeps a token
//!   while the mass of those before it is below `typical_p` (Meister and others 2023, section 4);
//! - XTC keeps, of the tokens above its threshold, those of the least probability among them, as mlx-lm's
//!   `apply_xtc` does;
//! - top-k keeps the first tokens.
//!
//! Invariant: a filter leaves the order as it is, and at least one token.

use super::candidate::Candidate;
use tandem_contracts::sampling::{Sampling, Xtc};

/// Weights of tokens relative to the first one, and their sum.
fn weights(tokens: &[Candidate]) -> (Vec<f32>, f32) {
    let first = tokens.first().map_or(0.0, |token| token.distance());
    let weights: Vec<f32> = tokens.iter().map(|token| (token.distance() - first).exp()).collect();
    let total = weights.iter().sum();
    (weights, total)
}

/// Applies all filters that are on; `exclude` is whether XTC strikes this time.
pub(super) fn apply(tokens: &mut Vec<Candidate>, sampling: &Sampling, exclude: bool) {
    if sampling.top_p < 1.0 {
        top_p(tokens, sampling.top_p);
    }
    if sampling.min_p > 0.0 {
        let floor = sampling.min_p.ln();
        tokens.truncate(tokens.partition_point(|token| token.distance() >= floor));
    }
    if sampling.typical_p < 1.0 {
        typical_p(tokens, sampling.typical_p);
    }
    if exclude {
        exclude_top_choices(tokens, &sampling.xtc);
    }
    if sampling.top_k > 0 {
        tokens.truncate(sampling.top_k as usize);
    }
}

fn top_p(tokens: &mut Vec<Candidate>, share: f32) {
    let (weights, total) = weights(tokens);
    let limit = share * total;
    let mut before = 0.0;
    let kept = weights.iter().take_while(|&&weight| {
        let keep = before < limit;
        before += weight;
        keep
    });
    let kept = kept.count();
    tokens.truncate(kept);
}

fn typical_p(tokens: &mut Vec<Candidate>, share: f32) {
    let (weights, total) = weights(tokens);
    let first = tokens.first().map_or(0.0, |token| token.distance());
    let surprise = |token: &Candidate| total.ln() - (token.distance() - first);
    let terms = tokens.iter().zip(&weights).map(|(token, weight)| weight / total * surprise(token));
    let entropy: f32 = terms.sum();
    let mut order: Vec<(f32, usize)> =
        tokens.iter().map(|token| (surprise(token) - entropy).abs()).zip(0..).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let limit = share * total;
    let mut before = 0.0;
    let mut kept = vec![false; tokens.len()];
    for (_, index) in order {
        if before >= limit {
            break;
        }
        kept[index] = true;
        before += weights[index];
    }
    let mut kept = kept.into_iter();
    tokens.retain(|_| kept.next() == Some(true));
}

fn exclude_top_choices(tokens: &mut Vec<Candidate>, xtc: &Xtc) {
    let (weights, total) = weights(tokens);
    let above = weights.iter().take_while(|&&weight| weight / total > xtc.threshold).count();
    let Some(last) = above.checked_sub(1) else { return };
    let mut weights = weights.iter();
    let least = weights.as_slice()[last];
    tokens.retain(|token| {
        let stays = weights.next().is_none_or(|&weight| weight <= least);
        stays || xtc.spared.contains(&token.token())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::candidate::ordered;
    use tandem_contracts::text::TokenId;

    /// Probabilities 0.5, 0.25, 0.125, 0.125, in the order of ids 2, 0, 1, 3.
    fn left(sampling: &Sampling, exclude: bool) -> Vec<TokenId> {
        let logits = [0.25_f32.ln(), 0.125_f32.ln(), 0.5_f32.ln(), 0.125_f32.ln()];
        let mut tokens = ordered(&logits, 0.5_f32.ln(), f32::NEG_INFINITY, 0);
        apply(&mut tokens, sampling, exclude);
        tokens.iter().map(|token| token.token()).collect()
    }

    #[test]
    fn prefixes_by_hand() {
        let plain = Sampling::default();
        assert_eq!(left(&plain, false), [2, 0, 1, 3]);
        assert_eq!(left(&Sampling { top_p: 0.5, ..plain.clone() }, false), [2]);
        assert_eq!(left(&Sampling { top_p: 0.51, ..plain.clone() }, false), [2, 0]);
        assert_eq!(left(&Sampling { top_p: 0.9, ..plain.clone() }, false), [2, 0, 1, 3]);
        assert_eq!(left(&Sampling { min_p: 0.4, ..plain.clone() }, false), [2, 0]);
        assert_eq!(left(&Sampling { top_k: 3, ..plain.clone() }, false), [2, 0, 1]);
        assert_eq!(left(&Sampling { top_p: 0.8, top_k: 1, ..plain }, false), [2]);
    }

    #[test]
    fn typical_tokens_are_those_whose_surprise_is_the_entropy() {
        // Surprises in bits 1, 2, 3, 3; entropy 0.5 + 0.5 + 0.375 + 0.375 = 1.75. Distances 0.75, 0.25, 1.25, 1.25:
        // token 0 first, then token 2, then 1 and 3.
        let typical = |typical_p| Sampling { typical_p, ..Sampling::default() };
        assert_eq!(left(&typical(0.2), false), [0]);
        assert_eq!(left(&typical(0.26), false), [2, 0]);
        assert_eq!(left(&typical(0.76), false), [2, 0, 1]);
        assert_eq!(left(&typical(0.9), false), [2, 0, 1, 3]);
        // Top-p has left 2 and 0, of probabilities 2/3 and 1/3: entropy 0.918 bits, surprises 0.585 and 1.585.
        assert_eq!(left(&Sampling { top_p: 0.7, ..typical(0.5) }, false), [2]);
    }

    #[test]
    fn top_choices_go_but_for_the_least_likely_ones() {
        let xtc = |threshold, spared: &[TokenId]| Sampling {
            xtc: Xtc { probability: 1.0, threshold, spared: spared.into() },
            ..Sampling::default()
        };
        assert_eq!(left(&xtc(0.2, &[]), true), [0, 1, 3]);
        assert_eq!(left(&xtc(0.2, &[]), false), [2, 0, 1, 3]);
        // One token above the threshold, and none.
        assert_eq!(left(&xtc(0.3, &[]), true), [2, 0, 1, 3]);
        assert_eq!(left(&xtc(0.5, &[]), true), [2, 0, 1, 3]);
        // Those that share the least probability stay together.
        assert_eq!(left(&xtc(0.1, &[]), true), [1, 3]);
        assert_eq!(left(&xtc(0.1, &[2, 9]), true), [2, 1, 3]);
        // Top-k counts what is left; top-p comes before, and what it leaves makes up the whole: 2/3 and 1/3.
        assert_eq!(left(&Sampling { top_k: 1, ..xtc(0.2, &[]) }, true), [0]);
        assert_eq!(left(&Sampling { top_p: 0.7, ..xtc(0.3, &[]) }, true), [0]);
    }
}
