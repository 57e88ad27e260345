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
//! 2. Nothing is silently spread. Where an element is not finite, or a stored number would not be, that shows in
//!    [`Codec::witnesses`]; the caller looks at them on the device, reads what it saw with the evaluation of the step, and
//!    fails the row.
//! 3. Nothing here evaluates.

mod affine;
mod format;
mod held;
mod plain;
mod scheme;
mod turbo;

pub use format::{Field, Fields, Format};
pub use held::Held;
pub use scheme::Scheme;
pub use turbo::levels;

use std::{fmt, rc::Rc};
use tandem_contracts::tensor::{Device, Error, Result, Tensor};

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

    /// Floats that are finite exactly where `x` is and all its numbers could be stored in `fields`, which
    /// [`Codec::encode`] made of it.
    fn witnesses<'t>(&self, x: &'t Tensor, fields: &'t [Tensor]) -> Vec<&'t Tensor> {
        // Codes of what is not finite look like others; a plain number that is beyond its dtype has become infinite.
        let own = (!self.format().is_plain()).then_some(x);
        own.into_iter().chain(fields.iter().filter(|field| field.dtype().is_float())).collect()
    }

    /// The values behind fields: `[.., width]`. They are in the dtype of the format's floats, `bf16` for TurboQuant.
    ///
    /// # Errors
    /// Fields of another number, shape or dtype than the format's, or the device's own.
    fn decode(&self, fields: &[Tensor]) -> Result<Tensor>;

    /// Fields as the plane that attention reads, codes as they are. Not bit-equal to decoding first: codes are read as
    /// f32, and TurboQuant's values are turned back after they were mixed; see [`tandem_contracts::tensor::Plane`].
    ///
    /// # Errors
    /// As [`Codec::decode`].
    fn held(&self, fields: &[Tensor]) -> Result<Held>;
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
            Self::TurboKeys { bits } => Rc::new(turbo::Keys { device, bits, width }),
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
    fn leading(field: &Tensor) -> Option<&[usize]> {
        field.shape().split_last().map(|(_, leading)| leading)
    }
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
