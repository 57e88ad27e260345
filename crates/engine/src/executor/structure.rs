//! Rows that grammars bind: what may come next is found out beside the device's work.
//!
//! A row lends its grammar to the step that carries it, and gets it back when the step is done. In between the grammar is with
//! a thread of its own, as the device computes on this one.
//!
//! Invariants: a grammar comes back in the state in which it was lent; one that fails ends its own row and no other.

use super::Executor;
use crate::error::panic_message;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};
use tandem_contracts::{
    grammar::{Matcher, Progress},
    model::{Slot, Step},
    request::Failure,
    text::TokenId,
};

/// A set of ids for each place at which a row chooses; see [`Matcher::allowed`].
pub(super) type Sets = Vec<Vec<u32>>;

/// A grammar that a row has lent.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) slot: Slot,
    grammar: Box<dyn Matcher>,
    drafts: Vec<TokenId>,
    /// What may be chosen; empty as long as nobody has looked.
    allowed: Result<Sets, Failure>,
}

impl Bound {
    fn look(&mut self) {
        let looked = catch_unwind(AssertUnwindSafe(|| self.sets_of_window()));
        self.allowed = looked.unwrap_or_else(|payload| {
            tracing::error!(panic = panic_message(payload.as_ref()), "a grammar panicked");
            Err(Failure { message: "the answer's grammar could not be followed".to_owned() })
        });
    }

    /// What may be chosen next, and behind each draft up to one that may not be chosen itself.
    fn sets_of_window(&mut self) -> Result<Sets, Failure> {
        let (mut sets, mut taken) = (vec![self.grammar.allowed()?], 0);
        for &draft in &self.drafts {
            let word = sets.last().and_then(|set| set.get(draft as usize / 32)).copied().unwrap_or(0);
            if word >> (draft % 32) & 1 == 0 {
                break;
            }
            taken += 1;
            if self.grammar.accept(draft)? == Progress::Complete {
                break;
            }
            sets.push(self.grammar.allowed()?);
        }
        self.grammar.take_back(taken)?;
        Ok(sets)
    }

    /// What is known of what may be chosen.
    pub(super) fn sets(&self) -> &[Vec<u32>] {
        self.allowed.as_deref().unwrap_or_default()
    }
}

/// Works, and finds out beside it what these grammars allow.
pub(super) fn beside<T>(bound: &mut [Bound], work: impl FnOnce() -> T) -> T {
    if bound.is_empty() {
        return work();
    }
    thread::scope(|scope| {
        scope.spawn(|| bound.iter_mut().for_each(Bound::look));
        work()
    })
}

impl Executor {
    /// The grammars of the rows that choose in a step.
    pub(super) fn lend_grammars(&mut self, step: &Step) -> Vec<Bound> {
        let rows = self.rows.iter_mut().filter_map(|row| {
            let part = step.rows.iter().find(|part| part.slot == row.slot)?;
            let (grammar, drafts) = row.lend_grammar(part)?;
            Some(Bound { slot: row.slot, grammar, drafts, allowed: Ok(Sets::new()) })
        });
        rows.collect()
    }

    /// Gives them back, with the failure where there was one.
    pub(super) fn return_grammars(&mut self, bound: Vec<Bound>) {
        for Bound { slot, grammar, allowed, .. } in bound {
            if let Some(row) = self.rows.iter_mut().find(|row| row.slot == slot) {
                row.return_grammar(grammar, allowed.err());
            }
        }
    }
}
