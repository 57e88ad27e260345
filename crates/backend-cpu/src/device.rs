//! The device: what values are made with and taken from.

use crate::isa::Isa;
use crate::layout::Layout;
use crate::memory::{Memory, OutOfMemory};
use crate::operation::copy;
use crate::pool::{Pool, physical_cores};
use crate::value::{Claim, Draft, Open, Value};
use std::any::Any;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::rc::{Rc, Weak};
use tandem_contracts::tensor::{
    Device, DeviceId, Dtype, Error, ErrorKind, Precision, Result, Tensor, Traits, shape,
};

/// How to open the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that compute, the caller's counted.
    pub threads: NonZeroUsize,
    /// The most that kernels may use; what the machine lacks is left out.
    pub isa: Isa,
    /// Bytes of freed buffers kept for reuse.
    pub cache: usize,
}

impl Default for Options {
    /// One thread for each physical core, the best instructions, a cache of 256 MiB.
    fn default() -> Self {
        Self { threads: physical_cores(), isa: Isa::preferred(), cache: 256 << 20 }
    }
}

/// Opens the device for the calling thread.
///
/// # Errors
/// The system starts no thread.
pub fn open(options: Options) -> Result<Device> {
    let pool = Pool::new(options.threads, options.isa)
        .map_err(|error| Error::new(ErrorKind::Device, "open", "no thread was started").because(error))?;
    Ok(Rc::new_cyclic(|me| CpuDevice {
        me: me.clone(),
        id: DeviceId::unique(),
        traits: Traits {
            name: "cpu",
            compute_dtype: Dtype::F32,
            precisions: &[Precision::Fast, Precision::Exact],
            batch_invariant: true,
            deferred: false,
            ragged_attention: true,
        },
        memory: Memory::with_cache(options.cache),
        allocated: Cell::new(0),
        pool,
    }))
}

/// The CPU.
#[derive(Debug)]
pub(crate) struct CpuDevice {
    me: Weak<Self>,
    pub(crate) id: DeviceId,
    pub(crate) traits: Traits,
    pub(crate) memory: Memory,
    pub(crate) allocated: Cell<u64>,
    pub(crate) pool: Pool,
}

impl CpuDevice {
    /// A handle to the device.
    pub(crate) fn handle(&self) -> Device {
        match self.me.upgrade() {
            Some(device) => device,
            None => unreachable!("a device lives only inside its `Rc`, through which it was called"),
        }
    }

    /// The value behind a handle.
    pub(crate) fn value<'a>(&self, operation: &'static str, x: &'a Tensor) -> Result<&'a Value> {
        let storage: &dyn Any = x.storage().as_ref();
        match storage.downcast_ref::<Value>() {
            Some(value) if value.device == self.id => Ok(value),
            _ => Err(Error::foreign(operation)),
        }
    }

    /// Checks that every operand belongs here, before anything else is said of them.
    pub(crate) fn own(&self, operation: &'static str, xs: &[&Tensor]) -> Result<()> {
        xs.iter().try_for_each(|x| self.value(operation, x).map(drop))
    }

    /// Takes an operand over if its handle is the last one.
    pub(crate) fn claim(&self, operation: &'static str, x: Tensor) -> Result<Claim> {
        let storage: Rc<dyn Any> = x.into_storage();
        match storage.downcast::<Value>() {
            Ok(value) if value.device == self.id => Ok(Claim::of(value)),
            _ => Err(Error::foreign(operation)),
        }
    }

    /// Takes an operand over, or copies it where it is shared or lies scattered: contiguous either way.
    pub(crate) fn take_contiguous(&self, operation: &'static str, x: Tensor) -> Result<Draft> {
        match self.claim(operation, x)? {
            Claim::Own(draft) if draft.layout.is_contiguous() => Ok(draft),
            Claim::Own(draft) => {
                let Draft { block, layout, dtype } = draft;
                self.copy(operation, &Value { buffer: Rc::new(block), layout, dtype, device: self.id })
            }
            Claim::Shared(value) => self.copy(operation, &value),
        }
    }

    /// Takes an operand over, or copies it where it is shared or repeats elements.
    pub(crate) fn take_writable(&self, operation: &'static str, x: Tensor) -> Result<Draft> {
        match self.claim(operation, x)? {
            Claim::Own(draft) if draft.layout.is_injective() => Ok(draft),
            Claim::Own(Draft { block, layout, dtype }) => {
                self.copy(operation, &Value { buffer: Rc::new(block), layout, dtype, device: self.id })
            }
            Claim::Shared(value) => self.copy(operation, &value),
        }
    }

    /// Opens an operand that was given by value, and leaves its handle what it is: its own memory where that handle is
    /// the last one and no element repeats, else that of a copy, which it becomes a handle to.
    pub(crate) fn open<'a>(&self, operation: &'static str, x: &'a mut Tensor) -> Result<Open<'a>> {
        self.value(operation, x)?;
        let writable = opened(x).is_some_and(|open| open.layout.is_injective());
        if !writable {
            *x = self.finish(self.copy(operation, self.value(operation, x)?)?);
        }
        match opened(x) {
            Some(open) => Ok(open),
            None => unreachable!("nobody else has a handle to it"),
        }
    }

    /// A contiguous copy.
    pub(crate) fn copy(&self, operation: &'static str, x: &Value) -> Result<Draft> {
        let mut draft = self.fresh(operation, x.dtype, x.layout.shape())?;
        copy::gather(&self.pool, x, &mut draft);
        Ok(draft)
    }

    /// A contiguous value, which is `x` itself where it can be.
    pub(crate) fn contiguous(&self, operation: &'static str, x: &Value) -> Result<Value> {
        if x.layout.is_contiguous() {
            return Ok(x.clone());
        }
        Ok(self.settle(self.copy(operation, x)?))
    }

    /// A contiguous value with arbitrary elements, to be filled.
    pub(crate) fn fresh(&self, operation: &'static str, dtype: Dtype, shape: &[usize]) -> Result<Draft> {
        let bytes = shape::elements(operation, shape)? * dtype.size();
        let block = self.memory.take(bytes).map_err(|error| no_memory(operation, error))?;
        self.allocated.set(self.allocated.get() + bytes as u64);
        Ok(Draft { block, layout: Layout::contiguous(shape, 0), dtype })
    }

    /// Makes a value of a draft.
    pub(crate) fn settle(&self, draft: Draft) -> Value {
        let Draft { block, layout, dtype } = draft;
        Value { buffer: Rc::new(block), layout, dtype, device: self.id }
    }

    /// Makes a handle of a draft.
    pub(crate) fn finish(&self, draft: Draft) -> Tensor {
        Tensor::new(Rc::new(self.settle(draft)), self.handle())
    }

    /// A handle to other elements of the same buffer.
    pub(crate) fn share(&self, x: &Value, layout: Layout, dtype: Dtype) -> Tensor {
        let value = Value { buffer: Rc::clone(&x.buffer), layout, dtype, device: self.id };
        Tensor::new(Rc::new(value), self.handle())
    }

    /// Runs `work` over parts of `0..count` on the pool, or here if there is little of it: `cost` counts
    /// elements touched by each step.
    pub(crate) fn spread(&self, count: usize, cost: usize, work: impl Fn(Range<usize>) + Sync) {
        spread(&self.pool, count, cost, work);
    }
}

/// A value of this device, to be written unless somebody else can see it.
fn opened(x: &mut Tensor) -> Option<Open<'_>> {
    let storage: &mut dyn Any = x.storage_mut()?;
    storage.downcast_mut().and_then(Value::open)
}

/// The error of an allocation that failed.
pub(crate) fn no_memory(operation: &'static str, error: OutOfMemory) -> Error {
    Error::new(ErrorKind::Memory, operation, format!("out of memory, bytes asked for: {}", error.bytes))
}

/// Elements below which handing work to another thread costs more than it saves.
const GRAIN: usize = 16 << 10;

/// See [`CpuDevice::spread`].
pub(crate) fn spread(pool: &Pool, count: usize, cost: usize, work: impl Fn(Range<usize>) + Sync) {
    share(pool, count, cost, &work);
}

/// Compiled once for all kinds of work.
fn share(pool: &Pool, count: usize, cost: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let total = count.saturating_mul(cost.max(1));
    let parts = (total / GRAIN).min(4 * pool.threads()).min(count);
    if parts < 2 || pool.threads() == 1 {
        return work(0..count);
    }
    pool.run(parts, |part, _| work(count * part / parts..count * (part + 1) / parts));
}
