//! Values by the token sequences that they stand for, found by the longest common beginning.
//!
//! Sequences are kept in lexicographic order. From where a sequence would stand among them, the beginning that the others
//! share with it only ever gets shorter, to either side: a search that goes outwards meets the best ones first and looks
//! at no more of them than it is asked for.
//!
//! Invariant: what is found depends on the sequences held alone, not on the order in which they came.

use std::{collections::BTreeMap, iter, ops::Bound};
use tandem_contracts::text::TokenId;

/// The index. Generic over what it holds: it knows sequences only.
#[derive(Clone, Debug)]
pub struct PrefixIndex<P> {
    entries: BTreeMap<Vec<TokenId>, P>,
}

/// An entry that begins as a sequence does.
#[derive(Debug)]
pub struct Match<'i, P> {
    /// Tokens that both begin with, at least one.
    pub common: usize,
    /// The entry's own sequence.
    pub tokens: &'i [TokenId],
    /// What it stands for.
    pub value: &'i P,
}

impl<P> Default for PrefixIndex<P> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<P> PrefixIndex<P> {
    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts a value in, and hands out the one that stood for the same sequence.
    pub fn insert(&mut self, tokens: Vec<TokenId>, value: P) -> Option<P> {
        self.entries.insert(tokens, value)
    }

    /// The value of exactly this sequence.
    pub fn get_mut(&mut self, tokens: &[TokenId]) -> Option<&mut P> {
        self.entries.get_mut(tokens)
    }

    /// Takes the value of exactly this sequence out.
    pub fn remove(&mut self, tokens: &[TokenId]) -> Option<P> {
        self.entries.remove(tokens)
    }

    /// All sequences with their values, in lexicographic order.
    pub fn iter(&self) -> impl Iterator<Item = (&[TokenId], &P)> {
        self.entries.iter().map(|(tokens, value)| (tokens.as_slice(), value))
    }

    /// The entries that begin with at least one token of `tokens`, those with the longest common beginning first; of equals,
    /// those up to `tokens` in lexicographic order first.
    pub fn matches<'i>(&'i self, tokens: &'i [TokenId]) -> impl Iterator<Item = Match<'i, P>> {
        let found = move |(own, value): (&'i Vec<TokenId>, &'i P)| {
            let common = common(own, tokens);
            (common > 0).then_some(Match { common, tokens: own, value })
        };
        let before = (Bound::Unbounded, Bound::Included(tokens));
        let after = (Bound::Excluded(tokens), Bound::Unbounded);
        // Behind the first entry that shares nothing, none does.
        let mut before = self.entries.range::<[TokenId], _>(before).rev().map_while(found).peekable();
        let mut after = self.entries.range::<[TokenId], _>(after).map_while(found).peekable();
        iter::from_fn(move || match (before.peek(), after.peek()) {
            (Some(left), Some(right)) if left.common < right.common => after.next(),
            (None, _) => after.next(),
            (Some(_), _) => before.next(),
        })
    }
}

/// Number of tokens that both begin with.
pub fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    iter::zip(a, b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(sequences: &[&[TokenId]]) -> PrefixIndex<usize> {
        let mut index = PrefixIndex::default();
        for (number, tokens) in sequences.iter().enumerate() {
            index.insert(tokens.to_vec(), number);
        }
        index
    }

    fn found(index: &PrefixIndex<usize>, tokens: &[TokenId]) -> Vec<(usize, usize)> {
        index.matches(tokens).map(|found| (found.common, *found.value)).collect()
    }

    #[test]
    fn the_longest_common_beginning_comes_first() {
        let index = index(&[&[1, 2], &[1, 2, 3, 4], &[1, 2, 9], &[7]]);
        assert_eq!(found(&index, &[1, 2, 3, 5]), [(3, 1), (2, 0), (2, 2)]);
        assert_eq!(found(&index, &[1, 2, 9]), [(3, 2), (2, 1), (2, 0)]);
        assert_eq!(found(&index, &[7, 7]), [(1, 3)]);
        assert_eq!(found(&index, &[8]), []);
        assert_eq!(found(&index, &[]), []);
    }

    #[test]
    fn one_sequence_has_one_value() {
        let mut index = index(&[&[1, 2]]);
        assert_eq!((index.insert(vec![1, 2], 5), index.len()), (Some(0), 1));
        assert_eq!((index.remove(&[1]), index.remove(&[1, 2])), (None, Some(5)));
        assert!(index.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn equals_a_look_at_every_sequence(
            sequences in prop::collection::btree_set(prop::collection::vec(0_u32..3, 0..6), 0..12),
            tokens in prop::collection::vec(0_u32..3, 0..7),
        ) {
            let mut index = PrefixIndex::default();
            for sequence in &sequences {
                index.insert(sequence.clone(), sequence.clone());
            }
            let mut expected: Vec<(usize, Vec<TokenId>)> = sequences
                .iter()
                .map(|own| (own.iter().zip(&tokens).take_while(|(a, b)| a == b).count(), own.clone()))
                .filter(|(common, _)| *common > 0)
                .collect();
            let mut given: Vec<(usize, Vec<TokenId>)> =
                index.matches(&tokens).map(|found| (found.common, found.value.clone())).collect();
            prop_assert!(given.is_sorted_by(|a, b| a.0 >= b.0));
            expected.sort();
            given.sort();
            prop_assert_eq!(given, expected);
        }
    }
}
