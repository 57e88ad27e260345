//! Where a row's first tokens come from: a stored state, an older row that lives, or steps of its own.
//!
//! ```text
//!   a stored state shares n tokens  --> the row begins with a fork of it, shortened to n
//!   an older row shares n tokens    --> the row waits until that one holds n, and begins with a fork of it
//!   neither, or its prompt is scored --> the row begins empty
//! ```
//!
//! So requests that come together and begin alike, be they samples of one prompt, compute what they share once.
//!
//! Invariants: whatever goes wrong with a shared beginning costs time and no answer, as the row begins empty then; a row waits
//! for older ones alone, and the oldest for none; a state is kept only of a row that ended well; a row whose execution has no
//! prompt cache neither takes nor gives, as its tokens do not say all of what it holds.

use super::{
    Course, Executor,
    fault::{Fault, guard},
};
use crate::{
    prefix::{Namespace, Taken},
    row::{Row, failed},
};
use std::collections::BTreeMap;
use tandem_contracts::{
    model::{RowState, Slot},
    request::Outcome,
    tensor::Tensor,
    text::TokenId,
};
use tandem_kv::prefix::common;

/// How a row begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// Empty.
    Empty,
    /// With the stored state that reaches furthest.
    Stored,
    /// With the first tokens of a live row.
    Live { slot: Slot, tokens: usize },
    /// Later: an older row, by index, does not hold these tokens yet.
    Later { older: usize, tokens: usize },
}

impl Executor {
    /// Opens the rows that can begin now, and says to the rows that others wait for where they wait.
    pub(super) fn open_rows(&mut self) {
        self.rows.iter_mut().for_each(Row::forget_cut);
        let mut lost = BTreeMap::new();
        for index in 0..self.rows.len() {
            if self.rows[index].is_open() {
                continue;
            }
            let beginning = self.beginning(index);
            if let Beginning::Later { older, tokens } = beginning {
                self.rows[older].cut_at(tokens);
            } else if let Err(fault) = self.open(index, beginning) {
                lost.insert(self.rows[index].slot, failed(fault.message));
            }
        }
        if !lost.is_empty() {
            self.retire(|row| lost.remove(&row.slot));
        }
    }

    fn beginning(&mut self, index: usize) -> Beginning {
        let (older, younger) = self.rows.split_at(index);
        if !younger[0].reuses() || younger[0].is_scored() {
            return Beginning::Empty;
        }
        let (space, prompt) = (younger[0].space(), younger[0].tokens());
        let stored = self.prefix.reach(&space, prompt);
        // The last token is computed in any case, as its logits are wanted.
        let most = prompt.len().saturating_sub(1);
        let trimmable = self.capabilities.trimmable;
        let alike = |row: &&Row| !row.cancelled && row.reuses() && row.space() == space;
        let candidates = older.iter().enumerate().filter(|(_, row)| alike(row));
        let shared = candidates.map(|(index, row)| (common(row.tokens(), prompt).min(most), index, row));
        let usable = shared.filter(|(tokens, _, row)| trimmable || row.computed() <= *tokens);
        let best = usable.max_by_key(|(tokens, index, row)| (*tokens, row.computed(), usize::MAX - index));
        let empty = if stored.is_some() { Beginning::Stored } else { Beginning::Empty };
        let Some((tokens, older, row)) = best else { return empty };
        if !self.prefix.wants(tokens) || stored.is_some_and(|stored| stored >= tokens) {
            return empty;
        }
        match row.is_open() && row.computed() >= tokens {
            true => Beginning::Live { slot: row.slot, tokens },
            false => Beginning::Later { older, tokens },
        }
    }

    fn open(&mut self, index: usize, beginning: Beginning) -> Result<(), Fault> {
        let slot = self.rows[index].slot;
        let held = match beginning {
            Beginning::Stored => self.stored(index),
            Beginning::Live { slot: from, tokens } => self.forked(from, slot, tokens),
            Beginning::Empty | Beginning::Later { .. } => None,
        };
        if held.is_none() && self.course != Course::Broken {
            let policy = self.policy(self.rows[index].policy).clone();
            let session = &mut self.parts.session;
            guard("open", || session.open(slot, &policy, None))?;
        }
        let held = held.unwrap_or(0);
        self.metrics.begun += 1;
        self.metrics.reused += u64::from(held > 0);
        self.metrics.cached_tokens += held as u64;
        self.rows[index].begin(held, self.parts.clock.now());
        Ok(())
    }

    /// Begins a row with a stored state; gives its tokens, or none where that did not work.
    fn stored(&mut self, index: usize) -> Option<usize> {
        let row = &self.rows[index];
        let (slot, space, policy) = (row.slot, row.space(), self.policy(row.policy).clone());
        let Taken { state, tokens } = self.prefix.take(&space, row.tokens())?;
        let session = &mut self.parts.session;
        let held = state.tokens();
        let opened = guard("open", || {
            session.open(slot, &policy, Some(state))?;
            if tokens < held { session.trim(slot, tokens) } else { Ok(()) }
        });
        self.unless_lost(slot, opened).map(|()| tokens)
    }

    /// Begins a row with the first tokens of a live one.
    fn forked(&mut self, from: Slot, to: Slot, tokens: usize) -> Option<usize> {
        let held = self.rows.iter().find(|row| row.slot == from)?.computed();
        let session = &mut self.parts.session;
        let forked = guard("fork", || {
            session.fork(from, to)?;
            if tokens < held { session.trim(to, tokens) } else { Ok(()) }
        });
        self.unless_lost(to, forked).map(|()| tokens)
    }

    /// What a slot was to get; where it did not, the slot is closed.
    fn unless_lost<T>(&mut self, slot: Slot, given: Result<T, Fault>) -> Option<T> {
        match given {
            Ok(given) => Some(given),
            Err(_) => {
                self.release(slot);
                None
            }
        }
    }

    /// Closes the slot of a row that leaves, and keeps its state where it ended well and somebody may go on from it.
    pub(super) fn let_go(&mut self, row: &Row, outcome: &Outcome) {
        let well = !matches!(outcome, Outcome::Failed(_)) && self.course < Course::Stopped;
        let kept = row.reuses() && self.prefix.wants(row.computed());
        if !(well && row.is_open() && kept) {
            return self.release(row.slot);
        }
        let ahead = self.is_ahead(row.slot);
        if ahead && !self.capabilities.trimmable {
            // It holds a token too many.
            return self.release(row.slot);
        }
        let session = &mut self.parts.session;
        let closed = guard("close", || {
            if ahead {
                session.trim(row.slot, row.computed())?;
            }
            session.close(row.slot)
        });
        if let Some(state) = self.unless_lost(row.slot, closed) {
            self.keep(row.space(), row.computed_tokens().to_vec(), state);
        }
    }

    /// Keeps the states of rows that have just come to the end of their prompts and could not be shortened to it later.
    pub(super) fn keep_boundaries(&mut self) {
        let ready = self.rows.iter().filter(|row| row.reuses() && row.is_at_boundary());
        let ready: Vec<Slot> = ready.map(|row| row.slot).collect();
        for from in ready {
            let to = self.free_slot();
            let session = &mut self.parts.session;
            let state = guard("boundary", || {
                session.fork(from, to)?;
                session.close(to)
            });
            let state = self.unless_lost(to, state);
            let row = self.rows.iter().find(|row| row.slot == from);
            let named = row.map(|row| (row.space(), row.computed_tokens().to_vec()));
            if let (Some(state), Some((space, tokens))) = (state, named) {
                self.keep(space, tokens, state);
            }
        }
    }

    fn keep(&mut self, space: Namespace, tokens: Vec<TokenId>, state: Box<dyn RowState>) {
        let device = &self.parts.device;
        if device.traits().deferred {
            // A state that is not computed yet would hold on to all that it is computed from.
            let planes = state.planes();
            let evaluated = guard("keep", || device.eval(&planes.iter().collect::<Vec<&Tensor>>()));
            if evaluated.is_err() {
                return;
            }
        }
        self.prefix.put(&space, tokens, state);
    }

    /// Drops stored states until they and the rows fit the device's budget together.
    pub(super) fn make_room(&mut self) {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        while self.projected.saturating_add(self.prefix.bytes()) > limit && self.prefix.evict() {}
    }
}
