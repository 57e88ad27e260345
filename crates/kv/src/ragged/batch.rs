//! Rows that share nothing but a step.
//!
//! Invariant: joining, leaving and reordering move rows, never what they hold.

use super::{Kit, Packed, RaggedRow, View, entry::append, recur};
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
    tensor::{Binary, Dtype, Error, ErrorKind, Reduce, Result, Tensor},
};

/// Rows that own their planes, by slot.
#[derive(Debug)]
pub struct RaggedRows {
    kit: Rc<Kit>,
    rows: BTreeMap<Slot, RaggedRow>,
    /// Parts of the open step; empty between steps.
    step: Vec<Part>,
    /// Whether something failed in it, so that it can only be given up.
    failed: bool,
    /// Booleans, one for each packed token: whether it was finite in the layers so far, or what came of a state was.
    sound: Option<Tensor>,
}

impl RaggedRows {
    /// No rows yet.
    pub fn new(kit: Rc<Kit>) -> Self {
        Self { kit, rows: BTreeMap::new(), step: Vec::new(), failed: false, sound: None }
    }

    pub(crate) fn row(&self, slot: Slot) -> Result<&RaggedRow> {
        self.rows.get(&slot).ok_or_else(|| missing(slot))
    }

    pub(crate) fn row_mut(&mut self, slot: Slot) -> Result<&mut RaggedRow> {
        self.rows.get_mut(&slot).ok_or_else(|| missing(slot))
    }

    /// Appends to the rows that keep the layer themselves, all at once.
    pub(crate) fn append_kept(&mut self, packed: &mut Packed<'_>) -> Result<()> {
        let mut parts: Vec<&Part> = Vec::with_capacity(self.step.len());
        for part in &self.step {
            let row = self.rows.get(&part.slot).ok_or_else(|| missing(part.slot))?;
            if row.layer(packed.layer()).is_some() {
                row.encode(packed, &part.tokens)?;
                parts.push(part);
            }
        }
        // Rows lie by slot.
        parts.sort_unstable_by_key(|part| part.slot);
        let mut parts = parts.into_iter().peekable();
        let mut entries = Vec::with_capacity(parts.len());
        for (slot, row) in &mut self.rows {
            if let Some(part) = parts.next_if(|part| part.slot == *slot) {
                entries.extend(row.entry(packed, &part.tokens)?);
            }
        }
        append(self.kit.device(), entries)
    }

    /// Notes whether a layer's tokens, which its rows have now, are finite.
    pub(crate) fn note_sound(&mut self, packed: &Packed<'_>) -> Result<()> {
        self.sound = packed.sound(self.sound.take())?;
        Ok(())
    }

    /// That a step is open in which nothing has failed.
    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        match (self.step.is_empty(), self.failed) {
            (true, _) => Err(state(operation, "no step is open".to_owned())),
            (_, true) => {
                Err(state(operation, "a call of the step has failed, it can only be given up".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Leaves nothing to do with the open step but to give it up, if this is an error.
    pub(crate) fn fail_with<T>(&mut self, result: Result<T>) -> Result<T> {
        self.failed |= result.is_err();
        result
    }

    /// That it is a layer's turn in every row.
    fn check_turn(&self, operation: &'static str, layer: usize) -> Result<()> {
        self.check_open(operation)?;
        self.step.iter().try_for_each(|part| self.row(part.slot)?.check_turn(operation, layer).map(drop))
    }

    /// `i32 [parts]` of the flags of packed tokens: the least of each row's own.
    fn by_row(&self, flags: &Tensor) -> Result<Tensor> {
        let device = &self.kit.device();
        let flags = device.cast(flags, Dtype::I32)?;
        let one_each = |(at, part): (usize, &Part)| part.tokens == (at..at + 1);
        if flags.elements() == self.step.len() && self.step.iter().enumerate().all(one_each) {
            return Ok(flags);
        }
        let least = |part: &Part| {
            let own = device.slice(&flags, std::slice::from_ref(&part.tokens))?;
            device.reduce(Reduce::Minimum, &own, 0)
        };
        let rows = self.step.iter().map(least).collect::<Result<Vec<_>>>()?;
        device.concat(&rows.iter().collect::<Vec<_>>(), 0)
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
        self.check_open("commit")?;
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
        (self.step, self.failed, self.sound) = (parts.to_vec(), false, None);
        if begun.is_err() {
            self.roll_back();
        }
        begun
    }

    fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let kit = Rc::clone(&self.kit);
        kit.own(layer)?;
        self.check_turn("append", layer)?;
        let mut packed = Packed::new(&kit, layer, keys, values);
        let appended = self.append_kept(&mut packed).and_then(|()| self.note_sound(&packed));
        self.fail_with(appended)
    }

    fn recur(&mut self, layer: usize, inputs: &[Tensor], recurrence: &Rc<dyn Recurrence>) -> Result<Tensor> {
        self.kit.state(layer)?;
        self.check_turn("recur", layer)?;
        let mut rows: BTreeMap<Slot, &mut RaggedRow> =
            self.rows.iter_mut().map(|(&slot, row)| (slot, row)).collect();
        let parts = self.step.iter().map(|part| {
            let row = rows.remove(&part.slot).ok_or_else(|| missing(part.slot))?;
            Ok((row, part.tokens.clone()))
        });
        let outputs = parts
            .collect::<Result<Vec<_>>>()
            .and_then(|mut rows| recur(layer, inputs, recurrence, &mut rows));
        let checked = outputs.and_then(|outputs| {
            // A token's output reads the state that the token leaves: what is not finite there shows here.
            self.sound = Some(self.kit.device().finite(self.sound.take(), &[&outputs])?);
            Ok(outputs)
        });
        self.fail_with(checked)
    }

    fn views(&self, layer: usize) -> Result<Vec<View>> {
        self.check_open("views")?;
        self.step.iter().map(|part| self.row(part.slot)?.view(layer)).collect()
    }

    fn sound(&self) -> Result<Option<Tensor>> {
        self.check_open("sound")?;
        let Some(flags) = &self.sound else { return Ok(None) };
        let flags = self.by_row(flags)?;
        let rows = self.step.iter().map(|part| Ok(self.row(part.slot)?.sound()));
        let converted = rows.collect::<Result<Vec<_>>>()?;
        if converted.iter().all(Option::is_none) {
            return Ok(Some(flags));
        }
        let device = self.kit.device();
        let fine = device.upload(&[1], Dtype::Bool, &[1])?;
        let converted: Vec<&Tensor> = converted.into_iter().map(|flag| flag.unwrap_or(&fine)).collect();
        let converted = device.cast(&device.concat(&converted, 0)?, Dtype::I32)?;
        device.binary(Binary::Minimum, flags, &converted).map(Some)
    }

    fn commit(&mut self, keep: &[usize]) -> Result<Vec<Tensor>> {
        self.check_keep(keep)?;
        // What can fail, before any row has changed.
        let slots: Vec<Slot> = self.step.iter().map(|part| part.slot).collect();
        slots.iter().zip(keep).try_for_each(|(&slot, &keep)| self.row_mut(slot)?.settle(keep))?;
        self.sound = None;
        let mut planes = Vec::new();
        for (part, &keep) in std::mem::take(&mut self.step).iter().zip(keep) {
            let row = self.row_mut(part.slot)?;
            row.commit(keep)?;
            planes.extend(row.planes().cloned());
        }
        Ok(planes)
    }

    fn roll_back(&mut self) {
        self.sound = None;
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

fn state(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::State, operation, message)
}
