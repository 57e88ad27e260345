//! One row's choice: bias, filters, temperature, draw.
//!
//! The order is: logit bias, log-softmax, top-p, min-p, top-k, division by the temperature, categorical. Every
//! filter keeps a prefix of one order, by descending logit with ties by ascending id, and every sum runs in f32 in
//! that order:
//!
//! - top-p keeps a token while the mass of those before it is below `top_p`, which is the ascending cumulative
//!   probability above `1 - top_p` of mlx-lm's `apply_top_p`, the token itself included;
//! - min-p keeps tokens whose log-probability is at most `ln(min_p)` away from the best one's;
//! - the draw takes the first token whose cumulative weight exceeds the uniform number times the total.
//!
//! Weights are relative to the best token's, so the first is 1 and a weight below 2^-24 changes no f32 sum. Such
//! tokens can never be drawn and are left out from the start, exactly.

use super::uniform::uniform;
use tandem_contracts::{sampling::Sampling, text::TokenId};

/// `e^-16.64 < 2^-24`: what lies so far below the best token changes no sum.
const NEGLIGIBLE: f32 = -16.64;

/// The logits choose nothing: one is NaN or positive infinity, or all are negative infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotNumbers;

/// Chooses a row's token number `index` (from 0) from its logits, to which the bias is added in place.
pub(super) fn choose(logits: &mut [f32], sampling: &Sampling, index: u64) -> Result<TokenId, NotNumbers> {
    for &(token, bias) in &sampling.logit_bias {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit += bias;
        }
    }
    let best = maximum(logits)?;
    if sampling.is_greedy() {
        return logits.iter().position(|&logit| logit == best).map(|id| id as TokenId).ok_or(NotNumbers);
    }
    let mut tokens = candidates(logits, best, sampling);
    tokens.truncate(kept(&tokens, sampling));
    draw(&tokens, sampling.temperature, uniform(sampling.seed, index)).ok_or(NotNumbers)
}

/// Whether a maximum is one that a token can be chosen by.
pub(super) fn is_choosable(maximum: f32) -> bool {
    maximum.is_finite()
}

fn maximum(logits: &[f32]) -> Result<f32, NotNumbers> {
    // `f32::max` passes over NaN, so NaN is looked for by itself.
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if is_choosable(best) && !logits.iter().any(|logit| logit.is_nan()) { Ok(best) } else { Err(NotNumbers) }
}

/// A token and how far its logit is below the best one, packed so that ascending integers are the chain's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate(u64);

impl Candidate {
    fn new(distance: f32, token: TokenId) -> Self {
        // The bits of non-negative floats ascend with their values; the absolute value also unsigns zero.
        Self(u64::from(distance.abs().to_bits()) << 32 | u64::from(token))
    }

    /// At most 0.
    fn distance(self) -> f32 {
        -f32::from_bits((self.0 >> 32) as u32)
    }

    fn token(self) -> TokenId {
        self.0 as TokenId
    }
}

/// The tokens that the filters and the draw need to look at, in order.
fn candidates(logits: &[f32], best: f32, sampling: &Sampling) -> Vec<Candidate> {
    // Top-p measures mass at temperature 1, and what adds none it does not keep.
    let by_mass = sampling.top_p < 1.0;
    let floor =
        if by_mass { NEGLIGIBLE } else { (NEGLIGIBLE * sampling.temperature).max(sampling.min_p.ln()) };
    let mut tokens: Vec<Candidate> = (0..)
        .zip(logits)
        .map(|(token, &logit)| (token, logit - best))
        .filter(|&(_, distance)| distance >= floor)
        .map(|(token, distance)| Candidate::new(distance, token))
        .collect();
    let first = sampling.top_k as usize;
    if !by_mass && first > 0 && first < tokens.len() {
        tokens.select_nth_unstable(first - 1);
        tokens.truncate(first);
    }
    tokens.sort_unstable();
    tokens
}

/// How many of the tokens the filters keep; at least one of any.
fn kept(tokens: &[Candidate], sampling: &Sampling) -> usize {
    let mut count = tokens.len();
    if sampling.top_p < 1.0 {
        let weights: Vec<f32> = tokens.iter().map(|token| token.distance().exp()).collect();
        let limit = sampling.top_p * weights.iter().sum::<f32>();
        let mut before = 0.0;
        count = weights
            .iter()
            .take_while(|&&weight| {
                let keep = before < limit;
                before += weight;
                keep
            })
            .count();
    }
    if sampling.min_p > 0.0 {
        let floor = sampling.min_p.ln();
        count = count.min(tokens.partition_point(|token| token.distance() >= floor));
    }
    if sampling.top_k > 0 {
        count = count.min(sampling.top_k as usize);
    }
    count
}

/// Inverse distribution over the kept tokens.
fn draw(tokens: &[Candidate], temperature: f32, uniform: f32) -> Option<TokenId> {
    let mut total = 0.0_f32;
    let cumulative: Vec<f32> = tokens
        .iter()
        .map(|token| {
            total += (token.distance() / temperature).exp();
            total
        })
        .collect();
    let threshold = uniform * total;
    // The largest uniform number times the total still rounds to below the total, so one exceeds it.
    let chosen = cumulative.partition_point(|&mass| mass <= threshold);
    tokens.get(chosen).map(|token| token.token())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The chain as its text says it: everything sorted, nothing left out, masks instead of prefixes.
    fn naive(logits: &[f32], sampling: &Sampling, uniform: f32) -> Option<TokenId> {
        let mut biased = logits.to_vec();
        for &(token, bias) in &sampling.logit_bias {
            if let Some(logit) = biased.get_mut(token as usize) {
                *logit += bias;
            }
        }
        let mut order: Vec<usize> = (0..biased.len()).collect();
        // A stable sort keeps equal logits in the order of their ids.
        order.sort_by(|&a, &b| biased[b].partial_cmp(&biased[a]).expect("numbers"));
        let best = biased[order[0]];
        if sampling.temperature == 0.0 {
            return Some(order[0] as TokenId);
        }
        let distance = |id: usize| biased[id] - best;
        let mut mass = 0.0_f32;
        order.iter().for_each(|&id| mass += distance(id).exp());
        let mut keep = vec![true; biased.len()];
        if sampling.top_p != 1.0 {
            let mut before = 0.0_f32;
            for &id in &order {
                keep[id] &= before < sampling.top_p * mass;
                before += distance(id).exp();
            }
        }
        for (rank, &id) in order.iter().enumerate() {
            keep[id] &= sampling.min_p == 0.0 || distance(id) >= sampling.min_p.ln();
            keep[id] &= sampling.top_k == 0 || rank < sampling.top_k as usize;
        }
        order.retain(|&id| keep[id]);
        let weight = |id: usize| (distance(id) / sampling.temperature).exp();
        let mut total = 0.0_f32;
        order.iter().for_each(|&id| total += weight(id));
        let mut sum = 0.0_f32;
        order
            .into_iter()
            .find(|&id| {
                sum += weight(id);
                sum > uniform * total
            })
            .map(|id| id as TokenId)
    }

    fn logits() -> impl Strategy<Value = Vec<f32>> {
        let logit = prop_oneof![
            6 => -30.0_f32..10.0,
            3 => (-4_i8..4).prop_map(f32::from),
            1 => Just(f32::NEG_INFINITY),
            1 => prop_oneof![Just(0.0), Just(-0.0)],
        ];
        (prop::collection::vec(logit, 1..120), any::<prop::sample::Index>()).prop_map(
            |(mut logits, index)| {
                let one = index.index(logits.len());
                logits[one] = logits[one].max(-20.0);
                logits
            },
        )
    }

    fn parameters() -> impl Strategy<Value = Sampling> {
        let temperature = prop_oneof![Just(0.0_f32), Just(1.0), 1e-6_f32..100.0, 0.1_f32..2.0];
        let top_p = prop_oneof![Just(1.0_f32), Just(0.999_999_94), 1e-6_f32..1.0];
        let min_p = prop_oneof![Just(0.0_f32), Just(1.0), 0.0_f32..1.0];
        let top_k = prop_oneof![Just(0_u32), 1_u32..130];
        let bias = prop::collection::vec((0_u32..140, -100.0_f32..100.0), 0..3);
        (temperature, top_p, min_p, top_k, any::<u64>(), bias).prop_map(
            |(temperature, top_p, min_p, top_k, seed, logit_bias)| Sampling {
                temperature,
                top_p,
                top_k,
                min_p,
                seed,
                logit_bias,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn equals_the_naive_chain(logits in logits(), sampling in parameters(), index in 0_u64..1_000) {
            let expected = naive(&logits, &sampling, uniform(sampling.seed, index));
            prop_assert_eq!(choose(&mut logits.clone(), &sampling, index).ok(), expected);
        }

        #[test]
        fn the_extremes_of_the_generator_are_drawn_like_the_rest(
            logits in logits(),
            sampling in parameters(),
            highest in any::<bool>(),
        ) {
            let uniform = if highest { 1.0 - 1.0 / 16_777_216.0 } else { 0.0 };
            let temperature = if sampling.is_greedy() { 0.5 } else { sampling.temperature };
            let sampling = Sampling { temperature, logit_bias: Vec::new(), ..sampling };
            let best = maximum(&logits).expect("numbers");
            let mut tokens = candidates(&logits, best, &sampling);
            tokens.truncate(kept(&tokens, &sampling));
            let expected = naive(&logits, &sampling, uniform);
            prop_assert_eq!(draw(&tokens, temperature, uniform), expected);
        }
    }

    #[test]
    fn filters_by_hand() {
        // Probabilities 0.5, 0.25, 0.125, 0.125, in the order of ids 2, 0, 1, 3.
        let logits = [0.25_f32.ln(), 0.125_f32.ln(), 0.5_f32.ln(), 0.125_f32.ln()];
        let ids = |sampling: Sampling| {
            let mut tokens = candidates(&logits, 0.5_f32.ln(), &sampling);
            tokens.truncate(kept(&tokens, &sampling));
            tokens.iter().map(|token| token.token()).collect::<Vec<_>>()
        };
        let plain = Sampling::default();
        assert_eq!(ids(plain.clone()), [2, 0, 1, 3]);
        assert_eq!(ids(Sampling { top_p: 0.5, ..plain.clone() }), [2]);
        assert_eq!(ids(Sampling { top_p: 0.51, ..plain.clone() }), [2, 0]);
        assert_eq!(ids(Sampling { top_p: 0.9, ..plain.clone() }), [2, 0, 1, 3]);
        assert_eq!(ids(Sampling { min_p: 0.4, ..plain.clone() }), [2, 0]);
        assert_eq!(ids(Sampling { top_k: 3, ..plain.clone() }), [2, 0, 1]);
        assert_eq!(ids(Sampling { top_p: 0.8, top_k: 1, ..plain }), [2]);
    }

    #[test]
    fn temperature_comes_after_the_filters() {
        // At temperature 100 both tokens would be near one half; top-p has dropped the second before.
        let mut logits = [2.0, 0.0];
        let sampling = Sampling { temperature: 100.0, top_p: 0.8, ..Sampling::default() };
        assert!((0..200).all(|index| choose(&mut logits, &sampling, index) == Ok(0)));
    }

    #[test]
    fn frequencies_follow_the_distribution() {
        // Probabilities 1/7, 2/7, 4/7.
        let logits = [0.0, 2.0_f32.ln(), 4.0_f32.ln()];
        let mut counts = [0_i64; 3];
        for index in 0..70_000 {
            counts[choose(&mut logits.clone(), &Sampling::default(), index).expect("numbers") as usize] += 1;
        }
        // Standard deviations are below 132.
        let expected = [10_000, 20_000, 40_000];
        assert!(counts.iter().zip(expected).all(|(count, mean)| (count - mean).abs() < 600), "{counts:?}");
    }

    #[test]
    fn logits_without_a_choice_are_refused() {
        for mut bad in [vec![0.0, f32::NAN], vec![f32::INFINITY, 0.0], vec![f32::NEG_INFINITY; 3], vec![]] {
            assert_eq!(choose(&mut bad, &Sampling::greedy(), 0), Err(NotNumbers), "{bad:?}");
            assert_eq!(choose(&mut bad, &Sampling::default(), 0), Err(NotNumbers), "{bad:?}");
        }
    }
}
