//! The model port's session over cache rows.
//!
//! Invariants: a step is checked whole before anything runs; rows' counts move together at its end, or not at all;
//! positions are those before the step. After a device failure the rows that lost a plane say so in every later
//! call, and can only be discarded. Whatever looks at rows first closes a step that a [`Window`] has left open.

mod plan;
mod pool;
mod register;
mod window;

use crate::{
    dense::Decoder,
    error,
    layer::{Adapted, Modules, Pass, Residuals},
    weights::Adapter,
};
use plan::Plan;
pub(crate) use pool::Layers;
use pool::Pool;
use register::Register;
use std::{any::Any, collections::BTreeMap, rc::Rc};
use tandem_contracts::{
    model::{AdapterSet, Capabilities, RowState, Session, Slot, StatePolicy, Step, Stepped},
    tensor::{Device, Error, ErrorKind, Precision, Result, Tensor},
};
use tandem_kv::{
    Blueprint, Kind,
    ragged::RaggedRow,
    rows::{Part, Rows},
};
use window::Window;

/// A decoder and what came of loading it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) decoder: Decoder,
    /// What adapters can be for.
    pub(crate) modules: Modules,
    /// What was asked for and not done: lines for people.
    pub(crate) notes: Vec<String>,
}

/// A loaded decoder and its open rows.
#[derive(Debug)]
pub struct DecoderSession {
    device: Device,
    model: Model,
    layers: Layers,
    capabilities: Capabilities,
    precision: Precision,
    /// One for each policy that was asked for. They stay, so that stored rows can come back.
    pools: Vec<Pool>,
    /// Where each open slot's row is.
    slots: BTreeMap<Slot, usize>,
    /// The last step, where it is still open.
    window: Option<Window>,
    /// What rows have sampled and nobody has read, until the next step.
    register: Option<Register>,
    /// What each mounted set adds.
    adapters: BTreeMap<AdapterSet, Residuals>,
}

impl DecoderSession {
    pub(crate) fn new(
        device: &Device,
        model: Model,
        layers: Layers,
        capabilities: Capabilities,
        precision: Precision,
    ) -> Self {
        let (pools, slots, adapters) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (window, register) = (None, None);
        let device = Rc::clone(device);
        Self { device, model, layers, capabilities, precision, pools, slots, window, register, adapters }
    }

    /// What loading was asked for and has not done, each with its reason: lines for people.
    pub fn notes(&self) -> &[String] {
        &self.model.notes
    }

    /// Mounts adapters as one set, which steps may name from now on: its rows get the sum of what they add. No adapter is
    /// the bare model.
    ///
    /// # Errors
    /// An adapter that does not fit the model; the error names the module, and nothing is mounted. Or the device's own.
    pub fn mount(&mut self, adapters: &[&Adapter]) -> error::Result<AdapterSet> {
        if adapters.is_empty() {
            return Ok(AdapterSet::BASE);
        }
        let residuals = Residuals::new(adapters, &self.model.modules, &self.device)?;
        let AdapterSet(last) = self.adapters.keys().next_back().copied().unwrap_or(AdapterSet::BASE);
        let set = AdapterSet(
            last.checked_add(1).ok_or_else(|| Error::index("mount", "too many sets of adapters"))?,
        );
        self.adapters.insert(set, residuals);
        Ok(set)
    }

    /// Closes a step that was left open. The planes that it writes are not kept, so that the next appends find them unshared;
    /// what its rows do next is made of them.
    ///
    /// # Errors
    /// The device's own, where layers take a part of their tokens again; the step stays open then.
    fn settle(&mut self) -> Result<()> {
        if let Some(window) = &self.window {
            self.pools[window.pool].rows.commit(&window.keep())?;
            self.window = None;
        }
        Ok(())
    }

    /// Whether a layer carries a state, so that rows cannot be shortened.
    fn carries_states(&self) -> bool {
        self.layers.kinds.iter().any(|kind| matches!(kind, Kind::Recurrent(_)))
    }

    /// The rows of a policy.
    fn pool(&mut self, policy: &StatePolicy) -> Result<usize> {
        if let Some(index) = self.pools.iter().position(|pool| pool.policy == *policy) {
            return Ok(index);
        }
        self.pools.push(Pool::open(&self.device, &self.layers, policy)?);
        Ok(self.pools.len() - 1)
    }

    /// The pool that a slot's row is in.
    fn place(&self, slot: Slot) -> Result<usize> {
        self.slots.get(&slot).copied().ok_or_else(|| not_open(slot))
    }

    fn rows(&mut self, slot: Slot) -> Result<&mut dyn Rows> {
        let pool = self.place(slot)?;
        Ok(self.pools[pool].rows.as_mut())
    }

    fn require_free(&self, slot: Slot) -> Result<()> {
        if !self.slots.contains_key(&slot) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::State, "session", format!("slot is open already: {}", slot.0)))
    }

    /// The pool of a step's rows, who must all be in one.
    fn pool_of(&self, step: &Step) -> Result<usize> {
        let mut pools = step.rows.iter().map(|part| self.place(part.slot));
        let first = pools.next().ok_or_else(|| Error::index("step", "the step has no row"))??;
        pools.try_for_each(|pool| match pool? == first {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::State, "step", "the step's rows are kept in different ways")),
        })?;
        Ok(first)
    }

    /// Runs the layers over an opened step, and makes logits.
    fn run(&mut self, pool: usize, plan: &Plan) -> Result<Forward> {
        let upload = |values: &[i32]| self.device.upload_i32(values, &[values.len()]);
        let ids = Register::pack(self.register.as_ref(), plan, &self.device)?;
        let positions = upload(&plan.positions)?;
        let sets = plan.adapted.iter();
        let adapted: Vec<_> = sets
            .filter_map(|(set, tokens)| Some(Adapted { tokens, residuals: self.adapters.get(set)? }))
            .collect();
        let mut pass = Pass {
            device: &self.device,
            precision: self.precision,
            positions: &positions,
            parts: &plan.parts,
            adapted: &adapted,
            rows: self.pools[pool].rows.as_mut(),
        };
        let x = self.model.decoder.forward(&ids, &mut pass)?;
        let logits = match plan.wanted.len() {
            0 => None,
            all if all == plan.ids.len() => Some(self.model.decoder.logits(&x, &pass)?),
            _ => {
                let wanted = self.device.take(&x, &upload(&plan.wanted)?, 0)?;
                Some(self.model.decoder.logits(&wanted, &pass)?)
            }
        };
        Ok(Forward { logits, sound: pass.rows.sound()? })
    }
}

/// What the layers gave.
struct Forward {
    logits: Option<Tensor>,
    sound: Option<Tensor>,
}

impl Session for DecoderSession {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn project_bytes(&self, policy: &StatePolicy, rows: &[usize], step: usize) -> Result<usize> {
        let need = |blueprint: &Blueprint| self.layers.layout.need(blueprint, rows, step);
        match self.pools.iter().find(|pool| pool.policy == *policy) {
            Some(pool) => need(pool.rows.kit().blueprint()),
            None => need(&self.layers.blueprint(policy)?.0),
        }
    }

    fn exemptions(&self, policy: &StatePolicy) -> Result<Vec<String>> {
        let (blueprint, exemptions) = self.layers.blueprint(policy)?;
        let unpaged = self.layers.layout.unpaged(&blueprint);
        let unpaged = unpaged.iter().map(ToString::to_string);
        Ok(exemptions.iter().map(ToString::to_string).chain(unpaged).collect())
    }

    fn open(&mut self, slot: Slot, policy: &StatePolicy, state: Option<Box<dyn RowState>>) -> Result<()> {
        self.require_free(slot)?;
        self.settle()?;
        let index = self.pool(policy)?;
        let rows = self.pools[index].rows.as_mut();
        let row = match state {
            None => RaggedRow::new(Rc::clone(rows.kit())),
            Some(state) => *state.into_any().downcast().map_err(|_| foreign("open"))?,
        };
        rows.join(slot, row)?;
        self.slots.insert(slot, index);
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> Result<Box<dyn RowState>> {
        self.settle()?;
        let row = self.rows(slot)?.leave(slot)?;
        self.slots.remove(&slot);
        Ok(Box::new(row))
    }

    fn discard(&mut self, slot: Slot) {
        if let Some(index) = self.slots.remove(&slot) {
            self.pools[index].rows.discard(slot);
            // With its last row a step is closed.
            self.window = self.window.take().and_then(|window| window.without(slot));
        }
    }

    fn snapshot(&self, state: &dyn RowState, model: &[u8]) -> Result<Vec<u8>> {
        let row = (state as &dyn Any).downcast_ref::<RaggedRow>().ok_or_else(|| foreign("snapshot"))?;
        if !self.pools.iter().any(|pool| Rc::ptr_eq(pool.rows.kit(), row.kit())) {
            return Err(foreign("snapshot"));
        }
        row.snapshot(model)
    }

    fn restore(&mut self, policy: &StatePolicy, model: &[u8], bytes: &[u8]) -> Result<Box<dyn RowState>> {
        let restore = |pool: &Pool| RaggedRow::restore(Rc::clone(pool.rows.kit()), model, bytes);
        if let Some(pool) = self.pools.iter().find(|pool| pool.policy == *policy) {
            return Ok(Box::new(restore(pool)?));
        }
        // Bytes that are refused leave no pool behind.
        let pool = Pool::open(&self.device, &self.layers, policy)?;
        let row = restore(&pool)?;
        self.pools.push(pool);
        Ok(Box::new(row))
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        self.require_free(to)?;
        let index = self.place(from)?;
        self.settle()?;
        self.pools[index].rows.fork(from, to)?;
        self.slots.insert(to, index);
        Ok(())
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        if self.window.as_mut().is_some_and(|window| window.trim(slot, tokens)) {
            return Ok(());
        }
        self.settle()?;
        self.rows(slot)?.trim(slot, tokens)
    }

    fn register(&mut self, slots: &[Slot], sampled: &Tensor) -> Result<()> {
        self.register = Some(Register::new(&self.device, slots, sampled)?);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Stepped> {
        self.settle()?;
        let pool = self.pool_of(step)?;
        let sets = |set: AdapterSet| set == AdapterSet::BASE || self.adapters.contains_key(&set);
        let plan = Plan::new(step, &self.pools[pool], &self.capabilities, sets)?;
        self.pools[pool].rows.begin(&plan.parts)?;
        let forward = self.run(pool, &plan);
        self.register = None;
        let rows = self.pools[pool].rows.as_mut();
        let Forward { logits, sound } = forward.inspect_err(|_| rows.roll_back())?;
        self.window = Window::of(step, pool).filter(|_| self.carries_states());
        if self.window.is_some() {
            return Ok(Stepped { logits, touched: Vec::new(), sound });
        }
        let rows = self.pools[pool].rows.as_mut();
        let keep: Vec<usize> = plan.parts.iter().map(|Part { tokens, .. }| tokens.len()).collect();
        // Every layer appended to every row, so that this succeeds.
        let touched = rows.commit(&keep).inspect_err(|_| rows.roll_back())?;
        Ok(Stepped { logits, touched, sound })
    }
}

/// The error of a state that this session has not made.
fn foreign(operation: &'static str) -> Error {
    Error::new(ErrorKind::State, operation, "the state is of another session")
}

/// The error of a slot that holds no row.
fn not_open(slot: Slot) -> Error {
    Error::new(ErrorKind::State, "session", format!("slot is not open: {}", slot.0))
}

#[cfg(test)]
mod tests;
