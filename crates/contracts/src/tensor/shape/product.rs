//! Rules of products, quantisation and prepared weights.

use super::{
    broadcast, elements, last, require_dtype, require_extent, require_float, require_rank,
    require_same_dtype, require_shape, with_last,
};
use crate::tensor::{
    Affine, Dtype, Error, ErrorKind, Linear, Precision, Quantized, Result, Tensor, Traits, Weight,
};

/// Result of `matmul`: the last two axes are matrices, those before broadcast.
///
/// # Errors
/// Operands with fewer than two axes, other dtypes than equal floats, or inner extents that differ.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Vec<usize>> {
    require_float("matmul", a.dtype())?;
    require_same_dtype("matmul", a, b)?;
    let ([batch_a @ .., m, k], [batch_b @ .., inner, n]) = (a.shape(), b.shape()) else {
        return Err(Error::shape("matmul", format!("needs matrices: {:?} and {:?}", a.shape(), b.shape())));
    };
    if k != inner {
        return Err(Error::shape(
            "matmul",
            format!("inner extents differ: {:?} and {:?}", a.shape(), b.shape()),
        ));
    }
    let mut shape = broadcast("matmul", batch_a, batch_b)?;
    shape.extend([*m, *n]);
    elements("matmul", &shape)?;
    Ok(shape)
}

/// Shapes of the codes and of the scales that quantisation of `x` along its last axis gives.
///
/// # Errors
/// Another dtype than a float, a format that devices do not take, or a width that is no multiple of the group.
pub fn quantize(x: &Tensor, format: Affine) -> Result<(Vec<usize>, Vec<usize>)> {
    require_float("quantize", x.dtype())?;
    let width = last("quantize", x.shape())?;
    affine_width("quantize", width, format)?;
    Ok((with_last(x.shape(), format.words(width)), with_last(x.shape(), format.groups(width))))
}

/// Shape of the values behind affine codes.
///
/// # Errors
/// Planes whose dtypes or shapes do not agree with each other and the format.
pub fn dequantize(q: &Quantized) -> Result<Vec<usize>> {
    Ok(with_last(q.scales.shape(), affine(q)?))
}

/// The last axis of the values behind affine codes; the others are those of the scales.
pub(super) fn affine(q: &Quantized) -> Result<usize> {
    require_dtype("dequantize", &q.codes, Dtype::U32)?;
    require_float("dequantize", q.scales.dtype())?;
    require_same_dtype("dequantize", &q.scales, &q.biases)?;
    require_shape("dequantize", "biases", q.biases.shape(), q.scales.shape())?;
    let groups = last("dequantize", q.scales.shape())?;
    let width = groups
        .checked_mul(q.format.group as usize)
        .ok_or_else(|| Error::shape("dequantize", format!("too many groups: {groups}")))?;
    affine_width("dequantize", width, q.format)?;
    let words = q.format.words(width);
    require_extent("dequantize", "codes", q.codes.shape(), (q.scales.shape(), words))?;
    Ok(width)
}

fn affine_width(operation: &'static str, width: usize, format: Affine) -> Result<()> {
    let Affine { bits, group } = format;
    if !format.is_supported() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            operation,
            format!(
                "affine takes 2, 3, 4, 5, 6, 8 bits and groups of 32, 64, 128, got: {bits} bits, group {group}"
            ),
        ));
    }
    if !width.is_multiple_of(group as usize) {
        return Err(Error::shape(operation, format!("width is no multiple of group {group}: {width}")));
    }
    Ok(())
}

/// Extents of a prepared weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Matrices in the stack.
    pub experts: usize,
    /// Outputs of all parts together.
    pub outputs: usize,
    /// Inputs.
    pub inputs: usize,
}

/// Extents of weights joined by their outputs.
///
/// # Errors
/// No part, parts that differ in inputs or experts, or a part that is not `[outputs, inputs]` (with experts before).
pub fn prepare_linear(parts: &[Weight]) -> Result<LinearShape> {
    let mut joined: Option<LinearShape> = None;
    for part in parts {
        let shape = match part {
            Weight::Dense(weight) => {
                require_float("prepare_linear", weight.dtype())?;
                weight.shape().to_vec()
            }
            Weight::Affine(weight) => dequantize(weight)?,
        };
        let one = match shape[..] {
            [outputs, inputs] => LinearShape { experts: 1, outputs, inputs },
            [experts, outputs, inputs] => LinearShape { experts, outputs, inputs },
            _ => return Err(Error::shape("prepare_linear", format!("needs 2 or 3 axes, got: {shape:?}"))),
        };
        joined = Some(match joined {
            None => one,
            Some(all) if (all.experts, all.inputs) == (one.experts, one.inputs) => {
                LinearShape { outputs: all.outputs + one.outputs, ..all }
            }
            Some(all) => {
                return Err(Error::shape(
                    "prepare_linear",
                    format!("parts do not join: {all:?} and {one:?}"),
                ));
            }
        });
    }
    joined.ok_or_else(|| Error::shape("prepare_linear", "needs at least one part"))
}

/// Checks that a device has an arithmetic.
///
/// # Errors
/// [`Traits::precisions`] does not name it.
pub fn precision(operation: &'static str, traits: &Traits, precision: Precision) -> Result<()> {
    if traits.precisions.contains(&precision) {
        return Ok(());
    }
    let message = format!("{} has no such precision: {precision:?}", traits.name);
    Err(Error::new(ErrorKind::Unsupported, operation, message))
}

/// Result of a product with a prepared weight: `[tokens, inputs]` gives `[tokens, outputs]`.
///
/// # Errors
/// Another dtype than a float, another shape, or a stack of experts.
pub fn linear(x: &Tensor, weight: &Linear) -> Result<[usize; 2]> {
    let tokens = product_rows("linear", x, weight)?;
    if weight.experts() != 1 {
        return Err(Error::shape(
            "linear",
            format!("takes one matrix, got a stack of: {}", weight.experts()),
        ));
    }
    Ok([tokens, weight.outputs()])
}

/// Result of a product of rows with chosen experts: `[rows, inputs]` and `[rows, choices]` give
/// `[rows, choices, outputs]`.
///
/// # Errors
/// Dtypes or shapes that do not fit.
pub fn gather_linear(x: &Tensor, weight: &Linear, choice: &Tensor) -> Result<[usize; 3]> {
    let rows = product_rows("gather_linear", x, weight)?;
    require_dtype("gather_linear", choice, Dtype::I32)?;
    require_rank("gather_linear", choice.shape(), 2)?;
    let [chosen_rows, choices] = [choice.shape()[0], choice.shape()[1]];
    if chosen_rows != rows {
        return Err(Error::shape("gather_linear", format!("{rows} rows, but choices for: {chosen_rows}")));
    }
    Ok([rows, choices, weight.outputs()])
}

fn product_rows(operation: &'static str, x: &Tensor, weight: &Linear) -> Result<usize> {
    require_float(operation, x.dtype())?;
    require_rank(operation, x.shape(), 2)?;
    let [rows, inputs] = [x.shape()[0], x.shape()[1]];
    if inputs != weight.inputs() {
        return Err(Error::shape(
            operation,
            format!("the weight takes {} inputs, got: {inputs}", weight.inputs()),
        ));
    }
    Ok(rows)
}

/// Result of looking up rows of a prepared weight: `[tokens]` ids give `[tokens, inputs]`.
///
/// # Errors
/// Ids that are not `i32 [tokens]`, or a stack of experts.
pub fn embed(weight: &Linear, ids: &Tensor) -> Result<[usize; 2]> {
    require_dtype("embed", ids, Dtype::I32)?;
    require_rank("embed", ids.shape(), 1)?;
    if weight.experts() != 1 {
        return Err(Error::shape("embed", format!("takes one matrix, got a stack of: {}", weight.experts())));
    }
    Ok([ids.shape()[0], weight.inputs()])
}
