//! Windows of drafts in the last step, of which a part may be kept.
//!
//! A row whose layers carry states has nothing of its tokens but what all of them left, and cannot be shortened. But a step
//! can be closed with fewer tokens than it took, as long as it is open. So one that holds such windows stays open until the
//! session is asked for anything else than to shorten its rows.

use tandem_contracts::model::{RowStep, Slot, Step, Wanted};

/// The step that is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The pool that its rows are in.
    pub(super) pool: usize,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    slot: Slot,
    /// Tokens before the step.
    position: usize,
    /// Tokens of the step that count.
    keep: usize,
}

impl Window {
    /// That of a step, if one of its rows has more than one token and wants to know of all of them.
    pub(super) fn of(step: &Step, pool: usize) -> Option<Self> {
        let drafts = |row: &RowStep| row.wanted == Wanted::All && row.tokens.len() > 1;
        let row = |row: &RowStep| Row { slot: row.slot, position: row.position, keep: row.tokens.len() };
        step.rows.iter().any(drafts).then(|| Self { pool, rows: step.rows.iter().map(row).collect() })
    }

    /// Shortens a row into the step; says whether that could be done.
    pub(super) fn trim(&mut self, slot: Slot, tokens: usize) -> bool {
        let row = self.rows.iter_mut().find(|row| row.slot == slot);
        let kept = row.and_then(|row| {
            let keep = tokens.checked_sub(row.position).filter(|keep| *keep <= row.keep)?;
            row.keep = keep;
            Some(())
        });
        kept.is_some()
    }

    /// The window without a row that is gone, if any is left.
    pub(super) fn without(mut self, slot: Slot) -> Option<Self> {
        self.rows.retain(|row| row.slot != slot);
        (!self.rows.is_empty()).then_some(self)
    }

    /// How many tokens of each row count, in the step's order.
    pub(super) fn keep(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.keep).collect()
    }
}
