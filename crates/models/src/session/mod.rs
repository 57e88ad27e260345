//! The model port's session over rows that own their caches.
//!
//! Invariants: a step is checked whole before anything runs; rows' counts move together at its end, or not at all;
//! positions are those before the step. After a device failure the rows that lost a plane say so in every later
//! call, and can only be closed.

mod plan;

use crate::{
    dense::Decoder,
    layer::{PackedRow, Pass, Rows, not_open},
};
use plan::Plan;
use std::{collections::btree_map::Entry, rc::Rc};
use tandem_contracts::{
    model::{Capabilities, RowState, Session, Slot, StatePolicy, Step, Stepped},
    tensor::{Device, Error, ErrorKind, Precision, Result, Tensor},
};
use tandem_kv::{Geometry, Row};

/// A loaded decoder and its open rows.
#[derive(Debug)]
pub(crate) struct DecoderSession {
    device: Device,
    decoder: Decoder,
    /// Rows of this session are known by sharing it.
    geometry: Rc<Geometry>,
    capabilities: Capabilities,
    precision: Precision,
    rows: Rows,
}

impl DecoderSession {
    pub(crate) fn new(
        device: &Device,
        decoder: Decoder,
        geometry: Geometry,
        capabilities: Capabilities,
        precision: Precision,
    ) -> Self {
        let (device, geometry) = (Rc::clone(device), Rc::new(geometry));
        Self { device, decoder, geometry, capabilities, precision, rows: Rows::new() }
    }

    /// Opens the rows' steps, runs the layers, and makes logits.
    fn run(&mut self, plan: &Plan) -> Result<Option<Tensor>> {
        for PackedRow { slot, tokens } in &plan.packed {
            self.row(*slot)?.begin(tokens.len())?;
        }
        let upload = |values: &[i32]| self.device.upload_i32(values, &[values.len()]);
        let (ids, positions) = (upload(&plan.ids)?, upload(&plan.positions)?);
        let mut pass = Pass {
            device: &self.device,
            precision: self.precision,
            positions: &positions,
            packed: &plan.packed,
            rows: &mut self.rows,
        };
        let x = self.decoder.forward(&ids, &mut pass)?;
        match plan.wanted.len() {
            0 => Ok(None),
            all if all == plan.ids.len() => self.decoder.logits(&x, &pass).map(Some),
            _ => {
                let wanted = self.device.take(&x, &upload(&plan.wanted)?, 0)?;
                self.decoder.logits(&wanted, &pass).map(Some)
            }
        }
    }

    fn row(&mut self, slot: Slot) -> Result<&mut Row> {
        self.rows.get_mut(&slot).ok_or_else(|| not_open(slot))
    }

    fn require_free(&self, slot: Slot) -> Result<()> {
        if !self.rows.contains_key(&slot) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::State, "session", format!("slot is open already: {}", slot.0)))
    }

    /// A row of this session behind a stored state.
    fn resume(&self, state: Box<dyn RowState>) -> Result<Row> {
        let foreign = || Error::new(ErrorKind::State, "open", "the state is of another session");
        let row = *state.into_any().downcast::<Row>().map_err(|_| foreign())?;
        if !Rc::ptr_eq(row.geometry(), &self.geometry) {
            return Err(foreign());
        }
        row.check_idle()?;
        Ok(row)
    }
}

impl Session for DecoderSession {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn project_bytes(&self, policy: &StatePolicy, tokens: usize) -> usize {
        match policy {
            StatePolicy::Plain => self.geometry.bytes(tokens),
        }
    }

    fn open(&mut self, slot: Slot, policy: &StatePolicy, state: Option<Box<dyn RowState>>) -> Result<()> {
        self.require_free(slot)?;
        let StatePolicy::Plain = policy;
        let row = match state {
            Some(state) => self.resume(state)?,
            None => Row::new(Rc::clone(&self.device), Rc::clone(&self.geometry)),
        };
        self.rows.insert(slot, row);
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> Result<Box<dyn RowState>> {
        let row = self.rows.remove(&slot).ok_or_else(|| not_open(slot))?;
        Ok(Box::new(row))
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        self.require_free(to)?;
        let copy = self.row(from)?.fork()?;
        self.rows.insert(to, copy);
        Ok(())
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        self.row(slot)?.trim(tokens)
    }

    fn step(&mut self, step: &Step) -> Result<Stepped> {
        let plan = Plan::new(step, &self.rows, &self.capabilities)?;
        match self.run(&plan) {
            Ok(logits) => {
                let mut touched = Vec::new();
                for PackedRow { slot, .. } in &plan.packed {
                    // Every layer appended to every row, so that all of these succeed.
                    let row = self.row(*slot)?;
                    row.commit()?;
                    touched.extend(row.planes().cloned());
                }
                Ok(Stepped { logits, touched })
            }
            Err(error) => {
                for PackedRow { slot, .. } in &plan.packed {
                    if let Entry::Occupied(mut row) = self.rows.entry(*slot) {
                        row.get_mut().roll_back();
                    }
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
