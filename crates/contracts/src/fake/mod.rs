//! A device for tests: naive, lazy and deterministic.
//!
//! Operations check their operands and build a graph; values appear only at [`eval`](crate::tensor::Backend::eval) or
//! [`download`](crate::tensor::Backend::download), as on a deferred device. Floats are computed in f32, one element
//! after the other in the obvious order, so every output element has one arithmetic. Provided operations keep their
//! bodies.
//!
//! What a test may count, besides [`memory`](crate::tensor::Backend::memory): [`Fake::counts`].

mod backend;
mod elementwise;
mod layer;
mod layout;
mod node;
mod product;
mod reduction;
#[cfg(test)]
mod tests;
mod value;

use crate::tensor::{Device, DeviceId, Dtype, Error, Linear, Precision, Result, Storage, Tensor, Traits};
use node::{Kernel, Ledger, Node, Outcome};
use product::Matrices;
use std::{
    any::Any,
    cell::Cell,
    rc::{Rc, Weak},
};
use value::Value;

/// The device. [`Fake::open`] keeps its own type for tests that count; [`open`] hides it.
#[derive(Debug)]
pub struct Fake {
    this: Weak<Self>,
    id: DeviceId,
    traits: Traits,
    ledger: Rc<Ledger>,
    evaluations: Cell<u64>,
    downloads: Cell<u64>,
    hidden_evaluations: Cell<u64>,
}

/// What a fake has been asked to do since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `eval` and `async_eval`.
    pub evaluations: u64,
    /// Calls of `download`.
    pub downloads: u64,
    /// Downloads that had to compute something first: evaluations that nobody asked for.
    pub hidden_evaluations: u64,
    /// Operations computed; what is built but never needed is not.
    pub computed: u64,
}

/// Opens a fake.
pub fn open() -> Device {
    Fake::open()
}

/// Opens a fake whose attention is for rows that share planes.
pub fn open_for_shared_planes() -> Device {
    Fake::open_with(Manner { ragged_attention: false, ..Manner::default() })
}

/// What a fake says of itself. What it does is the same: it computes nothing before that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Whether operations may run later.
    pub deferred: bool,
    /// Whether attention takes rows that lie apart.
    pub ragged_attention: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self { deferred: true, ragged_attention: true }
    }
}

impl Fake {
    /// Opens a fake.
    pub fn open() -> Rc<Self> {
        Self::open_with(Manner::default())
    }

    /// Opens a fake that says this of itself.
    pub fn open_with(Manner { deferred, ragged_attention }: Manner) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            id: DeviceId::unique(),
            traits: Traits {
                name: "fake",
                compute_dtype: Dtype::F32,
                precisions: &[Precision::Exact],
                batch_invariant: true,
                deferred,
                ragged_attention,
            },
            ledger: Rc::default(),
            evaluations: Cell::new(0),
            downloads: Cell::new(0),
            hidden_evaluations: Cell::new(0),
        })
    }

    /// What it has been asked to do so far.
    pub fn counts(&self) -> Counts {
        Counts {
            evaluations: self.evaluations.get(),
            downloads: self.downloads.get(),
            hidden_evaluations: self.hidden_evaluations.get(),
            computed: self.ledger.computed.get(),
        }
    }

    fn handle(&self) -> Device {
        // The device outlives the call that borrows it, so the upgrade cannot fail.
        self.this.upgrade().map_or_else(open, |this| this as Device)
    }

    fn node(&self, shape: &[usize], dtype: Dtype, inputs: Vec<Rc<Node>>, kernel: Kernel) -> Tensor {
        let node = Node::waiting((self.id, &self.ledger), (shape.to_vec(), dtype), inputs, kernel);
        Tensor::new(node, self.handle())
    }

    /// A node whose kernel makes a new value and cannot fail.
    fn fresh(
        &self,
        shape: &[usize],
        dtype: Dtype,
        inputs: Vec<Rc<Node>>,
        kernel: impl FnOnce(&[&Value]) -> Value + 'static,
    ) -> Tensor {
        self.node(shape, dtype, inputs, Kernel::Fresh(Box::new(|inputs| Ok(kernel(inputs)))))
    }

    /// A node whose kernel looks at indices.
    fn indexed(
        &self,
        shape: &[usize],
        dtype: Dtype,
        inputs: Vec<Rc<Node>>,
        kernel: impl FnOnce(&[&Value]) -> Outcome + 'static,
    ) -> Tensor {
        self.node(shape, dtype, inputs, Kernel::Fresh(Box::new(kernel)))
    }

    /// A node that writes over its first input.
    fn reusing(
        &self,
        shape: &[usize],
        dtype: Dtype,
        inputs: Vec<Rc<Node>>,
        kernel: impl FnOnce(Value, &[&Value]) -> Outcome + 'static,
    ) -> Tensor {
        self.node(shape, dtype, inputs, Kernel::Reusing(Box::new(kernel)))
    }

    /// The node behind a handle.
    fn own(&self, operation: &'static str, x: &Tensor) -> Result<Rc<Node>> {
        self.own_storage(operation, Rc::clone(x.storage()))
    }

    /// The node behind a handle that the caller gave up.
    fn taken(&self, operation: &'static str, x: Tensor) -> Result<Rc<Node>> {
        self.own_storage(operation, x.into_storage())
    }

    fn own_storage(&self, operation: &'static str, storage: Rc<dyn Storage>) -> Result<Rc<Node>> {
        if storage.device() != self.id {
            return Err(Error::foreign(operation));
        }
        (storage as Rc<dyn Any>).downcast().map_err(|_| Error::foreign(operation))
    }

    fn matrices(&self, operation: &'static str, weight: &Linear) -> Result<Rc<Node>> {
        let prepared: &dyn Any = weight.0.as_ref();
        match prepared.downcast_ref::<Matrices>() {
            Some(Matrices(node)) if weight.device() == self.id => Ok(Rc::clone(node)),
            _ => Err(Error::foreign(operation)),
        }
    }
}
