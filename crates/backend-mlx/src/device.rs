//! The device: what opens it, and how operations build their results.
//!
//! Invariants: MLX's error handler is in place before the first call that can fail; all arrays of a device are
//! built on one stream, that of the thread that opened it.

use crate::{
    error::{Outcome, failed},
    meter::Meter,
    raw,
    value::{Bounds, Value, dims, native},
};
use mlx_rs::{Array, DeviceType, Stream, ops, with_stream};
use std::{any::Any, fmt, rc::Rc};
use tandem_contracts::tensor::{
    Device, DeviceId, Dtype, Error, ErrorKind, Precision, Result, Storage, Tensor, Traits,
};

/// What to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where to compute.
    pub processor: Processor,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// The GPU if MLX has one here, else the CPU.
    #[default]
    Best,
    /// The CPU.
    Cpu,
    /// The GPU.
    Gpu,
}

/// Opens MLX on the calling thread, which owns all that comes of it.
///
/// # Errors
/// `Unsupported` if a GPU is asked for and MLX has none, `Device` if MLX cannot start.
pub fn open(options: Options) -> Result<Device> {
    let start = |outcome: Outcome<_>| outcome.map_err(|exception| failed("open", &exception));
    start(raw::install_error_handler())?;
    let gpu = match options.processor {
        Processor::Cpu => false,
        Processor::Best => raw::has_gpu(),
        Processor::Gpu if raw::has_gpu() => true,
        Processor::Gpu => return Err(Error::new(ErrorKind::Unsupported, "open", "mlx has no gpu here")),
    };
    let processor = if gpu { DeviceType::Gpu } else { DeviceType::Cpu };
    let stream = Stream::try_default_on_device(&mlx_rs::Device::new(processor, 0));
    let stream = stream.map_err(|exception| failed("open", &exception))?;
    let traits = Traits {
        name: "mlx",
        compute_dtype: if gpu { Dtype::Bf16 } else { Dtype::F32 },
        precisions: &[Precision::Exact, Precision::Fast],
        batch_invariant: false,
        deferred: true,
        ragged_attention: false,
    };
    Ok(Rc::new(Mlx(Rc::new(Shared { id: DeviceId::unique(), stream, traits, meter: Meter::new() }))))
}

/// Version of the MLX library that this process has loaded.
///
/// # Errors
/// `Device` if MLX cannot tell.
pub fn version() -> Result<String> {
    raw::install_error_handler()
        .and_then(|()| raw::version())
        .map_err(|exception| failed("version", &exception))
}

/// An open device. Clones are the same device.
#[derive(Clone)]
pub(crate) struct Mlx(Rc<Shared>);

struct Shared {
    id: DeviceId,
    stream: Stream,
    traits: Traits,
    meter: Meter,
}

impl Mlx {
    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn traits(&self) -> &Traits {
        &self.0.traits
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.0.stream
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// A handle to this device.
    pub(crate) fn handle(&self) -> Device {
        Rc::new(self.clone())
    }

    /// Whether 16-bit floats are slow here: MLX's builds for other CPUs than Apple's convert them in software.
    pub(crate) fn prefers_f32(&self) -> bool {
        self.traits().compute_dtype == Dtype::F32
    }

    /// The value behind a handle.
    ///
    /// # Errors
    /// The handle belongs to another device.
    pub(crate) fn value<'a>(&self, operation: &'static str, x: &'a Tensor) -> Result<&'a Value> {
        let storage: &dyn Any = x.storage().as_ref();
        storage
            .downcast_ref::<Value>()
            .filter(|value| value.device() == self.id())
            .ok_or_else(|| Error::foreign(operation))
    }

    /// The array behind a handle.
    ///
    /// # Errors
    /// The handle belongs to another device.
    pub(crate) fn array<'a>(&self, operation: &'static str, x: &'a Tensor) -> Result<&'a Array> {
        self.value(operation, x).map(Value::array)
    }

    /// Calls MLX on the device's stream.
    pub(crate) fn run<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Stream) -> Outcome<T>,
    ) -> Result<T> {
        with_stream(self.stream(), || call(self.stream())).map_err(|exception| failed(operation, &exception))
    }

    /// The tensor that `call` builds, of a shape and dtype that were worked out before. Where it has no elements,
    /// there is nothing to call: MLX's kernels need not know empty operands.
    pub(crate) fn build(
        &self,
        operation: &'static str,
        (shape, dtype): (Vec<usize>, Dtype),
        call: impl FnOnce(&Stream) -> Outcome<Array>,
    ) -> Result<Tensor> {
        self.bounded(operation, (shape, dtype), None, call)
    }

    /// As [`Mlx::build`], with what is known of the result's values.
    pub(crate) fn bounded(
        &self,
        operation: &'static str,
        (shape, dtype): (Vec<usize>, Dtype),
        bounds: Option<Bounds>,
        call: impl FnOnce(&Stream) -> Outcome<Array>,
    ) -> Result<Tensor> {
        let extents = dims(operation, &shape)?;
        let array = if shape.contains(&0) {
            self.run(operation, |_| ops::zeros_dtype(&extents, native(dtype)))?
        } else {
            self.run(operation, call)?
        };
        if array.shape() != extents || array.dtype() != native(dtype) {
            let (got, kind) = (array.shape(), array.dtype());
            let message = format!("needed {dtype:?} {shape:?}, mlx gave: {kind:?} {got:?}");
            return Err(Error::new(ErrorKind::Device, operation, message));
        }
        let value = Value::new(array, shape, dtype, self.id()).bounded(bounds);
        Ok(Tensor::new(Rc::new(value), self.handle()))
    }

    /// Computes arrays and waits for them.
    pub(crate) fn evaluate<'a>(
        &self,
        operation: &'static str,
        arrays: impl IntoIterator<Item = &'a Array>,
    ) -> Result<()> {
        self.meter().look();
        let outcome = self.run(operation, |_| mlx_rs::transforms::eval(arrays));
        self.meter().look();
        outcome
    }

    /// Starts to compute arrays. What that allocates is counted at the next look.
    pub(crate) fn start<'a>(
        &self,
        operation: &'static str,
        arrays: impl IntoIterator<Item = &'a Array>,
    ) -> Result<()> {
        self.meter().look();
        self.run(operation, |_| mlx_rs::transforms::async_eval(arrays))
    }

    /// Waits for all that was started.
    pub(crate) fn finish(&self, operation: &'static str) -> Result<()> {
        let outcome = self.run(operation, raw::synchronize);
        self.meter().look();
        outcome
    }
}

impl fmt::Debug for Mlx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mlx({:?}, {:?})", self.id(), self.stream())
    }
}
