//! Checks a step and packs it: ids, positions, and the tokens that want logits.
//!
//! Invariant: a plan exists only for a step that every open row can take; making one changes nothing.

use super::pool::Pool;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use tandem_contracts::{
    model::{AdapterSet, Capabilities, RowStep, Slot, Step, TokenSource, Wanted},
    tensor::{Error, ErrorKind, Result},
    text::TokenId,
};
use tandem_kv::rows::Part;

/// A checked step, as the layers take it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Packed token ids; 0 where the token is not known.
    pub(super) ids: Vec<i32>,
    /// Packed indices of such tokens, and the slots that have sampled them.
    pub(super) unread: Vec<(usize, Slot)>,
    /// Position of each in its row.
    pub(super) positions: Vec<i32>,
    /// Rows in the step's order, with their ranges of the packed tokens.
    pub(super) parts: Vec<Part>,
    /// Packed indices that want logits, ascending.
    pub(super) wanted: Vec<i32>,
    /// Sets of adapters, and ranges of the packed tokens whose rows have them.
    pub(super) adapted: BTreeMap<AdapterSet, Vec<Range<usize>>>,
}

impl Plan {
    /// Checks every row against what its slot holds; `mounted` tells the sets of adapters that there are.
    pub(super) fn new(
        step: &Step,
        pool: &Pool,
        capabilities: &Capabilities,
        mounted: impl Fn(AdapterSet) -> bool,
    ) -> Result<Self> {
        let mut plan = Self::default();
        let mut slots = BTreeSet::new();
        for part in &step.rows {
            if !slots.insert(part.slot) {
                return Err(state(format!("slot occurs twice: {}", part.slot.0)));
            }
            let held = pool.rows.tokens(part.slot)?;
            if held != part.position {
                let slot = part.slot.0;
                return Err(state(format!(
                    "slot {slot} holds {held} tokens, the step says: {}",
                    part.position
                )));
            }
            if !mounted(part.adapters) {
                return Err(unsupported(format!("no such adapters are mounted: {}", part.adapters.0)));
            }
            let ids = match &part.tokens {
                TokenSource::Ids(ids) => ids.as_slice(),
                // Its place in the packed ids, until the device puts the token there.
                TokenSource::Register(slot) => {
                    plan.unread.push((plan.ids.len(), *slot));
                    &[0]
                }
            };
            check(part, ids, capabilities)?;
            if let Some(limit) = pool.policy.limit(held).filter(|limit| *limit < ids.len()) {
                return Err(Error::index(
                    "step",
                    format!("precision changes {limit} tokens from here, got: {}", ids.len()),
                ));
            }
            plan.push(part, ids)?;
        }
        Ok(plan)
    }

    fn push(&mut self, part: &RowStep, ids: &[TokenId]) -> Result<()> {
        let range = self.ids.len()..self.ids.len() + ids.len();
        let narrow = |value: usize| {
            i32::try_from(value).map_err(|_| Error::index("step", format!("too many tokens: {value}")))
        };
        for (offset, &id) in ids.iter().enumerate() {
            self.ids.push(narrow(id as usize)?);
            self.positions.push(narrow(part.position + offset)?);
        }
        let first_wanted = match part.wanted {
            Wanted::None => range.end,
            Wanted::Last => range.end - 1,
            Wanted::All => range.start,
        };
        for index in first_wanted..range.end {
            self.wanted.push(narrow(index)?);
        }
        if part.adapters != AdapterSet::BASE {
            let ranges = self.adapted.entry(part.adapters).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range.clone()),
            }
        }
        self.parts.push(Part { slot: part.slot, tokens: range });
        Ok(())
    }
}

/// Checks a row's token ids.
fn check(part: &RowStep, ids: &[TokenId], capabilities: &Capabilities) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::index("step", format!("no token for slot: {}", part.slot.0)));
    }
    let (vocabulary, context) = (capabilities.vocabulary, capabilities.context);
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
        return Err(Error::index("step", format!("token id outside the vocabulary of {vocabulary}: {id}")));
    }
    match part.position.checked_add(ids.len()) {
        Some(end) if end <= context => Ok(()),
        _ => {
            let (held, slot) = (part.position, part.slot.0);
            let message =
                format!("slot {slot} of {held} tokens cannot take {} in a context of: {context}", ids.len());
            Err(Error::index("step", message))
        }
    }
}

fn state(message: String) -> Error {
    Error::new(ErrorKind::State, "step", message)
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, "step", message)
}
