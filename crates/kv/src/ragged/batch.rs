//! Rows that share nothing but a step.
//!
//! Invariant: joining, leaving and reordering move rows, never what they hold.

use super::{Kit, Packed, RaggedRow, View, recur};
use crate::{
    recurrence::Recurrence,
    rows::{Part, Rows},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use tandem_contracts::{
    model::Slot,
    tensor::{Error, ErrorKind, Result, Tensor},
};

/// Rows that own their planes, by slot.
#[derive(Debug)]
pub struct RaggedRows {
    kit: Rc<Kit>,
    rows: BTreeMap<Slot, RaggedRow>,
    /// Parts of the open step; empty between steps.
    step: Vec<Part>,
}

impl RaggedRows {
    /// No rows yet.
    pub fn new(kit: Rc<Kit>) -> Self {
        Self { kit, rows: BTreeMap::new(), step: Vec::new() }
    }

    pub(crate) fn row(&self, slot: Slot) -> Result<&RaggedRow> {
        self.rows.get(&slot).ok_or_else(|| missing(slot))
    }

    pub(crate) fn row_mut(&mut self, slot: Slot) -> Result<&mut RaggedRow> {
        self.rows.get_mut(&slot).ok_or_else(|| missing(slot))
    }

    /// Appends to the rows that keep the layer themselves.
    pub(crate) fn append_kept(&mut self, packed: &mut Packed<'_>) -> Result<()> {
        let rows = &mut self.rows;
        self.step.iter().try_for_each(|part| {
            let row = rows.get_mut(&part.slot).ok_or_else(|| missing(part.slot))?;
            match row.layer(packed.layer()) {
                Some(_) => row.append(packed, part.tokens.clone()),
                None => Ok(()),
            }
        })
    }

    /// That a slot is free, and that a row can live among these.
    fn check_join(&self, slot: Slot, row: &RaggedRow) -> Result<()> {
        if self.rows.contains_key(&slot) {
            return Err(state("join", format!("slot is taken: {}", slot.0)));
        }
        if !Rc::ptr_eq(row.kit(), &self.kit) {
            return Err(state("join", "the row is of another kit".to_owned()));
        }
        row.check_idle()
    }

    pub(crate) fn check_step(&self, parts: &[Part]) -> Result<()> {
        if !self.step.is_empty() {
            return Err(state("begin", "a step is open".to_owned()));
        }
        if parts.is_empty() {
            return Err(Error::index("begin", "the step has no row"));
        }
        let mut slots = BTreeSet::new();
        parts.iter().try_for_each(|part| {
            if !slots.insert(part.slot) {
                return Err(state("begin", format!("slot occurs twice: {}", part.slot.0)));
            }
            self.row(part.slot)?.check_idle()
        })
    }

    pub(crate) fn check_keep(&self, keep: &[usize]) -> Result<()> {
        if self.step.is_empty() {
            return Err(no_step());
        }
        if keep.len() != self.step.len() {
            return Err(Error::index("commit", format!("a step of {} rows, got: {keep:?}", self.step.len())));
        }
        self.step.iter().zip(keep).try_for_each(|(part, &keep)| self.row(part.slot)?.check_commit(keep))
    }
}

impl Rows for RaggedRows {
    fn kit(&self) -> &Rc<Kit> {
        &self.kit
    }

    fn contains(&self, slot: Slot) -> bool {
        self.rows.contains_key(&slot)
    }

    fn tokens(&self, slot: Slot) -> Result<usize> {
        let row = self.row(slot)?;
        row.check_idle()?;
        Ok(row.tokens())
    }

    fn floor(&self, slot: Slot) -> Result<usize> {
        let row = self.row(slot)?;
        row.check_idle()?;
        Ok(row.floor())
    }

    fn join(&mut self, slot: Slot, row: RaggedRow) -> Result<()> {
        self.check_join(slot, &row)?;
        self.rows.insert(slot, row);
        Ok(())
    }

    fn leave(&mut self, slot: Slot) -> Result<RaggedRow> {
        self.row(slot)?.check_idle()?;
        self.rows.remove(&slot).ok_or_else(|| missing(slot))
    }

    fn discard(&mut self, slot: Slot) {
        self.rows.remove(&slot);
        self.step.retain(|part| part.slot != slot);
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        let copy = self.row(from)?.fork()?;
        self.join(to, copy)
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        self.row_mut(slot)?.trim(tokens)
    }

    fn begin(&mut self, parts: &[Part]) -> Result<()> {
        self.check_step(parts)?;
        let begun = parts.iter().try_for_each(|part| self.row_mut(part.slot)?.begin(part.tokens.len()));
        self.step = parts.to_vec();
        if begun.is_err() {
            self.roll_back();
        }
        begun
    }

    fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let kit = Rc::clone(&self.kit);
        kit.own(layer)?;
        if self.step.is_empty() {
            return Err(no_step());
        }
        self.append_kept(&mut Packed::new(&kit, layer, keys, values))
    }

    fn recur(&mut self, layer: usize, inputs: &[Tensor], recurrence: &Rc<dyn Recurrence>) -> Result<Tensor> {
        if self.step.is_empty() {
            return Err(no_step());
        }
        let mut rows: BTreeMap<Slot, &mut RaggedRow> =
            self.rows.iter_mut().map(|(&slot, row)| (slot, row)).collect();
        let parts = self.step.iter().map(|part| {
            let row = rows.remove(&part.slot).ok_or_else(|| missing(part.slot))?;
            Ok((row, part.tokens.clone()))
        });
        recur(layer, inputs, recurrence, &mut parts.collect::<Result<Vec<_>>>()?)
    }

    fn views(&self, layer: usize) -> Result<Vec<View>> {
        if self.step.is_empty() {
            return Err(no_step());
        }
        self.step.iter().map(|part| self.row(part.slot)?.view(layer)).collect()
    }

    fn sound(&mut self) -> Result<Option<Tensor>> {
        if self.step.is_empty() {
            return Err(no_step());
        }
        let slots: Vec<Slot> = self.step.iter().map(|part| part.slot).collect();
        let flags = slots.iter().map(|slot| self.row_mut(*slot)?.take_sound()).collect::<Result<Vec<_>>>()?;
        if flags.iter().all(Option::is_none) {
            return Ok(None);
        }
        let device = self.kit.device();
        let fine = device.upload_i32(&[1], &[1])?;
        let flags: Vec<&Tensor> = flags.iter().map(|flag| flag.as_ref().unwrap_or(&fine)).collect();
        device.concat(&flags, 0).map(Some)
    }

    fn commit(&mut self, keep: &[usize]) -> Result<Vec<Tensor>> {
        self.check_keep(keep)?;
        // What can fail, before any row has changed.
        let slots: Vec<Slot> = self.step.iter().map(|part| part.slot).collect();
        slots.iter().zip(keep).try_for_each(|(&slot, &keep)| self.row_mut(slot)?.settle(keep))?;
        let mut planes = Vec::new();
        for (part, &keep) in std::mem::take(&mut self.step).iter().zip(keep) {
            let row = self.row_mut(part.slot)?;
            row.commit(keep)?;
            planes.extend(row.planes().cloned());
        }
        Ok(planes)
    }

    fn roll_back(&mut self) {
        for part in std::mem::take(&mut self.step) {
            if let Some(row) = self.rows.get_mut(&part.slot) {
                row.roll_back();
            }
        }
    }
}

fn missing(slot: Slot) -> Error {
    state("rows", format!("slot is not open: {}", slot.0))
}

fn no_step() -> Error {
    state("rows", "no step is open".to_owned())
}

fn state(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::State, operation, message)
}
