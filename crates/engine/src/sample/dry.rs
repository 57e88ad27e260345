//! "Don't repeat yourself": penalties on tokens that would go on with what was said before.
//!
//! A token that stood somewhere in the window, after `n` tokens that the window also ends with, would make the
//! repetition `n + 1` long. Of several places the longest counts. No repetition reaches over a breaker, and a token
//! that is a breaker by itself has no penalty.

use super::processor::window;
use tandem_contracts::{sampling::Dry, text::TokenId};

/// Calls `penalise` with each token that would lengthen a repetition and what it loses, each token once.
pub(super) fn penalties(dry: &Dry, history: &[TokenId], mut penalise: impl FnMut(TokenId, f32)) {
    let tokens = window(history, dry.context);
    let allowed = dry.allowed_length as usize;
    if dry.multiplier == 0.0 || tokens.len() <= allowed {
        return;
    }
    let limit = unbroken(dry, tokens);
    if limit < allowed {
        return;
    }
    let mut longest: Vec<(TokenId, usize)> = (1..tokens.len())
        .zip(repetitions(tokens))
        .map(|(at, length)| (tokens[at], length.min(limit)))
        .filter(|&(token, length)| length >= allowed && !dry.breakers.end(&[token]))
        .collect();
    longest.sort_unstable();
    for same in longest.chunk_by(|a, b| a.0 == b.0) {
        if let Some(&(token, length)) = same.last() {
            let further = i32::try_from(length - allowed).unwrap_or(i32::MAX);
            penalise(token, (dry.multiplier * dry.base.powi(further)).min(f32::MAX));
        }
    }
}

/// How many tokens there are after the last breaker.
fn unbroken(dry: &Dry, tokens: &[TokenId]) -> usize {
    let ends = (1..=tokens.len()).rev();
    ends.map(|end| &tokens[..end])
        .find(|head| dry.breakers.end(head))
        .map_or(tokens.len(), |head| tokens.len() - head.len())
}

/// For each place from 1 on, how many tokens before it are the last ones of all: the Z-function of the reversed
/// window (Gusfield, "Algorithms on strings, trees, and sequences", 1997, section 1.4), in time linear in its length.
fn repetitions(tokens: &[TokenId]) -> Vec<usize> {
    let count = tokens.len();
    let back = |index: usize| tokens[count - 1 - index];
    let mut lengths = vec![0; count];
    // The match that reaches farthest: where it begins, and where it ends.
    let (mut start, mut end) = (0, 0);
    for index in 1..count {
        let mut length = if index < end { lengths[index - start].min(end - index) } else { 0 };
        while index + length < count && back(length) == back(index + length) {
            length += 1;
        }
        if index + length > end {
            (start, end) = (index, index + length);
        }
        lengths[index] = length;
    }
    // Of the reversed window's suffix from `index` on, the place is `count - index`.
    lengths[1..].reverse();
    lengths.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tandem_contracts::sampling::Breakers;

    fn found(dry: &Dry, history: &[TokenId]) -> BTreeMap<TokenId, f32> {
        let mut all = BTreeMap::new();
        penalties(dry, history, |token, penalty| assert_eq!(all.insert(token, penalty), None));
        all
    }

    /// The definition: every place is compared token by token.
    fn naive(dry: &Dry, breakers: &[Vec<TokenId>], history: &[TokenId]) -> BTreeMap<TokenId, f32> {
        let skipped = if dry.context == 0 { 0 } else { history.len().saturating_sub(dry.context as usize) };
        let tokens = &history[skipped..];
        let count = tokens.len();
        let breaks = |end: usize| breakers.iter().any(|it| !it.is_empty() && tokens[..end].ends_with(it));
        let mut all = BTreeMap::<TokenId, usize>::new();
        for place in 1..count {
            let mut length = 0;
            while length < place
                && tokens[place - 1 - length] == tokens[count - 1 - length]
                && !breaks(count - length)
            {
                length += 1;
            }
            let longest = all.entry(tokens[place]).or_default();
            *longest = length.max(*longest);
        }
        all.retain(|&token, length| {
            *length >= dry.allowed_length as usize && !breakers.contains(&vec![token])
        });
        all.into_iter()
            .map(|(token, length)| {
                let further = length as i32 - dry.allowed_length as i32;
                (token, (dry.multiplier * dry.base.powi(further)).min(f32::MAX))
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn equals_the_naive_search(
            history in prop::collection::vec(0_u32..4, 0..40),
            breakers in prop::collection::vec(prop::collection::vec(0_u32..5, 0..4), 0..3),
            allowed_length in 1_u32..5,
            context in prop_oneof![Just(0_u32), 1_u32..40],
        ) {
            let dry = Dry {
                multiplier: 0.5,
                base: 2.0,
                allowed_length,
                context,
                breakers: Breakers::new(breakers.clone()),
            };
            prop_assert_eq!(found(&dry, &history), naive(&dry, &breakers, &history));
        }
    }

    #[test]
    fn repetitions_by_hand() {
        let dry = Dry { multiplier: 0.5, base: 2.0, ..Dry::default() };
        // "1 2 3 4 ... 1 2 3": 4 would make it four tokens, after a match of three: 0.5 * 2^(3 - 2).
        assert_eq!(found(&dry, &[1, 2, 3, 4, 9, 1, 2, 3]), BTreeMap::from([(4, 1.0)]));
        // Two places that end in "2 3": the longer one counts for each token.
        assert_eq!(
            found(&dry, &[1, 2, 3, 4, 2, 3, 4, 8, 2, 3, 7, 1, 2, 3]),
            BTreeMap::from([(4, 1.0), (7, 0.5)])
        );
        // A match of one is allowed.
        assert_eq!(found(&dry, &[3, 4, 9, 3]), BTreeMap::new());
        // One token over and over overlaps itself: three of the four that stand there come before the fourth.
        assert_eq!(found(&dry, &[5, 5, 5, 5]), BTreeMap::from([(5, 1.0)]));
    }

    #[test]
    fn breakers_end_repetitions() {
        let with = |breakers: &[&[TokenId]]| Dry {
            multiplier: 0.5,
            base: 2.0,
            breakers: Breakers::new(breakers.iter().map(|it| it.to_vec())),
            ..Dry::default()
        };
        let history = [1, 2, 3, 4, 9, 1, 2, 3];
        // After the breaker stands "2 3" alone, which is as long as is allowed.
        assert_eq!(found(&with(&[&[1]]), &history), BTreeMap::from([(4, 0.5)]));
        assert_eq!(found(&with(&[&[9, 1]]), &history), BTreeMap::from([(4, 0.5)]));
        assert_eq!(found(&with(&[&[2]]), &history), BTreeMap::new());
        assert_eq!(found(&with(&[&[3]]), &history), BTreeMap::new());
        // What would come is a breaker itself.
        assert_eq!(found(&with(&[&[4]]), &history), BTreeMap::new());
        assert_eq!(found(&with(&[&[7, 3]]), &history), BTreeMap::from([(4, 1.0)]));
    }

    #[test]
    fn penalties_stay_finite() {
        let dry = Dry { multiplier: 100.0, base: 100.0, allowed_length: 1, ..Dry::default() };
        assert_eq!(found(&dry, &[5; 300]), BTreeMap::from([(5, f32::MAX)]));
    }
}
