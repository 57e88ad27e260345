//! Prepared weights and their products.
//!
//! Invariants: parts keep the order of their outputs; neighbours of one format are joined by rows into one array, so
//! a product is one call for each format that occurs; whatever holds memory is evaluated, so no graph keeps what it
//! came from.

use crate::{
    device::Mlx,
    error::Outcome,
    index::Indices,
    product::{parameters, planes, zeros},
    value::{dims, narrow, native},
};
use mlx_rs::{Array, ops};
use std::{any::Any, rc::Rc};
use tandem_contracts::tensor::{
    Affine, DeviceId, Dtype, Error, Linear, Prepared, Result, Tensor, Weight,
    shape::{self, LinearShape},
};

/// One array for each plane, `[rows, ..]`, or `[experts, rows, ..]` if there are several experts.
struct Part {
    rows: usize,
    planes: Planes,
}

enum Planes {
    /// The rows, and a view of them with the last two axes exchanged.
    Dense {
        rows: Array,
        columns: Array,
    },
    Affine {
        codes: Array,
        scales: Array,
        biases: Array,
        format: Affine,
    },
}

/// A weight in MLX's own layout.
struct Matrix {
    device: DeviceId,
    extents: LinearShape,
    parts: Vec<Part>,
}

impl Planes {
    /// The arrays that hold memory.
    fn held(&self) -> Vec<&Array> {
        match self {
            Self::Dense { rows, .. } => vec![rows],
            Self::Affine { codes, scales, biases, .. } => vec![codes, scales, biases],
        }
    }

    /// Whether both can be one array.
    fn joins(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Dense { rows, .. }, Self::Dense { rows: others, .. }) => rows.dtype() == others.dtype(),
            (Self::Affine { scales, format, .. }, Self::Affine { scales: others, format: other, .. }) => {
                format == other && scales.dtype() == others.dtype()
            }
            _ => false,
        }
    }

    /// Planes of one format, one below the other.
    fn join(group: &[Self]) -> Outcome<Self> {
        let stack = |which: usize| match group {
            [one] => Ok(one.held()[which].clone()),
            _ => ops::concatenate(&group.iter().map(|planes| planes.held()[which]).collect::<Vec<_>>(), -2),
        };
        match group {
            [Self::Affine { format, .. }, ..] => {
                Ok(Self::Affine { codes: stack(0)?, scales: stack(1)?, biases: stack(2)?, format: *format })
            }
            _ => Self::dense(stack(0)?),
        }
    }

    fn dense(rows: Array) -> Outcome<Self> {
        Ok(Self::Dense { columns: rows.swap_axes(-1, -2)?, rows })
    }

    /// `[tokens, inputs]` times the transposed rows. `widens` says whether codes become floats where that is faster.
    fn product(&self, x: &Array, widens: bool) -> Outcome<Array> {
        match self {
            Self::Dense { columns, .. } => x.matmul(columns),
            Self::Affine { codes, scales, biases, format } => {
                let (group, bits) = parameters(*format);
                if widens && pays(x, scales, usize::from(format.group)) {
                    let rows = ops::dequantize(codes, scales, biases, group, bits)?;
                    return x.matmul(rows.swap_axes(-1, -2)?);
                }
                ops::quantized_matmul(x, codes, scales, biases, true, group, bits)
            }
        }
    }

    /// `[rows, 1, 1, inputs]` times chosen matrices: `[rows, choices, 1, outputs]`; or `[pairs, 1, inputs]` times one matrix
    /// each, where choices are `sorted`.
    fn gathered(&self, x: &Array, choice: &Array, sorted: bool) -> Outcome<Array> {
        match self {
            Self::Dense { columns, .. } => ops::gather_mm(x, stacked(columns)?, None, choice, sorted),
            Self::Affine { codes, scales, biases, format } => {
                let (group, bits) = parameters(*format);
                let biases = stacked(biases)?;
                let (codes, scales) = (stacked(codes)?, stacked(scales)?);
                ops::gather_qmm(x, codes, scales, &biases, None, choice, true, group, bits, sorted)
            }
        }
    }

    /// Whole rows, as floats.
    fn look_up(&self, ids: &Array) -> Outcome<Array> {
        match self {
            Self::Dense { rows, .. } => rows.take_axis(ids, 0),
            Self::Affine { codes, scales, biases, format } => {
                let (group, bits) = parameters(*format);
                let biases = biases.take_axis(ids, 0)?;
                ops::dequantize(codes.take_axis(ids, 0)?, scales.take_axis(ids, 0)?, &biases, group, bits)
            }
        }
    }
}

/// Tokens from which on a product of floats, by the BLAS library, makes up for turning the codes into floats first: MLX's
/// quantised product for CPUs goes through the codes again for each token. Measured on 1536 x 576 in 4 bits with OpenBLAS:
/// 4 against 4 ms for 4 tokens, 30 against 6 for 16, 47 against 7 for 32; with MLX's own library still less from 16 on.
const WIDENED_TOKENS: i32 = 16;

/// Most weights that are held as floats for that while it lasts: 64 MiB.
const WIDENED_WEIGHTS: usize = 1 << 24;

/// Whether a product is faster over floats, which must be of the type of `x`.
fn pays(x: &Array, scales: &Array, group: usize) -> bool {
    let weights = scales.size() * group;
    x.dim(0) >= WIDENED_TOKENS && weights <= WIDENED_WEIGHTS && x.dtype() == scales.dtype()
}

/// A single matrix as a stack of one.
fn stacked(matrix: &Array) -> Outcome<Array> {
    if matrix.ndim() == 2 { matrix.expand_dims(0) } else { Ok(matrix.clone()) }
}

impl Prepared for Matrix {
    fn outputs(&self) -> usize {
        self.extents.outputs
    }

    fn inputs(&self) -> usize {
        self.extents.inputs
    }

    fn experts(&self) -> usize {
        self.extents.experts
    }

    fn bytes(&self) -> usize {
        self.parts.iter().flat_map(|part| part.planes.held()).map(Array::nbytes).sum()
    }

    fn device(&self) -> DeviceId {
        self.device
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix({:?} in parts: {})", self.extents, self.parts.len())
    }
}

/// The weight behind a handle.
fn matrix<'a>(mlx: &Mlx, operation: &'static str, weight: &'a Linear) -> Result<&'a Matrix> {
    let prepared: &dyn Any = weight.0.as_ref();
    prepared
        .downcast_ref::<Matrix>()
        .filter(|matrix| matrix.device == mlx.id())
        .ok_or_else(|| Error::foreign(operation))
}

pub(crate) fn prepare(mlx: &Mlx, weights: &[Weight]) -> Result<Linear> {
    let extents = shape::prepare_linear(weights)?;
    let (mut parts, mut rows): (Vec<Part>, usize) = (Vec::new(), 0);
    let mut group: Vec<Planes> = Vec::new();
    for weight in weights {
        let next = planes_of(mlx, weight)?;
        if group.last().is_some_and(|last| !last.joins(&next)) {
            parts.push(Part::join(mlx, rows, &group)?);
            (rows, group) = (0, Vec::new());
        }
        rows += weight.shape().iter().rev().nth(1).copied().unwrap_or_default();
        group.push(next);
    }
    parts.push(Part::join(mlx, rows, &group)?);
    Ok(Linear(Rc::new(Matrix { device: mlx.id(), extents, parts })))
}

impl Part {
    fn join(mlx: &Mlx, rows: usize, group: &[Planes]) -> Result<Self> {
        let planes = mlx.run("prepare_linear", |_| Planes::join(group))?;
        mlx.evaluate("prepare_linear", planes.held())?;
        Ok(Self { rows, planes })
    }
}

/// One weight, a stack of one as a matrix. Where 16-bit floats are slow they become f32, which holds them exactly.
fn planes_of(mlx: &Mlx, weight: &Weight) -> Result<Planes> {
    let plain = |array: &Array| {
        let alone = array.ndim() == 3 && array.dim(0) == 1;
        let array = if alone { array.squeeze_axes(&[0])? } else { array.clone() };
        let widen = mlx.prefers_f32() && array.dtype() != native(Dtype::U32);
        if widen { array.as_dtype(native(Dtype::F32)) } else { Ok(array) }
    };
    match weight {
        Weight::Dense(rows) => {
            let rows = mlx.array("prepare_linear", rows)?;
            mlx.run("prepare_linear", |_| Planes::dense(plain(rows)?))
        }
        Weight::Affine(quantized) => {
            let [codes, scales, biases] = planes(mlx, "prepare_linear", quantized)?;
            mlx.run("prepare_linear", |_| {
                let (codes, scales, biases) = (plain(codes)?, plain(scales)?, plain(biases)?);
                Ok(Planes::Affine { codes, scales, biases, format: quantized.format })
            })
        }
    }
}

pub(crate) fn linear(mlx: &Mlx, x: &Tensor, weight: &Linear) -> Result<Tensor> {
    let shape = shape::linear(x, weight)?.to_vec();
    let matrix = matrix(mlx, "linear", weight)?;
    let array = mlx.array("linear", x)?;
    let extents = dims("linear", &shape)?;
    mlx.build("linear", (shape, x.dtype()), |_| {
        if matrix.extents.inputs == 0 {
            return zeros(x.dtype(), &extents);
        }
        outputs(matrix, |planes| planes.product(array, mlx.prefers_f32()))?.as_dtype(native(x.dtype()))
    })
}

pub(crate) fn gather_linear(mlx: &Mlx, x: &Tensor, weight: &Linear, choice: &Tensor) -> Result<Tensor> {
    let shape = shape::gather_linear(x, weight, choice)?.to_vec();
    let matrix = matrix(mlx, "gather_linear", weight)?;
    let array = mlx.array("gather_linear", x)?;
    let choice = Indices::new(mlx, "gather_linear", choice, matrix.extents.experts)?;
    let extents = dims("gather_linear", &shape)?;
    mlx.build("gather_linear", (shape, x.dtype()), |_| {
        if matrix.extents.inputs == 0 {
            return zeros(x.dtype(), &extents);
        }
        let choice = choice.array()?;
        let product = if choice.size() < SORTED_PAIRS {
            let array = array.expand_dims_axes(&[1, 2])?;
            outputs(matrix, |planes| planes.gathered(&array, &choice, false))?
        } else {
            by_expert(matrix, array, &choice)?
        };
        product.reshape(&extents)?.as_dtype(native(x.dtype()))
    })
}

/// Pairs of a row and an expert from which on they are brought together by expert, as mlx-lm does: MLX's kernels for GPUs
/// then read each matrix once for all of its rows. On a CPU both ways take the same time and give the same bits (8 experts
/// of 512 x 1024 in 4 bits: 109 against 111 ms for 128 pairs, 434 against 421 for 512).
const SORTED_PAIRS: usize = 64;

/// `[rows, inputs]` times chosen matrices, sorted by matrix for the product: `[pairs, 1, outputs]` in order of rows.
fn by_expert(matrix: &Matrix, x: &Array, choice: &Array) -> Outcome<Array> {
    let choices = Array::from_int(choice.dim(1));
    let flat = choice.reshape(&[-1])?;
    let order = ops::argsort_axis(&flat, 0)?.as_dtype(native(Dtype::I32))?;
    let rows = x.take_axis(order.floor_divide(choices)?, 0)?.expand_dims(1)?;
    let sorted = flat.take_axis(&order, 0)?;
    let product = outputs(matrix, |planes| planes.gathered(&rows, &sorted, true))?;
    product.take_axis(ops::argsort_axis(&order, 0)?, 0)
}

/// The outputs of all parts, one after the other along the last axis.
fn outputs(matrix: &Matrix, product: impl Fn(&Planes) -> Outcome<Array>) -> Outcome<Array> {
    let with_rows = matrix.parts.iter().filter(|part| part.rows > 0);
    let products = with_rows.map(|part| product(&part.planes)).collect::<Outcome<Vec<_>>>()?;
    match &products[..] {
        [one] => Ok(one.clone()),
        _ => ops::concatenate(&products, -1),
    }
}

pub(crate) fn embed(mlx: &Mlx, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
    let shape = shape::embed(weight, ids)?.to_vec();
    let matrix = matrix(mlx, "embed", weight)?;
    let ids = Indices::new(mlx, "embed", ids, matrix.extents.outputs)?;
    let dtype = mlx.traits().compute_dtype;
    mlx.build("embed", (shape, dtype), |_| rows(matrix, &ids.array()?, native(dtype)))
}

/// Rows of a weight. Of several parts each gives the rows that it would if all were its own, and the last part that
/// does not begin after the id is chosen.
fn rows(matrix: &Matrix, ids: &Array, dtype: mlx_rs::Dtype) -> Outcome<Array> {
    let mut begin = 0;
    let mut found: Option<Array> = None;
    for part in matrix.parts.iter().filter(|part| part.rows > 0) {
        let first = Array::from_int(narrow(begin));
        let last = Array::from_int(narrow(part.rows) - 1);
        let own = ops::minimum(ops::maximum(ids.subtract(&first)?, Array::from_int(0))?, last)?;
        let looked_up =
            part.planes.look_up(if matrix.parts.len() == 1 { ids } else { &own })?.as_dtype(dtype)?;
        found = Some(match found {
            None => looked_up,
            Some(before) => ops::select(ids.ge(&first)?.expand_dims(1)?, looked_up, before)?,
        });
        begin += part.rows;
    }
    match found {
        Some(rows) => Ok(rows),
        None => ops::zeros_dtype(&[narrow(ids.size()), narrow(matrix.extents.inputs)], dtype),
    }
}
