//! Nodes of the fake's graph, and their evaluation.
//!
//! Invariants: a node computes at most once; once settled it holds a value or a failure and no longer its inputs;
//! neither evaluation nor drop recurses, so a graph may be as deep as memory allows.

use super::value::Value;
use crate::tensor::{DeviceId, Dtype, Error, Storage};
use std::{
    cell::{Cell, Ref, RefCell},
    fmt, mem,
    rc::Rc,
};

/// What evaluation can meet: an index out of range. Nodes that depend on it fail alike.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) operation: &'static str,
    pub(super) message: String,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::index(failure.operation, failure.message)
    }
}

pub(super) type Outcome<T = Value> = std::result::Result<T, Failure>;

type Fresh = dyn FnOnce(&[&Value]) -> Outcome;
type Reusing = dyn FnOnce(Value, &[&Value]) -> Outcome;

/// How a node's value follows from its inputs.
pub(super) enum Kernel {
    /// Reads its inputs and makes a new value.
    Fresh(Box<Fresh>),
    /// Writes over its first input, of which it gets a copy if anyone else holds it.
    Reusing(Box<Reusing>),
}

/// Counts bytes and computed nodes of one device.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) active: Cell<usize>,
    pub(super) peak: Cell<usize>,
    pub(super) allocated: Cell<u64>,
    pub(super) computed: Cell<u64>,
}

impl Ledger {
    fn allocate(&self, bytes: usize) {
        self.allocated.set(self.allocated.get() + bytes as u64);
    }

    fn hold(&self, bytes: usize) {
        self.active.set(self.active.get() + bytes);
        self.peak.set(self.peak.get().max(self.active.get()));
    }

    fn release(&self, bytes: usize) {
        self.active.set(self.active.get() - bytes);
    }
}

enum State {
    Waiting {
        inputs: Vec<Rc<Node>>,
        kernel: Kernel,
    },
    Ready(Value),
    Failed(Failure),
    /// Its value was taken by the operation that reused it, or its kernel is running.
    Taken,
}

/// A value that is known or still to be computed.
pub(super) struct Node {
    device: DeviceId,
    dtype: Dtype,
    shape: Vec<usize>,
    ledger: Rc<Ledger>,
    state: RefCell<State>,
}

impl Node {
    pub(super) fn waiting(
        device: (DeviceId, &Rc<Ledger>),
        (shape, dtype): (Vec<usize>, Dtype),
        inputs: Vec<Rc<Self>>,
        kernel: Kernel,
    ) -> Rc<Self> {
        let state = RefCell::new(State::Waiting { inputs, kernel });
        Rc::new(Self { device: device.0, dtype, shape, ledger: Rc::clone(device.1), state })
    }

    fn settled(&self) -> bool {
        !matches!(*self.state.borrow(), State::Waiting { .. })
    }

    /// Computes this node and all that it needs.
    pub(super) fn evaluate(self: &Rc<Self>) -> Outcome<()> {
        let mut stack = vec![Rc::clone(self)];
        while let Some(node) = stack.last() {
            let pending: Vec<Rc<Self>> = match &*node.state.borrow() {
                State::Waiting { inputs, .. } => {
                    inputs.iter().filter(|input| !input.settled()).cloned().collect()
                }
                _ => Vec::new(),
            };
            if pending.is_empty() {
                node.settle();
                stack.pop();
            } else {
                stack.extend(pending);
            }
        }
        match &*self.state.borrow() {
            State::Failed(failure) => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// The computed value.
    pub(super) fn value(&self) -> Option<Ref<'_, Value>> {
        Ref::filter_map(self.state.borrow(), |state| match state {
            State::Ready(value) => Some(value),
            _ => None,
        })
        .ok()
    }

    /// Runs the kernel; the inputs are settled.
    fn settle(&self) {
        if self.settled() {
            return;
        }
        let State::Waiting { inputs, kernel } = self.state.replace(State::Taken) else { return };
        let failed = inputs.iter().find_map(|input| match &*input.state.borrow() {
            State::Failed(failure) => Some(failure.clone()),
            _ => None,
        });
        let outcome = match failed {
            Some(failure) => Err(failure),
            None => self.compute(inputs, kernel),
        };
        let state = match outcome {
            Ok(value) => {
                debug_assert_eq!((&value.shape, value.dtype), (&self.shape, self.dtype));
                self.ledger.computed.set(self.ledger.computed.get() + 1);
                self.ledger.hold(value.bytes.len());
                State::Ready(value)
            }
            Err(failure) => State::Failed(failure),
        };
        self.state.replace(state);
    }

    fn compute(&self, mut inputs: Vec<Rc<Self>>, kernel: Kernel) -> Outcome {
        match kernel {
            Kernel::Fresh(kernel) => {
                let value = with_values(&inputs, kernel)?;
                self.ledger.allocate(value.bytes.len());
                Ok(value)
            }
            Kernel::Reusing(kernel) => {
                let first = take(inputs.remove(0));
                let bytes = first.bytes.len();
                let value = with_values(&inputs, |rest| kernel(first, rest))?;
                // A result of another size cannot have been written over the operand.
                if value.bytes.len() != bytes {
                    self.ledger.allocate(value.bytes.len());
                }
                Ok(value)
            }
        }
    }
}

/// The value of a settled node: its own if this is the last handle, else a copy.
fn take(node: Rc<Node>) -> Value {
    let taken = match Rc::try_unwrap(node) {
        Ok(node) => match node.state.replace(State::Taken) {
            State::Ready(value) => {
                node.ledger.release(value.bytes.len());
                Some(value)
            }
            _ => None,
        },
        Err(shared) => {
            let copy = shared.value().map(|value| value.clone());
            if let Some(copy) = &copy {
                shared.ledger.allocate(copy.bytes.len());
            }
            copy
        }
    };
    // A node that others wait for is never taken: taking needs its last handle.
    debug_assert!(taken.is_some(), "a settled node without failure holds its value");
    taken.unwrap_or_else(|| Value::zeros(Dtype::Bool, &[0]))
}

fn with_values(nodes: &[Rc<Node>], kernel: impl FnOnce(&[&Value]) -> Outcome) -> Outcome {
    let held: Vec<Ref<'_, Value>> = nodes.iter().filter_map(|node| node.value()).collect();
    kernel(&held.iter().map(|value| &**value).collect::<Vec<_>>())
}

impl Storage for Node {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn device(&self) -> DeviceId {
        self.device
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut orphans = match mem::replace(self.state.get_mut(), State::Taken) {
            State::Waiting { inputs, .. } => inputs,
            State::Ready(value) => {
                self.ledger.release(value.bytes.len());
                return;
            }
            State::Failed(_) | State::Taken => return,
        };
        // Chains are unlinked here, one node at a time, instead of through nested drops.
        while let Some(orphan) = orphans.pop() {
            let Ok(mut node) = Rc::try_unwrap(orphan) else { continue };
            if let State::Waiting { inputs, .. } = node.state.get_mut() {
                orphans.append(inputs);
            }
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state.borrow() {
            State::Waiting { .. } => "waiting",
            State::Ready(_) => "ready",
            State::Failed(_) => "failed",
            State::Taken => "taken",
        };
        write!(f, "Node({:?} {:?}, {state})", self.dtype, self.shape)
    }
}
