//! One row's choice, from its logits to a token.
//!
//! The order is: processors (bias, penalties, mask), then over the probabilities that they give top-p, min-p,
//! typical-p, XTC and top-k, division by the temperature, categorical. Greedy rows take the largest logit after the
//! processors. The draw takes the first token, by descending logit with ties by ascending id, whose cumulative weight
//! exceeds the uniform number times the total; sums run in f32 in that order.
//!
//! A weight below 2^-24 of the best token's changes no f32 sum that begins with the best one. Where nothing else asks
//! for them, tokens of such weights are left out from the start, exactly.

use super::{
    candidate::{Candidate, ordered},
    filter,
    processor::{Allowed, process},
    score::score,
    uniform::{Purpose, uniform},
};
use tandem_contracts::{request::Score, sampling::Sampling, text::TokenId};

/// `e^-16.64 < 2^-24`: what lies so far below the best token changes no sum.
const NEGLIGIBLE: f32 = -16.64;

/// Logits that are looked at together: enough for the widest vectors that the compiler makes of such loops.
const LANES: usize = 16;

/// What one row of logits is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) wish: Wish<'a>,
    /// How many likely tokens the token's log-probability comes with; `None` asks for no log-probability.
    pub(crate) scored: Option<usize>,
    /// The token that the draw before must have chosen; otherwise this one means nothing.
    pub(crate) after: Option<TokenId>,
}

/// Where a token comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish<'a> {
    /// It is chosen.
    Choose {
        sampling: &'a Sampling,
        /// The row's tokens so far, its prompt's first.
        history: &'a [TokenId],
        /// How many of them have been chosen.
        index: u64,
        /// What may be chosen, as far as a grammar has a say.
        allowed: Option<Allowed<'a>>,
    },
    /// It is known, and the model is asked what it thinks of it: nothing changes its logits.
    Known(TokenId),
}

/// A row's token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) token: TokenId,
    pub(crate) score: Option<Score>,
}

/// Why logits choose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// One is NaN or positive infinity, or all are negative infinity.
    NotNumbers,
    /// They follow a draft that was not chosen.
    Passed,
}

/// Chooses a row's token from its logits, which the processors change in place.
pub(super) fn choose(logits: &mut [f32], draw: &Draw<'_>) -> Result<Chosen, NoChoice> {
    if let Wish::Choose { sampling, history, allowed, .. } = draw.wish {
        process(logits, sampling, history, allowed);
    }
    let best = maximum(logits)?;
    let token = match draw.wish {
        Wish::Known(token) => token,
        Wish::Choose { sampling, .. } if sampling.is_greedy() => {
            first(logits, best).map(|id| id as TokenId).ok_or(NoChoice::NotNumbers)?
        }
        Wish::Choose { sampling, index, .. } => {
            let numbers =
                [Purpose::Draw, Purpose::Exclude].map(|purpose| uniform(sampling.seed, index, purpose));
            sample(logits, best, sampling, numbers).ok_or(NoChoice::NotNumbers)?
        }
    };
    Ok(Chosen { token, score: draw.scored.map(|top| score(logits, best, token, top)) })
}

/// Whether a maximum is one that a token can be chosen by.
pub(super) fn is_choosable(maximum: f32) -> bool {
    maximum.is_finite()
}

/// The largest logit. Each of [`LANES`] places has a maximum of its own until the end, as the largest is the same in any order.
fn maximum(logits: &[f32]) -> Result<f32, NoChoice> {
    let (blocks, rest) = logits.as_chunks::<LANES>();
    let (mut best, mut strange) = ([f32::NEG_INFINITY; LANES], [false; LANES]);
    for block in blocks {
        for ((best, strange), &logit) in best.iter_mut().zip(&mut strange).zip(block) {
            // A comparison passes over NaN, so NaN is looked for by itself.
            *best = if logit > *best { logit } else { *best };
            *strange |= logit.is_nan();
        }
    }
    let best = best.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let strange = strange.contains(&true) || rest.iter().any(|logit| logit.is_nan());
    if is_choosable(best) && !strange { Ok(best) } else { Err(NoChoice::NotNumbers) }
}

/// The first place of a logit.
fn first(logits: &[f32], logit: f32) -> Option<usize> {
    let holds = |block: &[f32]| block.iter().fold(false, |found, other| found | (*other == logit));
    let block = logits.chunks(LANES).position(holds)?;
    let place = logits[block * LANES..].iter().position(|other| *other == logit)?;
    Some(block * LANES + place)
}

/// Filters and draws, given the uniform numbers of the draw and of XTC.
fn sample(logits: &[f32], best: f32, sampling: &Sampling, [drawn, struck]: [f32; 2]) -> Option<TokenId> {
    let exclude = struck < sampling.xtc.probability;
    let first = match sampling.top_p < 1.0 || sampling.typical_p < 1.0 || exclude {
        true => 0,
        false => sampling.top_k as usize,
    };
    let mut tokens = ordered(logits, best, floor(sampling, exclude), first);
    filter::apply(&mut tokens, sampling, exclude);
    draw(&tokens, sampling.temperature, drawn)
}

/// How far below the best one a token may be for the filters and the draw to look at it.
fn floor(sampling: &Sampling, exclude: bool) -> f32 {
    let least = sampling.min_p.ln();
    if sampling.top_p < 1.0 {
        // It measures the mass of all tokens, before min-p, and keeps none that adds nothing to it.
        NEGLIGIBLE
    } else if sampling.typical_p < 1.0 {
        // What has no weight in a mass may still have one in the entropy.
        least
    } else if exclude {
        // The first token that is left is above the threshold.
        NEGLIGIBLE.min(sampling.xtc.threshold.ln() + NEGLIGIBLE * sampling.temperature).max(least)
    } else {
        (NEGLIGIBLE * sampling.temperature).max(least)
    }
}

/// Inverse distribution over the tokens that are left.
fn draw(tokens: &[Candidate], temperature: f32, uniform: f32) -> Option<TokenId> {
    let first = tokens.first()?.distance();
    let mut total = 0.0_f32;
    let cumulative: Vec<f32> = tokens
        .iter()
        .map(|token| {
            total += ((token.distance() - first) / temperature).exp();
            total
        })
        .collect();
    let threshold = uniform * total;
    // The largest uniform number times the total still rounds to below the total, so one exceeds it.
    let chosen = cumulative.partition_point(|&mass| mass <= threshold);
    tokens.get(chosen).map(|token| token.token())
}

#[cfg(test)]
mod tests;
