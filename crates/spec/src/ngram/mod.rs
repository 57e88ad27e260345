//! Drafts from a row's own past: what followed the last time that the text stood where it stands now.
//!
//! For runs from the longest to the shortest: where the last `k` tokens have stood before, the first such place counts, and
//! what followed there is proposed. Texts that copy, quote or repeat are proposed to their end.

mod index;

use crate::draft::{Ask, DraftProvider, Guess, SORTS};
use index::Index;
use std::collections::BTreeMap;
use tandem_contracts::{model::Slot, text::TokenId};

/// Tokens of an answer for which there is room from the start.
const ROOM: usize = 4096;

/// Lengths of the runs that are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    longest: usize,
    shortest: usize,
}

impl Runs {
    /// Runs of `shortest` to `longest` tokens; both at least 1, and the shortest no longer than the longest.
    pub fn new(longest: usize, shortest: usize) -> Self {
        let longest = longest.max(1);
        Self { longest, shortest: shortest.clamp(1, longest) }
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self::new(6, 1)
    }
}

/// One row's past.
#[derive(Clone, Debug)]
pub struct Past {
    runs: Runs,
    index: Index,
}

impl Past {
    /// A row's history so far.
    pub fn new(runs: Runs, history: &[TokenId]) -> Self {
        let mut past = Self { runs, index: Index::new(runs.shortest..=runs.longest) };
        past.index.reserve(history.len() + ROOM);
        past.extend(history);
        past
    }

    /// More of it.
    pub fn extend(&mut self, tokens: &[TokenId]) {
        tokens.iter().for_each(|&token| self.index.push(token));
    }

    /// What may come next, at most so many tokens, and the length of the run that it follows. Takes a time that does not
    /// depend on the history's length.
    pub fn propose(&self, most: usize) -> (&[TokenId], usize) {
        let history = self.index.history();
        for length in (self.runs.shortest..=self.runs.longest).rev() {
            if let Some(place) = self.index.first(length) {
                let begin = place + length;
                return (&history[begin..history.len().min(begin.saturating_add(most))], length);
            }
        }
        (&[], 0)
    }
}

/// Proposes from the past of each row.
#[derive(Debug, Default)]
pub struct NGrams {
    runs: Runs,
    rows: BTreeMap<Slot, Past>,
}

impl NGrams {
    /// With runs of these lengths.
    pub fn new(runs: Runs) -> Self {
        Self { runs, rows: BTreeMap::new() }
    }
}

impl DraftProvider for NGrams {
    fn namespace(&self) -> String {
        format!("ngram-history-v1 {} {}", self.runs.longest, self.runs.shortest)
    }

    fn adapters(&self) -> bool {
        true
    }

    fn open(&mut self, slot: Slot, history: &[TokenId]) {
        self.rows.insert(slot, Past::new(self.runs, history));
    }

    fn commit(&mut self, slot: Slot, tokens: &[TokenId]) {
        if let Some(past) = self.rows.get_mut(&slot) {
            past.extend(tokens);
        }
    }

    fn propose(&mut self, asks: &[Ask]) -> Vec<Guess> {
        let guess = |ask: &Ask| {
            let Some(past) = self.rows.get(&ask.slot) else { return Guess::default() };
            let (tokens, run) = past.propose(ask.most);
            // The longer the run, the likelier that it goes on as it did.
            Guess { tokens: tokens.to_vec(), sort: run.saturating_sub(1).min(SORTS - 1) }
        };
        asks.iter().map(guess).collect()
    }

    fn close(&mut self, slot: Slot) {
        self.rows.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The search as it is stated: for each length the first place, by looking at all of them.
    fn naive(history: &[TokenId], runs: Runs, most: usize) -> Vec<TokenId> {
        let all = history.len();
        for k in (runs.shortest..=runs.longest.min(all.saturating_sub(1))).rev() {
            let suffix = &history[all - k..];
            if let Some(i) = (0..all - k).find(|&i| &history[i..i + k] == suffix) {
                return history[i + k..all.min(i + k + most)].to_vec();
            }
        }
        Vec::new()
    }

    #[test]
    fn the_first_place_of_the_longest_run_counts() {
        let propose =
            |history: &[TokenId], most| Past::new(Runs::default(), history).propose(most).0.to_vec();
        assert_eq!(propose(&[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 3), [4, 9, 2]);
        // Two tokens alone are known.
        assert_eq!(propose(&[7, 2, 3, 5, 9, 8, 2, 3], 10), [5, 9, 8, 2, 3]);
        // What is proposed may overlap what it continues.
        assert_eq!(propose(&[5, 5, 5], 10), [5]);
        let silent = [propose(&[1, 2, 3], 10), propose(&[], 10), propose(&[4, 4], 0)];
        assert_eq!(silent.concat(), Vec::<TokenId>::new());
    }

    #[test]
    fn lengths_are_put_right() {
        assert_eq!(Runs::new(0, 0), Runs::new(1, 1));
        assert_eq!(Runs::new(2, 5), Runs::new(2, 2));
    }

    #[test]
    fn rows_are_apart_and_unknown_ones_have_nothing_to_say() {
        let mut drafts = NGrams::default();
        drafts.open(Slot(0), &[1, 2, 1]);
        drafts.open(Slot(1), &[3]);
        drafts.commit(Slot(1), &[4, 3]);
        drafts.commit(Slot(2), &[1]);
        let guess = |tokens: &[TokenId], sort| Guess { tokens: tokens.to_vec(), sort };
        let asks = [0, 1, 2].map(|slot| Ask { slot: Slot(slot), most: 1 });
        assert_eq!(drafts.propose(&asks), [guess(&[2], 0), guess(&[4], 0), Guess::default()]);
        drafts.close(Slot(0));
        assert_eq!(drafts.propose(&asks[..1]), [Guess::default()]);
        drafts.open(Slot(1), &[]);
        assert_eq!(drafts.propose(&asks[1..2]), [Guess::default()]);
        drafts.open(Slot(1), &[5, 6, 7, 8, 1, 5, 6, 7]);
        assert_eq!(drafts.propose(&asks[1..2]), [guess(&[8], 2)]);
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_look_at_all_places_finds(
            history in prop::collection::vec(0_u32..4, 0..60),
            longest in 0_usize..5,
            shortest in 0_usize..5,
            most in 0_usize..12,
        ) {
            let runs = Runs::new(longest, shortest);
            let mut past = Past::new(runs, &[]);
            for end in 0..=history.len() {
                prop_assert_eq!(past.propose(most).0, naive(&history[..end], runs, most));
                past.extend(&history[end..history.len().min(end + 1)]);
            }
        }
    }
}
