//! Codecs: how keys or values of a layer are turned into what a cache keeps, and back.
//!
//! ```text
//!   Scheme (one layer)
//!     |-- keys:   Format --open(device, width)--> Codec --encode--> fields
//!     \-- values: Format --open(device, width)--> Codec <--decode-- fields
//! ```
//!
//! A [`Format`] is a value: it knows dtypes and bytes before any device is open. A [`Codec`] is a format at work on one
//! device and head width. What it makes are *fields*: tensors that share all axes but the last with what was
//! encoded (`[tokens, heads, width]` packed, or `[rows, heads, columns, width]` in a plane). A layout stores, cuts,
//! moves and joins fields without knowing the codec.
//!
//! Invariants:
//!
//! 1. A codec works along the width of one head alone, so each head of each token is encoded by itself: slicing,
//!    joining or reordering fields along other axes is the same as encoding the sliced, joined or reordered values.
//! 2. Nothing is silently spread. Where an element is not finite, or a stored number would not be, [`Codec::sound`] is
//!    false for that head of that token; the caller reads it with the evaluation of the step and fails the row.
//! 3. Nothing here evaluates.

mod affine;
mod format;
mod plain;
mod scheme;
mod turbo;

pub use format::{Field, Format};
pub use scheme::Scheme;
pub use turbo::levels;

use std::{fmt, rc::Rc};
use tandem_contracts::tensor::{Binary, Device, Error, Reduce, Result, Scalar, Tensor};

/// A format at work on one device, for heads of one width.
pub trait Codec: fmt::Debug {
    /// What it stores.
    fn format(&self) -> Format;

    /// Elements of a head.
    fn width(&self) -> usize;

    /// Encodes floats `[.., width]`, of which there may be none, as the fields of [`Format::fields`], each
    /// `[.., extent]`.
    ///
    /// # Errors
    /// Another last axis or no float dtype, or the device's own.
    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>>;

    /// Boolean `[..]`: whether each head of `x` is finite and all its numbers could be stored in `fields`, which
    /// [`Codec::encode`] made of it.
    ///
    /// # Errors
    /// As [`Codec::encode`] and [`Codec::decode`].
    fn sound(&self, x: &Tensor, fields: &[Tensor]) -> Result<Tensor>;

    /// The values behind fields: `[.., width]`. They are in the dtype of the format's floats, `bf16` for TurboQuant.
    ///
    /// # Errors
    /// Fields of another number, shape or dtype than the format's, or the device's own.
    fn decode(&self, fields: &[Tensor]) -> Result<Tensor>;

    /// Like [`Codec::decode`], but the codec may leave out what is linear and common to all tokens, so that attention
    /// mixes such values and [`Codec::settle`] catches up once for each query. Not bit-equal to decoding first.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn decode_deferred(&self, fields: &[Tensor]) -> Result<Tensor> {
        self.decode(fields)
    }

    /// Finishes what attention has mixed from deferred values, `[.., width]`.
    ///
    /// # Errors
    /// Another last axis or no float dtype, or the device's own.
    fn settle(&self, mixed: Tensor) -> Result<Tensor> {
        Ok(mixed)
    }
}

impl Format {
    /// A codec for heads of `width` elements.
    ///
    /// # Errors
    /// The format does not exist or does not take the width, or the device's own.
    pub fn open(self, device: &Device, width: usize) -> Result<Rc<dyn Codec>> {
        self.check(width)?;
        let device = Rc::clone(device);
        Ok(match self {
            Self::Plain(dtype) => Rc::new(plain::Plain { device, dtype, width }),
            Self::Affine { affine, dtype } => Rc::new(affine::AffineCodec { device, affine, dtype, width }),
            Self::TurboKeys { bits } => Rc::new(turbo::Keys::open(device, bits, width)?),
            Self::TurboValues { bits } => Rc::new(turbo::Values::open(device, bits, width)?),
        })
    }
}

/// Checks that `x` is `[.., width]`, of floats.
fn check_input(operation: &'static str, x: &Tensor, width: usize) -> Result<()> {
    if !x.dtype().is_float() {
        return Err(Error::dtype(operation, format!("takes floats, got: {:?}", x.dtype())));
    }
    if x.shape().last() != Some(&width) {
        return Err(Error::shape(operation, format!("heads are {width} wide, got: {:?}", x.shape())));
    }
    Ok(())
}

/// Checks that fields are those of a format.
fn check_fields(format: Format, width: usize, fields: &[Tensor]) -> Result<()> {
    let needed = format.fields(width)?;
    let leading = |field: &Tensor| field.shape().split_last().map(|(_, leading)| leading.to_vec());
    let fits = needed.len() == fields.len()
        && needed.iter().zip(fields).all(|(needed, field)| {
            needed.dtype == field.dtype()
                && field.shape().last() == Some(&needed.extent)
                && leading(field) == leading(&fields[0])
        });
    if fits {
        return Ok(());
    }
    Err(Error::shape("decode", format!("needs {needed:?}, got: {fields:?}")))
}

/// Whether all of the last axis is finite: floats `[.., n]` give booleans `[..]`.
fn finite(device: &Device, x: &Tensor) -> Result<Tensor> {
    let zero = device.full(Scalar::Float(0.0), x.dtype(), &[])?;
    // Zero times a finite number is zero, times any other it is NaN, and a sum keeps NaN.
    let product = device.binary(Binary::Multiply, x.clone(), &zero)?;
    let (last, leading) = x.shape().split_last().ok_or_else(|| Error::shape("finite", "needs an axis"))?;
    debug_assert!(*last > 0, "formats have no empty fields");
    let sum = device.reduce(Reduce::Sum, &product, leading.len())?;
    let equal = device.binary(Binary::Equal, sum, &zero)?;
    device.reshape(&equal, leading)
}

/// Whether all of the last axis of each is finite, `[..]`.
fn all_finite(device: &Device, first: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
    others
        .iter()
        .try_fold(finite(device, first)?, |sound, x| device.binary(Binary::And, sound, &finite(device, x)?))
}
