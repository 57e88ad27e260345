//! Tokens in the chain's order: descending logit, ties by ascending id.

use tandem_contracts::text::TokenId;

/// A token and how far its logit is below the best one, packed so that ascending integers are the chain's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate(u64);

impl Candidate {
    /// A token whose logit is `distance`, which is at most 0, away from the best one.
    pub(super) fn new(distance: f32, token: TokenId) -> Self {
        // The bits of non-negative floats ascend with their values; the absolute value also unsigns zero.
        Self(u64::from(distance.abs().to_bits()) << 32 | u64::from(token))
    }

    /// At most 0.
    pub(super) fn distance(self) -> f32 {
        -f32::from_bits((self.0 >> 32) as u32)
    }

    pub(super) fn token(self) -> TokenId {
        self.0 as TokenId
    }

    /// Its place among others but for ties.
    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Tokens from which on a radix sort is faster: half as long for a vocabulary of 50,000.
const MANY: usize = 2048;

/// The tokens that are at most `floor` below the best logit, and possible at all; the first `count` of them where
/// it is not 0. In order.
pub(super) fn ordered(logits: &[f32], best: f32, floor: f32, count: usize) -> Vec<Candidate> {
    let mut tokens: Vec<Candidate> = (0..)
        .zip(logits)
        .map(|(token, &logit)| (token, logit - best))
        .filter(|&(_, distance)| distance >= floor && distance > f32::NEG_INFINITY)
        .map(|(token, distance)| Candidate::new(distance, token))
        .collect();
    if count > 0 && count < tokens.len() {
        tokens.select_nth_unstable(count - 1);
        tokens.truncate(count);
        tokens.sort_unstable();
    } else if tokens.len() < MANY {
        tokens.sort_unstable();
    } else {
        // Equal ones stay in the order of their ids.
        radsort::sort_by_key(&mut tokens, |token| token.rank());
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_by_logit_and_then_by_id() {
        let logits = [1.0, f32::NEG_INFINITY, 3.0, 0.0, 3.0, -0.0];
        let ids = |floor, count| {
            ordered(&logits, 3.0, floor, count).iter().map(|token| token.token()).collect::<Vec<_>>()
        };
        assert_eq!(ids(f32::NEG_INFINITY, 0), [2, 4, 0, 3, 5]);
        assert_eq!(ids(-2.0, 0), [2, 4, 0]);
        assert_eq!(ids(f32::NEG_INFINITY, 1), [2]);
        assert_eq!(ordered(&logits, 3.0, -2.0, 0)[2].distance(), -2.0);
    }

    #[test]
    fn many_are_in_the_same_order() {
        // Few different logits, so that there are ties; the largest are zeros of both signs.
        let mut logits: Vec<f32> = (0..5 * MANY)
            .map(|id| ((id * 7919 % 613) as f32 - 612.0) * if id % 3 == 0 { 0.25 } else { 0.5 })
            .collect();
        logits.iter_mut().filter(|logit| **logit == 0.0).step_by(2).for_each(|logit| *logit = -0.0);
        for (length, floor) in [(MANY - 1, f32::NEG_INFINITY), (MANY, f32::NEG_INFINITY), (5 * MANY, -250.0)]
        {
            let logits = &logits[..length];
            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut expected: Vec<usize> = (0..length).filter(|&id| logits[id] - best >= floor).collect();
            expected.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap());
            let found = ordered(logits, best, floor, 0);
            assert_eq!(found.iter().map(|it| it.token() as usize).collect::<Vec<_>>(), expected);
        }
    }
}
