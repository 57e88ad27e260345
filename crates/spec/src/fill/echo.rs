//! Where the last tokens of a history stood before, and what followed them there.
//!
//! Each place begins a run of a few tokens. Places of equal runs form a chain, the nearest first; nothing but places is kept,
//! and runs are compared in the history itself. Past so many tokens no place is noted any more, so that a history of any length
//! costs a bounded amount of memory; what was noted is still found.
//!
//! A copy goes on as long as all places agree. A place whose text has ended has nothing to say and drops out.

use super::Limits;
use hashbrown::{HashTable, hash_table::Entry};
use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    iter, mem,
};
use tandem_contracts::text::TokenId;

/// The places of a history.
#[derive(Clone, Debug)]
pub(super) struct Index {
    limits: Limits,
    /// The last place of each run.
    last: HashTable<u32>,
    /// Of each place, the one before it with an equal run, if there is one.
    before: Vec<Option<u32>>,
    /// Keyed, so that no text can be made to fill one place of the table.
    hasher: RandomState,
}

/// What followed elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) ids: Vec<TokenId>,
    /// Whether it ends where places do not agree.
    pub(super) forked: bool,
    /// Whether it ends with a delimiter, and at least two places have all of it.
    pub(super) sure: bool,
}

impl Index {
    pub(super) fn new(limits: Limits) -> Self {
        let limits = Limits { run: limits.run.max(2), ..limits };
        Self { limits, last: HashTable::new(), before: Vec::new(), hasher: RandomState::new() }
    }

    /// Notes the places of a history that has grown. Returns how many of its tokens are too far behind to be noted.
    pub(super) fn note(&mut self, history: &[TokenId]) -> usize {
        let Self { limits: Limits { run, indexed, .. }, last, before, hasher } = self;
        let end = history.len().min(*indexed);
        let at = |place: u32| &history[place as usize..place as usize + *run];
        for place in before.len()..end.saturating_sub(*run - 1) {
            // A history that is indexed is far shorter.
            let Ok(place) = u32::try_from(place) else { break };
            let hash = hasher.hash_one(at(place));
            let entry =
                last.entry(hash, |&known| at(known) == at(place), |&known| hasher.hash_one(at(known)));
            match entry {
                Entry::Occupied(mut known) => {
                    before.push(Some(mem::replace(known.get_mut(), place)));
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(place);
                    before.push(None);
                }
            }
        }
        history.len() - end
    }

    /// What followed where the last tokens stood before, at most so many tokens and no further than a delimiter. Empty where
    /// they stood nowhere, or where no two places agree.
    pub(super) fn copy(&self, history: &[TokenId], delimiters: &BTreeSet<TokenId>, most: usize) -> Copy {
        let mut ends = self.ends(history);
        let mut copy = Copy::default();
        while copy.ids.len() < most {
            ends.retain(|end| *end < history.len());
            let Some(token) = ends.first().map(|end| history[*end]) else { break };
            copy.forked = ends.iter().any(|end| history[*end] != token);
            if copy.forked {
                break;
            }
            copy.ids.push(token);
            ends.iter_mut().for_each(|end| *end += 1);
            if delimiters.contains(&token) {
                copy.sure = ends.len() > 1;
                break;
            }
        }
        copy
    }

    /// Behind each place at which the last tokens stood before, the nearest first.
    fn ends(&self, history: &[TokenId]) -> Vec<usize> {
        let Limits { run, candidates, .. } = self.limits;
        let Some(begin) = history.len().checked_sub(run) else { return Vec::new() };
        let wanted = &history[begin..];
        let same = |&known: &u32| &history[known as usize..known as usize + run] == wanted;
        let nearest = self.last.find(self.hasher.hash_one(wanted), same).copied();
        let places = iter::successors(nearest, |place| self.before[*place as usize]);
        let others = places.map(|place| place as usize).filter(|place| *place < begin);
        others.take(candidates).map(|place| place + run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Limits = Limits { longest: 6, shortest: 2, run: 2, candidates: 3, indexed: 40 };

    fn copied(history: &[TokenId], delimiters: &[TokenId]) -> (Vec<TokenId>, bool, bool) {
        let mut index = Index::new(SMALL);
        index.note(history);
        let Copy { ids, forked, sure } = index.copy(history, &delimiters.iter().copied().collect(), 6);
        (ids, forked, sure)
    }

    #[test]
    fn one_place_is_copied_to_its_delimiter_and_is_never_sure() {
        assert_eq!(copied(&[1, 2, 3, 4, 9, 5, 1, 2], &[9]), (vec![3, 4, 9], false, false));
        // Nor where there is none: it goes on to its bound, over what it continues.
        assert_eq!(copied(&[1, 2, 3, 4, 1, 2], &[]), (vec![3, 4, 1, 2], false, false));
    }

    #[test]
    fn two_places_that_agree_to_a_delimiter_are_sure() {
        assert_eq!(copied(&[1, 2, 3, 9, 1, 2, 3, 9, 1, 2], &[9]), (vec![3, 9], false, true));
        // Places whose text ends have nothing more to say, and say nothing against the others.
        assert_eq!(copied(&[5, 5, 5, 5], &[]), (vec![5, 5], false, false));
    }

    #[test]
    fn a_copy_ends_where_places_differ() {
        assert_eq!(copied(&[1, 2, 3, 4, 1, 2, 3, 5, 1, 2], &[9]), (vec![3], true, false));
        assert_eq!(copied(&[1, 2, 3, 1, 2, 4, 1, 2], &[9]), (vec![], true, false));
        // The nearest places alone count.
        let far = [1, 2, 7, 1, 2, 3, 9, 1, 2, 3, 9, 1, 2, 3, 9, 1, 2];
        assert_eq!(copied(&far, &[9]), (vec![3, 9], false, true));
    }

    #[test]
    fn what_is_not_noted_is_not_found() {
        let mut index = Index::new(Limits { indexed: 4, ..SMALL });
        let history = [1, 2, 3, 4, 5, 6, 7, 5, 6];
        assert_eq!(index.note(&history), 5);
        let none = BTreeSet::new();
        assert_eq!(index.copy(&history, &none, 6), Copy::default());
        // What was, still is.
        let history = [1, 2, 3, 4, 5, 6, 1, 2];
        assert_eq!(index.copy(&history, &none, 2).ids, [3, 4]);
    }

    /// The rules as they are stated, by a look at every place.
    fn naive(history: &[TokenId], delimiters: &BTreeSet<TokenId>, most: usize) -> Copy {
        let Limits { run, candidates, indexed, .. } = SMALL;
        let Some(begin) = history.len().checked_sub(run) else { return Copy::default() };
        let noted = (0..begin).rev().filter(|place| place + run <= indexed);
        let places: Vec<usize> =
            noted.filter(|&place| history[place..place + run] == history[begin..]).take(candidates).collect();
        let mut copy = Copy::default();
        for length in 0..most {
            let next: Vec<TokenId> =
                places.iter().filter_map(|place| history.get(place + run + length).copied()).collect();
            let Some(&token) = next.first() else { break };
            if next.iter().any(|other| *other != token) {
                return Copy { forked: true, ..copy };
            }
            copy.ids.push(token);
            if delimiters.contains(&token) {
                return Copy { sure: next.len() > 1, ..copy };
            }
        }
        copy
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_look_at_all_places_finds(
            history in prop::collection::vec(0_u32..3, 0..60),
            delimiters in prop::collection::btree_set(0_u32..3, 0..2),
            most in 0_usize..9,
        ) {
            let mut index = Index::new(SMALL);
            for end in 0..=history.len() {
                let past = &history[..end];
                prop_assert_eq!(index.note(past), end.saturating_sub(SMALL.indexed));
                prop_assert_eq!(index.copy(past, &delimiters, most), naive(past, &delimiters, most));
            }
        }
    }
}
