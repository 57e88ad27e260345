//! States of rows that have ended, kept for requests that begin with the same tokens.
//!
//! ```text
//!   a row ends     --put--> (namespace, tokens) -> state          as long as its bytes fit, the least recently used go first
//!   a row starts  <--take-- a fork of the state with the longest common beginning, shortened to it
//! ```
//!
//! Invariants: a state stays what it is, whoever takes it: takers get forks; the bytes of all states never exceed the limit;
//! a state is used only at a length to which it may be shortened ([`RowState::reuse_floor`]), so that a row that continues it
//! is the same bits as one that computed it; the last token of a prompt is never taken, as its logits are wanted.

use crate::config::PrefixLimits;
use std::collections::HashMap;
use tandem_contracts::{
    model::{AdapterSet, RowState},
    text::TokenId,
};
use tandem_kv::prefix::PrefixIndex;

/// What states must share, beside their tokens, to stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Namespace {
    pub(crate) adapters: AdapterSet,
    /// How they are kept, by its number in the engine's configuration.
    pub(crate) policy: usize,
    /// Whether the rows' numbers show that they were verified in windows.
    pub(crate) windows: bool,
}

/// The store.
#[derive(Debug)]
pub(crate) struct PrefixStore {
    limits: PrefixLimits,
    spaces: HashMap<Namespace, PrefixIndex<Entry>>,
    bytes: usize,
    /// Counts uses, so that the least recent one is known.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    state: Box<dyn RowState>,
    bytes: usize,
    used: u64,
}

/// A state that a row starts from.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) state: Box<dyn RowState>,
    /// Tokens of it that the row shares; to so many it is to be shortened.
    pub(crate) tokens: usize,
}

impl PrefixStore {
    pub(crate) fn new(limits: PrefixLimits) -> Self {
        Self { limits, spaces: HashMap::new(), bytes: 0, uses: 0 }
    }

    /// Device bytes of all states. What forks share is counted in each.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of states.
    pub(crate) fn len(&self) -> usize {
        self.spaces.values().map(PrefixIndex::len).sum()
    }

    /// Whether a row that has so many tokens would be kept.
    pub(crate) fn wants(&self, tokens: usize) -> bool {
        self.limits.bytes > 0 && tokens >= self.limits.shortest.max(1)
    }

    /// How many tokens of a prompt a stored state would save; it counts as used, so that it is among the last to go.
    pub(crate) fn reach(&mut self, space: &Namespace, prompt: &[TokenId]) -> Option<usize> {
        let (tokens, own) = self.best(space, prompt)?;
        self.touch(space, &own);
        Some(tokens)
    }

    /// A fork of the state that saves most of a prompt. One that cannot be forked is dropped, and is no error.
    pub(crate) fn take(&mut self, space: &Namespace, prompt: &[TokenId]) -> Option<Taken> {
        loop {
            let (tokens, own) = self.best(space, prompt)?;
            let entry = self.touch(space, &own)?;
            match entry.state.fork() {
                Ok(state) => return Some(Taken { state, tokens }),
                Err(error) => {
                    tracing::warn!(%error, "a stored state could not be forked and is dropped");
                    self.remove(space, &own);
                }
            }
        }
    }

    /// Keeps the state of these tokens. It is dropped where it is too short or too large to be kept, or where a kept state
    /// can be shortened to it; states that can be had from it by shortening go.
    pub(crate) fn put(&mut self, space: &Namespace, tokens: Vec<TokenId>, state: Box<dyn RowState>) {
        let bytes = state.bytes();
        if state.tokens() != tokens.len() || !self.wants(tokens.len()) || bytes > self.limits.bytes {
            return;
        }
        let index = self.spaces.entry(*space).or_default();
        let within = index.matches(&tokens).find(|found| {
            let longer = found.tokens.len() > tokens.len() && found.common == tokens.len();
            longer && found.value.state.reuse_floor() <= tokens.len()
        });
        if let Some(own) = within.map(|found| found.tokens.to_vec()) {
            self.touch(space, &own);
            return;
        }
        let floor = state.reuse_floor();
        let ancestors = index.matches(&tokens).filter(|found| {
            let length = found.tokens.len();
            found.common == length && (length == tokens.len() || floor <= length)
        });
        for own in ancestors.map(|found| found.tokens.to_vec()).collect::<Vec<_>>() {
            self.remove(space, &own);
        }
        while self.bytes.saturating_add(bytes) > self.limits.bytes && self.evict() {}
        self.uses += 1;
        self.bytes += bytes;
        let entry = Entry { state, bytes, used: self.uses };
        self.spaces.entry(*space).or_default().insert(tokens, entry);
    }

    /// Drops the least recently used state, if there is one.
    pub(crate) fn evict(&mut self) -> bool {
        let entries = self
            .spaces
            .iter()
            .flat_map(|(space, index)| index.iter().map(move |(tokens, entry)| (entry.used, space, tokens)));
        let Some((_, space, tokens)) = entries.min_by_key(|(used, ..)| *used) else { return false };
        let (space, tokens) = (*space, tokens.to_vec());
        self.remove(&space, &tokens);
        true
    }

    /// Tokens that the best state saves of a prompt, and its own sequence.
    fn best(&self, space: &Namespace, prompt: &[TokenId]) -> Option<(usize, Vec<TokenId>)> {
        let most = prompt.len().saturating_sub(1);
        let shortest = self.limits.shortest.max(1);
        let matches = self.spaces.get(space)?.matches(prompt);
        let long = matches.take_while(|found| found.common >= shortest);
        let mut usable = long.filter_map(|found| {
            let (state, tokens) = (&found.value.state, found.common.min(most));
            let reachable = tokens == state.tokens() || tokens >= state.reuse_floor();
            (reachable && tokens >= shortest).then_some((tokens, found.tokens))
        });
        usable.next().map(|(tokens, own)| (tokens, own.to_vec()))
    }

    fn touch(&mut self, space: &Namespace, tokens: &[TokenId]) -> Option<&Entry> {
        self.uses += 1;
        let entry = self.spaces.get_mut(space)?.get_mut(tokens)?;
        entry.used = self.uses;
        Some(entry)
    }

    fn remove(&mut self, space: &Namespace, tokens: &[TokenId]) {
        let Some(index) = self.spaces.get_mut(space) else { return };
        if let Some(entry) = index.remove(tokens) {
            self.bytes -= entry.bytes;
        }
        if index.is_empty() {
            self.spaces.remove(space);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::any::Any;
    use tandem_contracts::tensor::{Result, Tensor};

    /// A state of ten bytes a token.
    #[derive(Clone, Debug)]
    struct Fake {
        tokens: usize,
        floor: usize,
    }

    impl RowState for Fake {
        fn tokens(&self) -> usize {
            self.tokens
        }

        fn bytes(&self) -> usize {
            10 * self.tokens
        }

        fn reuse_floor(&self) -> usize {
            self.floor
        }

        fn fork(&self) -> Result<Box<dyn RowState>> {
            Ok(Box::new(self.clone()))
        }

        fn planes(&self) -> Vec<Tensor> {
            Vec::new()
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    fn base() -> Namespace {
        Namespace { adapters: AdapterSet::BASE, policy: 0, windows: false }
    }

    fn store(bytes: usize) -> PrefixStore {
        PrefixStore::new(PrefixLimits { bytes, shortest: 2, boundary: 0 })
    }

    fn put(store: &mut PrefixStore, tokens: &[TokenId], floor: usize) {
        store.put(&base(), tokens.to_vec(), Box::new(Fake { tokens: tokens.len(), floor }));
    }

    /// Tokens saved, and of how long a state.
    fn take(store: &mut PrefixStore, prompt: &[TokenId]) -> Option<(usize, usize)> {
        store.take(&base(), prompt).map(|taken| (taken.tokens, taken.state.tokens()))
    }

    #[test]
    fn the_longest_beginning_is_taken_but_for_the_last_token() {
        let mut store = store(1_000);
        put(&mut store, &[1, 2, 3, 4], 0);
        put(&mut store, &[1, 2, 9, 9, 9], 0);
        assert_eq!(take(&mut store, &[1, 2, 3, 4, 5]), Some((4, 4)));
        assert_eq!(take(&mut store, &[1, 2, 3, 4]), Some((3, 4)));
        assert_eq!(take(&mut store, &[1, 2, 9, 7]), Some((3, 5)));
        assert_eq!((take(&mut store, &[1, 2]), take(&mut store, &[1, 7, 7])), (None, None));
        for other in [Namespace { adapters: AdapterSet(1), ..base() }, Namespace { policy: 1, ..base() }] {
            assert!(store.take(&other, &[1, 2, 3, 4, 5]).is_none());
        }
    }

    #[test]
    fn what_cannot_be_shortened_is_passed_over() {
        let mut store = store(1_000);
        put(&mut store, &[1, 2, 3], 3);
        put(&mut store, &[1, 2, 3, 4, 5, 6], 6);
        assert_eq!(take(&mut store, &[1, 2, 3, 4, 9]), Some((3, 3)));
        assert_eq!(take(&mut store, &[1, 2, 3, 4, 5, 6, 7]), Some((6, 6)));
        assert_eq!(take(&mut store, &[1, 2, 3]), None);
    }

    #[test]
    fn a_state_stands_for_its_beginnings() {
        let mut store = store(1_000);
        put(&mut store, &[1, 2, 3], 0);
        put(&mut store, &[1, 2, 3, 4, 5], 0);
        assert_eq!((store.len(), store.bytes()), (1, 50));
        // It is there already.
        put(&mut store, &[1, 2, 3, 4], 0);
        assert_eq!((store.len(), store.bytes()), (1, 50));
        // What cannot be shortened stands for itself alone.
        put(&mut store, &[1, 2, 3, 4, 5, 6], 6);
        assert_eq!((store.len(), store.bytes()), (2, 110));
        put(&mut store, &[1, 2, 3, 4, 5, 6], 6);
        assert_eq!((store.len(), store.bytes()), (2, 110));
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let mut store = store(100);
        for first in [1, 2, 3] {
            put(&mut store, &[first, 0, 0], 0);
        }
        assert_eq!(store.reach(&base(), &[1, 0, 0, 7]), Some(3));
        put(&mut store, &[4, 0, 0], 0);
        let kept = [1, 2, 3, 4].map(|first| take(&mut store, &[first, 0, 0, 7]).is_some());
        assert_eq!((kept, store.bytes()), ([true, false, true, true], 90));
    }

    #[test]
    fn what_is_too_long_or_too_short_is_not_kept() {
        let mut store = store(100);
        put(&mut store, &[7, 7, 7], 0);
        put(&mut store, &[1; 11], 0);
        put(&mut store, &[1], 0);
        assert_eq!((store.len(), store.bytes()), (1, 30));
        let mut off = PrefixStore::new(PrefixLimits::OFF);
        put(&mut off, &[1, 2, 3], 0);
        assert_eq!((off.len(), off.evict()), (0, false));
        // A state that does not hold what is said of it.
        store.put(&base(), vec![1, 2, 3], Box::new(Fake { tokens: 2, floor: 0 }));
        assert_eq!(store.len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_a_beginning_that_may_be_used(
            puts in prop::collection::vec((prop::collection::vec(0_u32..3, 1..9), any::<prop::sample::Index>()), 0..20),
            prompts in prop::collection::vec(prop::collection::vec(0_u32..3, 1..9), 1..8),
            limit in 0_usize..300,
        ) {
            let mut store = store(limit);
            let mut all = Vec::new();
            for (tokens, index) in puts {
                let floor = index.index(tokens.len() + 1);
                put(&mut store, &tokens, floor);
                all.push((tokens, floor));
                prop_assert!(store.bytes() <= limit);
                let bytes: usize = store.spaces.values().flat_map(PrefixIndex::iter).map(|(_, entry)| entry.bytes).sum();
                prop_assert_eq!(store.bytes(), bytes);
            }
            for prompt in prompts {
                let reach = store.reach(&base(), &prompt);
                let taken = store.take(&base(), &prompt);
                prop_assert_eq!(reach, taken.as_ref().map(|taken| taken.tokens));
                let Some(Taken { state, tokens }) = taken else { continue };
                prop_assert!(tokens < prompt.len() && tokens >= 2);
                let (own, floor) = (state.tokens(), state.reuse_floor());
                prop_assert!(tokens == own || tokens >= floor);
                prop_assert!(all.iter().any(|(put, at)| (put.len(), *at) == (own, floor) && put[..tokens] == prompt[..tokens]));
            }
        }
    }
}
