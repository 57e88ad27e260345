//! Prepared weights behind the port: [`crate::product`] with tensors around it.

use crate::device::{CpuDevice, no_memory};
use crate::memory::Block;
use crate::number::with_real;
use crate::product::{self, ErrorKind as ProductErrorKind, Part, Prepared, ProductError, Route, Values};
use crate::value::Value;
use std::any::Any;
use std::rc::Rc;
use tandem_contracts::tensor::{
    self as port, DeviceId, Dtype, Error, ErrorKind, Linear, Precision, Quantized, Result, Tensor, shape,
};

/// A prepared weight and whose it is.
#[derive(Debug)]
struct Weight {
    prepared: Prepared,
    device: DeviceId,
}

impl port::Prepared for Weight {
    fn outputs(&self) -> usize {
        self.prepared.rows()
    }

    fn inputs(&self) -> usize {
        self.prepared.width()
    }

    fn experts(&self) -> usize {
        self.prepared.experts()
    }

    fn bytes(&self) -> usize {
        self.prepared.bytes()
    }

    fn device(&self) -> DeviceId {
        self.device
    }
}

/// The planes of one part, contiguous.
enum Planes {
    Dense(Value),
    /// Codes, scales and biases.
    Affine(Box<[Value; 3]>, port::Affine),
}

impl Planes {
    fn of(device: &CpuDevice, weight: &port::Weight) -> Result<Self> {
        let plane = |x: &Tensor| {
            device.value("prepare_linear", x).and_then(|x| device.contiguous("prepare_linear", x))
        };
        Ok(match weight {
            port::Weight::Dense(weight) => Self::Dense(plane(weight)?),
            port::Weight::Affine(Quantized { codes, scales, biases, format }) => {
                Self::Affine(Box::new([plane(codes)?, plane(scales)?, plane(biases)?]), *format)
            }
        })
    }

    /// As a part of `width` inputs; `rows` are those of one expert.
    fn part(&self, rows: usize, width: usize) -> Part<'_> {
        let weight = match self {
            Self::Dense(weight) => product::Weight::Dense(values(weight)),
            Self::Affine(planes, format) => product::Weight::Affine {
                bits: u32::from(format.bits),
                group: usize::from(format.group),
                codes: planes[0].slice().unwrap_or_default(),
                scales: values(&planes[1]),
                biases: values(&planes[2]),
            },
        };
        Part { rows, width, weight }
    }
}

fn values(x: &Value) -> Values<'_> {
    match x.dtype {
        Dtype::F16 => Values::F16(x.slice().unwrap_or_default()),
        Dtype::Bf16 => Values::Bf16(x.slice().unwrap_or_default()),
        _ => Values::F32(x.slice().unwrap_or_default()),
    }
}

pub(crate) fn prepare(device: &CpuDevice, parts: &[port::Weight]) -> Result<Linear> {
    let planes = parts.iter().map(|part| Planes::of(device, part)).collect::<Result<Vec<_>>>()?;
    let whole = shape::prepare_linear(parts)?;
    let with_shape = planes.iter().zip(parts);
    let parts: Vec<Part<'_>> = with_shape
        .map(|(planes, part)| {
            let shape = part.shape();
            planes.part(shape[shape.len() - 2], whole.inputs)
        })
        .collect();
    let prepared = Prepared::stacked(&device.pool, &device.memory, whole.experts, &parts)
        .map_err(|error| failed("prepare_linear", error))?;
    Ok(Linear(Rc::new(Weight { prepared, device: device.id })))
}

/// The error of a product as one of the port's.
pub(crate) fn failed(operation: &'static str, error: ProductError) -> Error {
    let kind = match error.kind() {
        ProductErrorKind::Memory(error) => return no_memory(operation, error),
        ProductErrorKind::Index { .. } => ErrorKind::Index,
        _ => ErrorKind::Shape,
    };
    Error::new(kind, operation, error.to_string())
}

/// The prepared weight behind a handle.
pub(crate) fn prepared<'a>(
    device: &CpuDevice,
    operation: &'static str,
    weight: &'a Linear,
) -> Result<&'a Prepared> {
    let any: &dyn Any = weight.0.as_ref();
    match any.downcast_ref::<Weight>() {
        Some(weight) if weight.device == device.id => Ok(&weight.prepared),
        _ => Err(Error::foreign(operation)),
    }
}

/// Rows of activations in f32.
pub(crate) enum Rows {
    Own(Value),
    Widened(Block),
}

impl Rows {
    pub(crate) fn of(device: &CpuDevice, operation: &'static str, x: &Tensor) -> Result<Self> {
        let x = device.contiguous(operation, device.value(operation, x)?)?;
        if x.dtype == Dtype::F32 {
            return Ok(Self::Own(x));
        }
        let bytes = x.layout.elements() * size_of::<f32>();
        let mut block = device.memory.take(bytes).map_err(|error| no_memory(operation, error))?;
        with_real!(x.dtype, T => {
            super::row::widen(x.slice::<T>().unwrap_or_default(), 1, block.of_mut::<f32>());
        });
        Ok(Self::Widened(block))
    }

    pub(crate) fn slice(&self) -> &[f32] {
        match self {
            Self::Own(x) => x.slice().unwrap_or_default(),
            Self::Widened(block) => block.of(),
        }
    }
}

/// Computes `[..]` of f32 with `compute` and gives it in the dtype asked for.
fn narrowed(
    device: &CpuDevice,
    operation: &'static str,
    (dtype, shape): (Dtype, &[usize]),
    compute: impl FnOnce(&mut [f32]) -> std::result::Result<(), ProductError>,
) -> Result<Tensor> {
    let mut draft = device.fresh(operation, Dtype::F32, shape)?;
    compute(draft.elements()).map_err(|error| failed(operation, error))?;
    if dtype == Dtype::F32 {
        return Ok(device.finish(draft));
    }
    let wide = device.settle(draft);
    let mut narrow = device.fresh(operation, dtype, shape)?;
    super::copy::cast(&device.pool, &wide, &mut narrow);
    Ok(device.finish(narrow))
}

pub(crate) fn linear(
    device: &CpuDevice,
    x: &Tensor,
    weight: &Linear,
    precision: Precision,
) -> Result<Tensor> {
    device.own("linear", &[x])?;
    let prepared = prepared(device, "linear", weight)?;
    let shape = shape::linear(x, weight)?;
    shape::precision("linear", &device.traits, precision)?;
    let rows = Rows::of(device, "linear", x)?;
    narrowed(device, "linear", (x.dtype(), &shape), |out| match precision {
        Precision::Exact => prepared.exact(&device.pool, rows.slice(), shape[0], out),
        Precision::Fast => prepared.fast(&device.pool, rows.slice(), shape[0], out),
    })
}

pub(crate) fn gather(
    device: &CpuDevice,
    x: &Tensor,
    (weight, choice): (&Linear, &Tensor),
    precision: Precision,
) -> Result<Tensor> {
    device.own("gather_linear", &[x, choice])?;
    let prepared = prepared(device, "gather_linear", weight)?;
    let shape = shape::gather_linear(x, weight, choice)?;
    shape::precision("gather_linear", &device.traits, precision)?;
    let choice = super::index::checked(device, "gather_linear", choice, prepared.experts())?;
    let choices = choice.slice::<i32>().unwrap_or_default().iter();
    let routes: Vec<Route> = choices
        .enumerate()
        .map(|(i, expert)| Route { row: i / shape[1].max(1), expert: *expert as usize })
        .collect();
    let rows = Rows::of(device, "gather_linear", x)?;
    narrowed(device, "gather_linear", (x.dtype(), &shape), |out| match precision {
        Precision::Exact => prepared.gather_exact(&device.pool, rows.slice(), &routes, out),
        Precision::Fast => prepared.gather_fast(&device.pool, rows.slice(), &routes, out),
    })
}

pub(crate) fn embed(device: &CpuDevice, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
    device.own("embed", &[ids])?;
    let prepared = prepared(device, "embed", weight)?;
    let shape = shape::embed(weight, ids)?;
    let ids = super::index::checked(device, "embed", ids, prepared.rows())?;
    let mut draft = device.fresh("embed", Dtype::F32, &shape)?;
    let rows: Vec<usize> = ids.slice::<i32>().unwrap_or_default().iter().map(|&id| id as usize).collect();
    let looked_up = prepared.look_up(&device.pool, &rows, draft.elements());
    looked_up.map_err(|error| failed("embed", error))?;
    Ok(device.finish(draft))
}
