//! How many proposals are worth a step's time.
//!
//! A step that reads `k` proposals of a row beside its pending token gives it `1 + p + p^2 + .. + p^k` tokens on average,
//! where `p` is the chance that a proposal is right; it costs what steps of so many tokens have cost. The best number of
//! proposals is that of the most tokens for the time, if they are more than three in a hundred better than none.
//!
//! Where several rows share a step the proposals of all of them compete: the one most likely to be right comes first.
//!
//! ```text
//!   rate(K) = tokens(K) / tokens(0) * cost(rows) / cost(rows + K)         K proposals in all
//! ```
//!
//! Costs are measured, of whole rounds, with whatever taking proposals back costs. Between two measured numbers of tokens a
//! cost lies on the line through them, beyond the last on that through the last two, and a step goes to no more than twice of
//! what was measured. What was measured long ago is measured again, and proposals that are not tried are compared with what
//! comes instead, so that speculation comes back when it pays.
//!
//! Invariant: which tokens a row gets never depends on any of this.

use std::collections::BTreeMap;

/// Least gain for which proposals are tried.
const GAIN: f64 = 1.03;

/// What counts of the past after each round.
const DECAY: f64 = 0.85;

/// What a row is taken to have had accepted and refused before its first round.
const PRIOR: (f64, f64) = (3.0, 2.0);

/// Weight of a new measurement in a running mean.
const WEIGHT: f64 = 0.25;

/// Times the mean, from which on a measurement counts no more: the machine stood still.
const OUTLIER: f64 = 3.0;

/// Measurements after which a cost that was not measured again counts no more.
const AGE: u64 = 256;

/// How likely a row's next proposal is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    accepted: f64,
    refused: f64,
}

impl Default for Chance {
    fn default() -> Self {
        Self { accepted: PRIOR.0, refused: PRIOR.1 }
    }
}

impl Chance {
    /// That of proposals that nothing else can follow.
    pub const CERTAIN: Self = Self { accepted: 1.0, refused: 0.0 };

    /// Learns from a round in which so many proposals were compared with what was chosen, and so many of them were chosen.
    pub fn learn(&mut self, compared: usize, accepted: usize) {
        if compared == 0 {
            return;
        }
        let refused = if accepted < compared { 1.0 } else { 0.0 };
        self.accepted = DECAY * self.accepted + accepted as f64;
        self.refused = DECAY * self.refused + refused;
    }

    /// Between 0 and 1.
    pub fn probability(&self) -> f64 {
        self.accepted / (self.accepted + self.refused)
    }
}

/// A running mean, and when it was measured last.
#[derive(Clone, Copy, Debug)]
struct Point {
    seconds: f64,
    noted: u64,
}

/// What rounds have cost, by the tokens that they read.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    points: BTreeMap<usize, Point>,
    noted: u64,
}

impl Costs {
    /// Learns what a round of so many tokens took, in seconds.
    pub fn note(&mut self, tokens: usize, seconds: f64) {
        self.noted += 1;
        let noted = self.noted;
        self.points.retain(|_, point| noted - point.noted < AGE);
        let point = self.points.entry(tokens).or_insert(Point { seconds, noted });
        point.seconds += WEIGHT * (seconds.min(OUTLIER * point.seconds) - point.seconds);
        point.noted = noted;
    }

    /// The most tokens that a step is taken to.
    fn reach(&self) -> usize {
        self.points.last_key_value().map_or(0, |(tokens, _)| 2 * tokens)
    }

    /// Seconds of a round; none as long as one of `least` tokens was never measured.
    fn of(&self, tokens: usize, least: usize) -> Option<f64> {
        let base = self.points.get(&least)?;
        let mut before = self.points.range(least..=tokens).rev();
        let (low, below) = before.next().unwrap_or((&least, base));
        let slope = |(x, from): (usize, Point), (to_x, to): (usize, Point)| {
            (to.seconds - from.seconds) / (to_x - x) as f64
        };
        let slope = match (self.points.range(tokens + 1..).next(), before.next()) {
            _ if *low == tokens => 0.0,
            (Some((high, above)), _) => slope((*low, *below), (*high, *above)),
            (None, Some((lower, under))) => slope((*lower, *under), (*low, *below)),
            // One point says nothing of the next: it is found out.
            (None, None) => 0.0,
        };
        Some(below.seconds + slope.max(0.0) * (tokens - low) as f64)
    }
}

/// What a row brings to a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// How likely its proposals are right.
    pub chance: Chance,
    /// How many there are.
    pub proposals: usize,
}

/// How many of its proposals each row takes to a step that `rows` rows share, all of them decoding; the candidates are those
/// that have any, and at most `room` proposals fit.
pub fn allot(candidates: &[Candidate], rows: usize, room: usize, costs: &Costs) -> Vec<usize> {
    let mut taken = vec![0; candidates.len()];
    let mut best = (GAIN, taken.clone());
    let Some(base) = costs.of(rows, rows) else { return taken };
    let mut tokens = rows as f64;
    let room = room.min(costs.reach().saturating_sub(rows));
    for count in 1..=room {
        let worth = |(row, candidate): (usize, &Candidate)| {
            let depth = i32::try_from(taken[row] + 1).unwrap_or(i32::MAX);
            (row, candidate.chance.probability().powi(depth))
        };
        let open = candidates.iter().enumerate().filter(|(row, candidate)| taken[*row] < candidate.proposals);
        // Of equals the first.
        let next = open.map(worth).reduce(|one, other| if other.1 > one.1 { other } else { one });
        let Some((row, gained)) = next else { break };
        taken[row] += 1;
        tokens += gained;
        let Some(cost) = costs.of(rows + count, rows) else { break };
        let rate = tokens / rows as f64 * base / cost;
        if rate > best.0 {
            best = (rate, taken.clone());
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn costs(points: &[(usize, f64)]) -> Costs {
        let mut costs = Costs::default();
        points.iter().for_each(|&(tokens, seconds)| costs.note(tokens, seconds));
        costs
    }

    fn sure() -> Chance {
        let mut chance = Chance::default();
        (0..60).for_each(|_| chance.learn(1, 1));
        chance
    }

    fn hopeless() -> Chance {
        let mut chance = Chance::default();
        (0..60).for_each(|_| chance.learn(1, 0));
        chance
    }

    #[test]
    fn a_chance_begins_at_three_fifths_and_follows_what_is_seen() {
        let mut chance = Chance::default();
        assert!((chance.probability() - 0.6).abs() < 1e-12);
        chance.learn(0, 0);
        assert_eq!(chance, Chance::default());
        // 3 * 0.85 + 2 of 5 * 0.85 + 3.
        chance.learn(4, 2);
        assert!((chance.probability() - 4.55 / 7.25).abs() < 1e-12);
        assert!(sure().probability() > 0.99 && hopeless().probability() < 0.01);
    }

    #[test]
    fn costs_lie_on_lines_through_what_was_measured() {
        let costs = costs(&[(1, 1.0), (5, 2.0), (9, 5.0)]);
        let at = |tokens| costs.of(tokens, 1);
        assert_eq!([at(1), at(3), at(5), at(7)], [Some(1.0), Some(1.5), Some(2.0), Some(3.5)]);
        assert_eq!(at(10), Some(5.75));
        assert_eq!(costs.of(2, 2), None);
        assert_eq!(costs.reach(), 18);
    }

    #[test]
    fn one_slow_round_says_little_and_an_old_one_nothing() {
        let mut costs = costs(&[(1, 1.0), (2, 1.0), (1, 100.0)]);
        assert_eq!(costs.of(1, 1), Some(1.5));
        (0..AGE).for_each(|_| costs.note(1, 1.0));
        assert_eq!(costs.points.len(), 1);
    }

    #[test]
    fn nothing_is_tried_before_a_plain_step_was_measured() {
        let row = Candidate { chance: sure(), proposals: 4 };
        assert_eq!(allot(&[row], 1, 9, &Costs::default()), [0]);
        assert_eq!(allot(&[row], 2, 9, &costs(&[(1, 1.0)])), [0]);
        // Then no more than twice its tokens.
        assert_eq!(allot(&[row], 1, 9, &costs(&[(1, 1.0)])), [1]);
        assert_eq!(allot(&[row], 1, 9, &costs(&[(1, 1.0), (2, 1.1)])), [3]);
    }

    #[test]
    fn what_costs_more_than_it_saves_is_left() {
        let dear = costs(&[(1, 1.0), (2, 2.0), (4, 4.0)]);
        let row = |chance| Candidate { chance, proposals: 7 };
        assert_eq!(allot(&[row(sure())], 1, 9, &dear), [0]);
        let cheap = costs(&[(1, 1.0), (8, 1.2)]);
        assert_eq!(allot(&[row(sure())], 1, 9, &cheap), [7]);
        assert_eq!(allot(&[row(hopeless())], 1, 9, &cheap), [0]);
        assert_eq!(allot(&[row(hopeless()), row(sure())], 2, 4, &costs(&[(2, 1.0), (9, 1.2)])), [0, 4]);
    }

    proptest! {
        /// For a row alone the number is that of the stated formula.
        #[test]
        fn a_row_alone_gets_the_best_number(
            rounds in prop::collection::vec((1_usize..5, 0_usize..5), 0..8),
            (slope, bend) in (0.0_f64..0.6, 0.0_f64..0.6),
            proposals in 0_usize..9,
        ) {
            let mut chance = Chance::default();
            rounds.iter().for_each(|&(compared, accepted)| chance.learn(compared, accepted.min(compared)));
            let cost = |tokens: usize| 1.0 + slope * (tokens - 1) as f64 + bend * tokens.saturating_sub(4) as f64;
            let measured: Vec<_> = (1..=10).map(|tokens| (tokens, cost(tokens))).collect();
            let p = chance.probability();
            let rate = |k: usize| {
                let ends = |a: usize| (a + 1) as f64 * p.powi(a as i32) * (1.0 - p);
                ((0..k).map(ends).sum::<f64>() + (k + 1) as f64 * p.powi(k as i32)) / cost(k + 1)
            };
            let best = (1..=proposals).max_by(|&a, &b| rate(a).total_cmp(&rate(b))).filter(|&k| rate(k) > GAIN);
            let allotted = allot(&[Candidate { chance, proposals }], 1, 20, &costs(&measured))[0];
            // Equal rates may part in the last bits.
            let same = Some(allotted).filter(|k| *k > 0) == best;
            let as_good = |k: usize| (rate(k) - rate(best.unwrap_or(0))).abs() < 1e-9;
            prop_assert!(same || as_good(allotted), "{allotted} {best:?}");
        }

        #[test]
        fn bounds_are_kept(
            rows in prop::collection::vec((0_usize..6, 0_usize..4), 0..6),
            plain in 0_usize..4,
            room in 0_usize..12,
        ) {
            let candidate = |&(proposals, right): &(usize, usize)| {
                let mut chance = Chance::default();
                (0..4).for_each(|round| chance.learn(1, usize::from(round < right)));
                Candidate { chance, proposals }
            };
            let candidates: Vec<_> = rows.iter().map(candidate).collect();
            let all = rows.len() + plain;
            let measured: Vec<_> = (1..40).map(|tokens| (tokens, 1.0 + 0.05 * tokens as f64)).collect();
            let taken = allot(&candidates, all, room, &costs(&measured));
            prop_assert_eq!(taken.len(), rows.len());
            prop_assert!(taken.iter().sum::<usize>() <= room);
            prop_assert!(taken.iter().zip(&rows).all(|(taken, (proposals, _))| taken <= proposals));
        }
    }
}
