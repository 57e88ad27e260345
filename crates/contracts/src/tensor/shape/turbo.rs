//! Rules of TurboQuant's codes and of what makes them.

use super::{last, require_dtype, require_extent, require_float, require_shape, with_last};
use crate::tensor::turbo::GROUP;
use crate::tensor::{Dtype, Error, ErrorKind, Result, Tensor, TurboBook, TurboKeys, TurboValues};

/// Checks floats `[.., width]` whose width is a power of two; gives the width.
///
/// # Errors
/// Another dtype or width.
pub fn hadamard(x: &Tensor) -> Result<usize> {
    require_float("hadamard", x.dtype())?;
    let width = last("hadamard", x.shape())?;
    if width.is_power_of_two() {
        return Ok(width);
    }
    Err(Error::shape("hadamard", format!("takes powers of two, got width: {width}")))
}

/// How many tokens there are of which each is finite or not: the first axis of all floats `[tokens, ..]`, and of what was
/// so before, booleans `[tokens]`.
///
/// # Errors
/// Nothing to look at, no floats, or another number of tokens.
pub fn finite(before: Option<&Tensor>, xs: &[&Tensor]) -> Result<usize> {
    let Some(first) = xs.first() else { return Err(Error::shape("finite", "needs something to look at")) };
    let Some(&tokens) = first.shape().first() else {
        return Err(Error::shape("finite", "needs tokens as the first axis"));
    };
    for x in xs {
        require_float("finite", x.dtype())?;
        if x.shape().first() != Some(&tokens) {
            return Err(Error::shape("finite", format!("there are {tokens} tokens, got: {:?}", x.shape())));
        }
    }
    if let Some(before) = before {
        require_dtype("finite", before, Dtype::Bool)?;
        require_shape("finite", "before", before.shape(), &[tokens])?;
    }
    Ok(tokens)
}

/// Shapes of codes and of scales for keys `[.., width]`.
///
/// # Errors
/// No floats, or a width or bits that keys do not have.
pub fn encode_turbo_keys(x: &Tensor, bits: u8) -> Result<[Vec<usize>; 2]> {
    require_float("encode_turbo_keys", x.dtype())?;
    bits_are("encode_turbo_keys", bits, &[2, 4, 5, 8])?;
    let width = grouped("encode_turbo_keys", last("encode_turbo_keys", x.shape())?)?;
    Ok([with_last(x.shape(), width * usize::from(bits) / 8), with_last(x.shape(), width / GROUP)])
}

/// Shapes of codes and of scales for values `[.., width]`.
///
/// # Errors
/// No floats, another width than the book's, or a book that does not fit itself.
pub fn encode_turbo_values(x: &Tensor, book: &TurboBook) -> Result<[Vec<usize>; 2]> {
    require_float("encode_turbo_values", x.dtype())?;
    let width = turbo_book("encode_turbo_values", book)?;
    if last("encode_turbo_values", x.shape())? != width {
        return Err(Error::shape(
            "encode_turbo_values",
            format!("heads are {width} wide, got: {:?}", x.shape()),
        ));
    }
    Ok([with_last(x.shape(), width * usize::from(book.bits) / 8), with_last(x.shape(), width / GROUP)])
}

/// Width of the values behind keys, whose other axes are those of the scales.
///
/// # Errors
/// Planes that do not fit each other.
pub fn turbo_keys(operation: &'static str, keys: &TurboKeys) -> Result<usize> {
    bits_are(operation, keys.bits, &[2, 4, 5, 8])?;
    require_dtype(operation, &keys.codes, if keys.bits == 8 { Dtype::I8 } else { Dtype::U8 })?;
    require_dtype(operation, &keys.zeros, Dtype::F16)?;
    require_shape(operation, "zeros", keys.zeros.shape(), keys.scales.shape())?;
    planes(operation, &keys.codes, &keys.scales, keys.bits)
}

/// Width of values, whose other axes are those of the scales.
///
/// # Errors
/// Planes that do not fit each other or their book.
pub fn turbo_values(operation: &'static str, values: &TurboValues) -> Result<usize> {
    let width = turbo_book(operation, &values.book)?;
    require_dtype(operation, &values.codes, Dtype::U8)?;
    let held = planes(operation, &values.codes, &values.scales, values.book.bits)?;
    if held == width {
        return Ok(width);
    }
    Err(Error::shape(operation, format!("the book is for heads of {width}, got: {held}")))
}

fn turbo_book(operation: &'static str, book: &TurboBook) -> Result<usize> {
    bits_are(operation, book.bits, &[2, 3, 4, 5, 8])?;
    for (name, tensor, extent) in
        [("levels", &book.levels, 1 << book.bits), ("boundaries", &book.boundaries, (1 << book.bits) - 1)]
    {
        require_dtype(operation, tensor, Dtype::F32)?;
        require_shape(operation, name, tensor.shape(), &[extent])?;
    }
    require_dtype(operation, &book.signs, Dtype::F32)?;
    let width = grouped(operation, last(operation, book.signs.shape())?)?;
    require_shape(operation, "signs", book.signs.shape(), &[width])?;
    if width.is_power_of_two() {
        return Ok(width);
    }
    Err(Error::shape(operation, format!("takes powers of two, got width: {width}")))
}

fn planes(operation: &'static str, codes: &Tensor, scales: &Tensor, bits: u8) -> Result<usize> {
    require_dtype(operation, scales, Dtype::F16)?;
    let width = last(operation, scales.shape())?.saturating_mul(GROUP);
    let bytes = width / 8 * usize::from(bits);
    require_extent(operation, "codes", codes.shape(), (scales.shape(), bytes))?;
    Ok(width)
}

fn grouped(operation: &'static str, width: usize) -> Result<usize> {
    if width > 0 && width.is_multiple_of(GROUP) {
        return Ok(width);
    }
    Err(Error::shape(operation, format!("takes whole groups of {GROUP}, got width: {width}")))
}

fn bits_are(operation: &'static str, bits: u8, taken: &[u8]) -> Result<()> {
    if taken.contains(&bits) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, operation, format!("takes bits of {taken:?}, got: {bits}")))
}
