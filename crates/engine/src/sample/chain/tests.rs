//! The chain against its text, taken literally: everything sorted, nothing left out, masks instead of lists.

use super::*;
use proptest::prelude::*;
use tandem_contracts::sampling::{Penalty, Xtc};

/// Which tokens are left, and their order.
struct Naive {
    distance: Vec<f32>,
    order: Vec<usize>,
    keep: Vec<bool>,
}

impl Naive {
    fn new(logits: &[f32]) -> Self {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // A stable sort keeps equal logits in the order of their ids.
        order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).expect("numbers"));
        let best = logits[order[0]];
        let distance: Vec<f32> = logits.iter().map(|logit| logit - best).collect();
        let keep = distance.iter().map(|&distance| distance > f32::NEG_INFINITY).collect();
        Self { distance, order, keep }
    }

    fn left(&self) -> Vec<usize> {
        self.order.iter().copied().filter(|&id| self.keep[id]).collect()
    }

    /// Weight of each token that is left, relative to the first of them at a temperature.
    fn weights(&self, temperature: f32) -> Vec<(usize, f32)> {
        let left = self.left();
        let weight = |&id: &usize| (id, ((self.distance[id] - self.distance[left[0]]) / temperature).exp());
        left.iter().map(weight).collect()
    }

    fn mass(weights: &[(usize, f32)]) -> f32 {
        weights.iter().fold(0.0, |sum, (_, weight)| sum + weight)
    }

    /// Keeps tokens, in the order given, while the mass before them is below a share of all.
    fn keep_share(&mut self, in_order: &[(usize, f32)], total: f32, share: f32) {
        let mut before = 0.0_f32;
        for &(id, weight) in in_order {
            self.keep[id] = before < share * total;
            before += weight;
        }
    }

    fn top_p(&mut self, share: f32) {
        let weights = self.weights(1.0);
        let total = Self::mass(&weights);
        self.keep_share(&weights, total, share);
    }

    fn typical_p(&mut self, share: f32) {
        let mut weights = self.weights(1.0);
        let total = Self::mass(&weights);
        let first = self.distance[weights[0].0];
        let surprise = |id: usize| total.ln() - (self.distance[id] - first);
        let entropy = weights.iter().fold(0.0_f32, |sum, &(id, weight)| sum + weight / total * surprise(id));
        let shift = |id: usize| (surprise(id) - entropy).abs();
        weights.sort_by(|a, b| shift(a.0).partial_cmp(&shift(b.0)).expect("numbers"));
        self.keep_share(&weights, total, share);
    }

    fn exclude(&mut self, xtc: &Xtc) {
        let weights = self.weights(1.0);
        let total = Self::mass(&weights);
        let above = weights.iter().filter(|(_, weight)| weight / total > xtc.threshold);
        let least = above.map(|&(_, weight)| weight).fold(f32::INFINITY, f32::min);
        for (id, weight) in weights {
            self.keep[id] &= weight <= least || xtc.spared.contains(&(id as TokenId));
        }
    }

    fn draw(&self, temperature: f32, uniform: f32) -> Option<TokenId> {
        let weights = self.weights(temperature);
        let total = Self::mass(&weights);
        let mut sum = 0.0_f32;
        let exceeds = |&(_, weight): &(usize, f32)| {
            sum += weight;
            sum > uniform * total
        };
        weights.into_iter().find(exceeds).map(|(id, _)| id as TokenId)
    }
}

fn naive(logits: &[f32], sampling: &Sampling, [drawn, struck]: [f32; 2]) -> Option<TokenId> {
    let mut all = Naive::new(logits);
    if sampling.temperature == 0.0 {
        return all.order.first().map(|&id| id as TokenId);
    }
    if sampling.top_p != 1.0 {
        all.top_p(sampling.top_p);
    }
    for id in 0..logits.len() {
        all.keep[id] &= sampling.min_p == 0.0 || all.distance[id] >= sampling.min_p.ln();
    }
    if sampling.typical_p != 1.0 {
        all.typical_p(sampling.typical_p);
    }
    if struck < sampling.xtc.probability {
        all.exclude(&sampling.xtc);
    }
    for (rank, id) in all.left().into_iter().enumerate() {
        all.keep[id] = sampling.top_k == 0 || rank < sampling.top_k as usize;
    }
    all.draw(sampling.temperature, drawn)
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        6 => -30.0_f32..10.0,
        3 => (-4_i8..4).prop_map(f32::from),
        1 => Just(f32::NEG_INFINITY),
        1 => prop_oneof![Just(0.0), Just(-0.0)],
    ];
    (prop::collection::vec(logit, 1..120), any::<prop::sample::Index>()).prop_map(|(mut logits, index)| {
        let one = index.index(logits.len());
        logits[one] = logits[one].max(-20.0);
        logits
    })
}

fn parameters() -> impl Strategy<Value = Sampling> {
    let temperature = prop_oneof![Just(0.0_f32), Just(1.0), 1e-6_f32..100.0, 0.1_f32..2.0];
    let share = || prop_oneof![2 => Just(1.0_f32), 1 => Just(0.999_999_94), 3 => 1e-6_f32..1.0];
    let min_p = prop_oneof![Just(0.0_f32), Just(1.0), 0.0_f32..1.0, 0.0_f32..0.01];
    let top_k = prop_oneof![Just(0_u32), 1_u32..130];
    let bias = prop::collection::vec((0_u32..140, -100.0_f32..100.0), 0..3);
    let xtc = (
        prop_oneof![2 => Just(0.0_f32), 1 => Just(1.0), 1 => 0.0_f32..1.0],
        prop_oneof![Just(0.0_f32), 0.0_f32..0.5, 0.0_f32..1e-4],
        prop::collection::vec(0_u32..120, 0..4),
    );
    let xtc = xtc.prop_map(|(probability, threshold, spared)| Xtc {
        probability,
        threshold,
        spared: spared.into(),
    });
    (temperature, (share(), share()), min_p, top_k, any::<u64>(), bias, xtc).prop_map(
        |(temperature, (top_p, typical_p), min_p, top_k, seed, logit_bias, xtc)| Sampling {
            temperature,
            top_p,
            min_p,
            typical_p,
            xtc,
            top_k,
            logit_bias,
            seed,
            ..Sampling::default()
        },
    )
}

/// The choice number `index` of a row without a history.
fn chosen(logits: &[f32], sampling: &Sampling, index: u64) -> Result<TokenId, NoChoice> {
    let wish = Wish::Choose { sampling, history: &[], index, allowed: None };
    choose(&mut logits.to_vec(), &Draw { wish, scored: None, after: None }).map(|chosen| chosen.token)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_naive_chain(logits in logits(), sampling in parameters(), index in 0_u64..1_000) {
        let mut biased = logits.clone();
        for &(token, bias) in &sampling.logit_bias {
            if let Some(logit) = biased.get_mut(token as usize) {
                *logit += bias;
            }
        }
        let numbers = [Purpose::Draw, Purpose::Exclude].map(|purpose| uniform(sampling.seed, index, purpose));
        prop_assert_eq!(chosen(&logits, &sampling, index).ok(), naive(&biased, &sampling, numbers));
    }

    #[test]
    fn the_extremes_of_the_generator_are_drawn_like_the_rest(
        logits in logits(),
        sampling in parameters(),
        extremes in any::<[bool; 2]>(),
    ) {
        let numbers = extremes.map(|highest| if highest { 1.0 - 1.0 / 16_777_216.0 } else { 0.0 });
        let temperature = if sampling.is_greedy() { 0.5 } else { sampling.temperature };
        let sampling = Sampling { temperature, ..sampling };
        let best = maximum(&logits).expect("numbers");
        prop_assert_eq!(sample(&logits, best, &sampling, numbers), naive(&logits, &sampling, numbers));
    }
}

#[test]
fn temperature_comes_after_the_filters() {
    // At temperature 100 both tokens would be near one half; top-p has dropped the second before.
    let sampling = Sampling { temperature: 100.0, top_p: 0.8, ..Sampling::default() };
    assert!((0..200).all(|index| chosen(&[2.0, 0.0], &sampling, index) == Ok(0)));
}

#[test]
fn a_first_choice_that_is_excluded_leaves_the_rest_whole_at_any_temperature() {
    // Without the first token, whose weight at this temperature is all there is, the second one has all.
    let xtc = Xtc { probability: 1.0, threshold: 0.1, ..Xtc::default() };
    let sampling = Sampling { temperature: 1e-3, xtc, ..Sampling::default() };
    assert!((0..200).all(|index| chosen(&[2.0, 1.0, -5.0], &sampling, index) == Ok(1)));
}

#[test]
fn xtc_strikes_as_often_as_it_is_told() {
    let xtc = Xtc { probability: 0.25, threshold: 0.1, ..Xtc::default() };
    // At this temperature the first token is always drawn where it is there.
    let sampling = Sampling { temperature: 1e-3, xtc, ..Sampling::default() };
    let struck = (0..10_000).filter(|&index| chosen(&[2.0, 1.0], &sampling, index) == Ok(1)).count() as i64;
    // Standard deviation 43.
    assert!((struck - 2_500).abs() < 220, "{struck}");
}

#[test]
fn frequencies_follow_the_distribution() {
    // Probabilities 1/7, 2/7, 4/7.
    let logits = [0.0, 2.0_f32.ln(), 4.0_f32.ln()];
    let mut counts = [0_i64; 3];
    for index in 0..70_000 {
        counts[chosen(&logits, &Sampling::default(), index).expect("numbers") as usize] += 1;
    }
    // Standard deviations are below 132.
    let expected = [10_000, 20_000, 40_000];
    assert!(counts.iter().zip(expected).all(|(count, mean)| (count - mean).abs() < 600), "{counts:?}");
}

#[test]
fn greedy_rows_take_the_best_that_processors_leave() {
    let presence = Penalty { amount: 2.0, context: 20 };
    let sampling = Sampling { presence, top_p: 0.1, ..Sampling::greedy() };
    let choose = |history: &[TokenId], allowed| {
        let wish = Wish::Choose { sampling: &sampling, history, index: 0, allowed };
        let chosen = choose(&mut [3.0, 2.0, 2.0, -1.0], &Draw { wish, scored: Some(2), after: None })?;
        let top: Vec<TokenId> = chosen.score.iter().flat_map(|score| &score.top).map(|it| it.0).collect();
        Ok((chosen.token, top))
    };
    assert_eq!(choose(&[], None), Ok((0, vec![0, 1])));
    assert_eq!(choose(&[0, 1], None), Ok((2, vec![2, 0])));
    // Ids 1 and 3 are allowed.
    assert_eq!(choose(&[0], Some(&[0b1010])), Ok((1, vec![1, 3])));
    assert_eq!(choose(&[0], Some(&[])), Err(NoChoice::NotNumbers));
}

#[test]
fn a_known_token_is_scored_by_the_logits_as_they_are() {
    let draw = Draw { wish: Wish::Known(1), scored: Some(1), after: None };
    let scored = choose(&mut [2.0_f32.ln(), 1.0_f32.ln(), 1.0_f32.ln()], &draw).expect("numbers");
    let score = scored.score.expect("a score");
    assert_eq!((scored.token, score.top[0].0), (1, 0));
    assert!((score.log_probability - 0.25_f32.ln()).abs() < 1e-6);
    assert!((score.top[0].1 - 0.5_f32.ln()).abs() < 1e-6);
}

#[test]
fn a_logit_counts_wherever_it_stands() {
    for (length, place) in (1..70).flat_map(|length| (0..length).map(move |place| (length, place))) {
        let with = |logit: f32, other: f32| {
            let mut logits = vec![other; length];
            logits[place] = logit;
            chosen(&logits, &Sampling::greedy(), 0)
        };
        assert_eq!(with(1.5, 1.0), Ok(place as TokenId));
        // Of equals the first.
        assert_eq!(with(1.0, 1.0), Ok(0));
        assert_eq!(with(f32::NAN, 1.0), Err(NoChoice::NotNumbers));
        assert_eq!(with(f32::INFINITY, 1.0), Err(NoChoice::NotNumbers));
    }
}

#[test]
fn logits_without_a_choice_are_refused() {
    for bad in [vec![0.0, f32::NAN], vec![f32::INFINITY, 0.0], vec![f32::NEG_INFINITY; 3], vec![]] {
        assert_eq!(chosen(&bad, &Sampling::greedy(), 0), Err(NoChoice::NotNumbers), "{bad:?}");
        assert_eq!(chosen(&bad, &Sampling::default(), 0), Err(NoChoice::NotNumbers), "{bad:?}");
    }
}
