//! Where each run of a few tokens first stood in a history.
//!
//! One table for each length holds the place at which each run of that length begins for the first time. It is kept token by
//! token, so that a look-up does not depend on how long the history is. Tables hold places alone; runs are compared in the
//! history itself.
//!
//! Invariant: a place is in the table of a length if and only if no earlier place begins the same run.

use hashbrown::HashTable;
use std::{
    hash::{BuildHasher, RandomState},
    ops::RangeInclusive,
};
use tandem_contracts::text::TokenId;

/// A history, and the first place of every run in it.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    history: Vec<TokenId>,
    /// Lengths of runs, with their tables, the shortest first.
    lengths: RangeInclusive<usize>,
    tables: Vec<HashTable<u32>>,
    /// Keyed, so that no text can be made to fill one place of a table.
    hasher: RandomState,
}

impl Index {
    pub(crate) fn new(lengths: RangeInclusive<usize>) -> Self {
        let tables = lengths.clone().map(|_| HashTable::new()).collect();
        Self { history: Vec::new(), lengths, tables, hasher: RandomState::new() }
    }

    pub(crate) fn history(&self) -> &[TokenId] {
        &self.history
    }

    /// Makes room for so many tokens more, so that tables do not grow while rows decode.
    pub(crate) fn reserve(&mut self, tokens: usize) {
        self.history.reserve(tokens);
        let Self { history, lengths, tables, hasher } = self;
        for (length, table) in lengths.clone().zip(tables) {
            table
                .reserve(tokens, |&known| hasher.hash_one(&history[known as usize..known as usize + length]));
        }
    }

    pub(crate) fn push(&mut self, token: TokenId) {
        self.history.push(token);
        let Self { history, lengths, tables, hasher } = self;
        let hash = |run: &[TokenId]| hasher.hash_one(run);
        for (length, table) in lengths.clone().zip(tables) {
            let Some(begin) = history.len().checked_sub(length) else { break };
            // Places beyond are not found: a history is far shorter.
            let Ok(place) = u32::try_from(begin) else { break };
            let at = |place: u32| &history[place as usize..place as usize + length];
            let run = at(place);
            table.entry(hash(run), |&known| at(known) == run, |&known| hash(at(known))).or_insert(place);
        }
    }

    /// Where the last `length` tokens stood for the first time, before where they stand now.
    pub(crate) fn first(&self, length: usize) -> Option<usize> {
        let table = self.tables.get(length.checked_sub(*self.lengths.start())?)?;
        let begin = self.history.len().checked_sub(length)?;
        let run = &self.history[begin..];
        let same = |&known: &u32| &self.history[known as usize..known as usize + length] == run;
        let place = *table.find(self.hasher.hash_one(run), same)? as usize;
        (place < begin).then_some(place)
    }
}
