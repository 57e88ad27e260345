//! One tensor in a file, and the ways in which it becomes a handle.
//!
//! Invariants: shapes are held against what the model needs before anything is converted, so that a file's extents
//! enter no arithmetic; infinite scales are refused.

use super::{
    gguf::{Block, Factors, Packed},
    microscaling::Format,
};
use crate::error::{Error, ErrorKind, Result};
use half::{bf16, f16};
use std::borrow::Cow;
use tandem_contracts::tensor::{Affine, Device, Dtype, Element, Quantized, Tensor, Weight};

/// A tensor's place in a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(super) file: &'a str,
    /// Extents, row-major.
    pub(super) shape: Vec<usize>,
    pub(super) encoding: Encoding,
    pub(super) bytes: &'a [u8],
    /// Set where the rows of each head stand in neighbouring pairs and are to be put back into halves.
    pub(super) interleaved_heads: Option<usize>,
}

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// One after the other.
    Plain(Dtype),
    /// In blocks of affine codes.
    Block(Block),
    /// In other blocks of codes.
    Packed(Packed),
}

impl<'a> Entry<'a> {
    /// Extents, row-major.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements of a float tensor, on the host.
    pub(crate) fn floats(&self) -> Result<Vec<f32>> {
        let floats = match self.encoding {
            Encoding::Plain(Dtype::F32) => self.bytes.chunks_exact(4).map(f32::read).collect(),
            Encoding::Plain(Dtype::F16) => {
                self.bytes.chunks_exact(2).map(|it| f16::read(it).to_f32()).collect()
            }
            Encoding::Plain(Dtype::Bf16) => {
                self.bytes.chunks_exact(2).map(|it| bf16::read(it).to_f32()).collect()
            }
            other => return Err(mismatch(format!("must hold floats, holds: {other:?}"))),
        };
        Ok(floats)
    }

    /// Floats in the dtype in which the device computes.
    pub(super) fn computed(&self, shape: &[usize], device: &Device) -> Result<Tensor> {
        let floats = self.dense(shape, device)?;
        Ok(device.cast(&floats, device.traits().compute_dtype)?)
    }

    /// Floats in f32.
    pub(super) fn exact(&self, shape: &[usize], device: &Device) -> Result<Tensor> {
        Ok(device.cast(&self.dense(shape, device)?, Dtype::F32)?)
    }

    /// A matrix, or a stack of them, with the values that the file holds: affine codes where its blocks are such, or else
    /// floats.
    pub(super) fn matrix(&self, shape: &[usize], device: &Device) -> Result<Weight> {
        match self.encoding {
            Encoding::Plain(_) => self.dense(shape, device).map(Weight::Dense),
            Encoding::Block(block) => {
                let blocks = self.blocks(shape)?;
                let factors = block.factors(&blocks);
                coded(block.affine(), factors, shape, device, &mut |codes| block.unpack(&blocks, codes))
            }
            Encoding::Packed(packed) => {
                let blocks = self.blocks(shape)?;
                let Some(format) = packed.affine() else { return decoded(packed, &blocks, shape, device) };
                let factors = packed.factors(&blocks);
                coded(format, factors, shape, device, &mut |codes| packed.unpack(&blocks, codes))
            }
        }
    }

    fn blocks(&self, shape: &[usize]) -> Result<Cow<'a, [u8]>> {
        self.require_shape(shape)?;
        Ok(self.rows_in_order())
    }

    fn dense(&self, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.require_shape(shape)?;
        match self.encoding {
            Encoding::Plain(dtype) if dtype.is_float() => {
                Ok(device.upload(&self.rows_in_order(), dtype, shape)?)
            }
            other => Err(mismatch(format!("must hold floats, holds: {other:?}"))),
        }
    }

    /// Affine codes with their `[scales, biases]`, in MLX's layout.
    pub(super) fn affine(
        &self,
        [scales, biases]: [&Entry<'_>; 2],
        format: Affine,
        shape: &[usize],
        device: &Device,
    ) -> Result<Weight> {
        require_groups(shape, format.group.into())?;
        self.require_encoding("codes", Dtype::U32)?;
        let words = with_inputs(shape, |inputs| format.words(inputs));
        self.require_shape(&words)?;
        let dtype = match scales.encoding {
            Encoding::Plain(dtype) if dtype.is_float() => dtype,
            other => return Err(mismatch(format!("scales must be floats, are: {other:?}"))),
        };
        biases.require_encoding("biases", dtype)?;
        let groups = with_inputs(shape, |inputs| format.groups(inputs));
        scales.require_shape(&groups).map_err(|error| error.about("scales"))?;
        biases.require_shape(&groups).map_err(|error| error.about("biases"))?;
        let factors = [scales.bytes, biases.bytes];
        let [scales, biases] = upload_factors(format, shape, factors, dtype, device)?;
        let codes = device.upload(self.bytes, Dtype::U32, &words)?;
        Ok(Weight::Affine(Quantized { codes, scales, biases, format }))
    }

    /// Block-scaled small floats, decoded.
    pub(super) fn microscaling(
        &self,
        scales: &Entry<'_>,
        format: Format,
        shape: &[usize],
        device: &Device,
    ) -> Result<Weight> {
        require_groups(shape, format.group())?;
        self.require_encoding("codes", Dtype::U32)?;
        self.require_shape(&with_inputs(shape, |inputs| inputs / format.codes_in_word()))?;
        scales.require_encoding("scales", Dtype::U8)?;
        let groups = with_inputs(shape, |inputs| inputs / format.group());
        scales.require_shape(&groups).map_err(|error| error.about("scales"))?;
        let values = format.decode(self.bytes, scales.bytes)?;
        Ok(Weight::Dense(device.upload(&values, Dtype::Bf16, shape)?))
    }

    fn require_shape(&self, shape: &[usize]) -> Result<()> {
        if self.shape == shape {
            return Ok(());
        }
        Err(mismatch(format!("must have the shape {shape:?}, has: {:?}", self.shape)))
    }

    fn require_encoding(&self, what: &str, dtype: Dtype) -> Result<()> {
        if self.encoding == Encoding::Plain(dtype) {
            return Ok(());
        }
        Err(mismatch(format!("{what} must be {dtype:?}, are: {:?}", self.encoding)))
    }

    /// The bytes, with the rows of each head in halves if the file has them in pairs.
    fn rows_in_order(&self) -> Cow<'a, [u8]> {
        let rows = self.shape.first().copied().unwrap_or(0);
        let splits = |&heads: &usize| heads > 0 && rows > 0 && rows.is_multiple_of(2 * heads);
        let Some(heads) = self.interleaved_heads.filter(splits) else { return Cow::Borrowed(self.bytes) };
        Cow::Owned(in_halves(self.bytes, rows, heads))
    }

    /// The bytes of a tensor of `u8`. With `pairs` its first axes are so many rows of so many heads, which stand in pairs and
    /// are put into halves.
    pub(super) fn octets(&self, shape: &[usize], pairs: Option<(usize, usize)>) -> Result<Cow<'a, [u8]>> {
        self.require_encoding("elements", Dtype::U8)?;
        self.require_shape(shape)?;
        Ok(match pairs {
            Some((rows, heads)) => Cow::Owned(in_halves(self.bytes, rows, heads)),
            None => Cow::Borrowed(self.bytes),
        })
    }
}

/// Rows with those of each head in halves: row `side * half + pair` of a head is row `2 pair + side` in `bytes`.
fn in_halves(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let (size, width) = (bytes.len() / rows, rows / heads);
    let mut ordered = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        let (head, within) = (row / width, row % width);
        let (side, pair) = (within / (width / 2), within % (width / 2));
        let stored = head * width + 2 * pair + side;
        ordered.extend_from_slice(&bytes[stored * size..(stored + 1) * size]);
    }
    ordered
}

/// A shape with the last axis, that of the inputs, in other units.
fn with_inputs(shape: &[usize], units: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape.last_mut().into_iter().for_each(|inputs| *inputs = units(*inputs));
    shape
}

/// Blocks as affine codes, which `unpack` writes.
fn coded(
    format: Affine,
    factors: Factors,
    shape: &[usize],
    device: &Device,
    unpack: &mut dyn FnMut(&mut [u8]),
) -> Result<Weight> {
    let Factors { scales, biases, dtype } = factors;
    let [scales, biases] = upload_factors(format, shape, [&scales, &biases], dtype, device)?;
    let words = with_inputs(shape, |inputs| format.words(inputs));
    let codes = device.upload_with(Dtype::U32, &words, unpack)?;
    Ok(Weight::Affine(Quantized { codes, scales, biases, format }))
}

/// Blocks as floats.
fn decoded(packed: Packed, blocks: &[u8], shape: &[usize], device: &Device) -> Result<Weight> {
    if !packed.is_finite(blocks) {
        return Err(infinite_scale());
    }
    let values = device.upload_with(Dtype::F32, shape, &mut |values| packed.decode(blocks, values))?;
    Ok(Weight::Dense(values))
}

/// Scales and biases of a matrix.
fn upload_factors(
    format: Affine,
    shape: &[usize],
    factors: [&[u8]; 2],
    dtype: Dtype,
    device: &Device,
) -> Result<[Tensor; 2]> {
    let groups = with_inputs(shape, |inputs| format.groups(inputs));
    factors.iter().try_for_each(|bytes| require_finite(bytes, dtype))?;
    Ok([device.upload(factors[0], dtype, &groups)?, device.upload(factors[1], dtype, &groups)?])
}

/// Refuses infinities and what is not a number: floats whose exponent is all ones.
fn require_finite(bytes: &[u8], dtype: Dtype) -> Result<()> {
    let half = |exponent: u16| {
        let infinite = |it: &[u8]| u16::from_le_bytes([it[0], it[1]]) & exponent == exponent;
        !bytes.chunks_exact(2).fold(false, |found, it| found | infinite(it))
    };
    let finite = match dtype {
        Dtype::F32 => bytes.chunks_exact(4).all(|it| f32::read(it).is_finite()),
        Dtype::F16 => half(0x7c00),
        _ => half(0x7f80),
    };
    if finite { Ok(()) } else { Err(infinite_scale()) }
}

fn infinite_scale() -> Error {
    Error::format("a scale is infinite or not a number")
}

pub(super) fn require_groups(shape: &[usize], group: usize) -> Result<()> {
    let inputs = shape.last().copied().unwrap_or(0);
    if inputs.is_multiple_of(group) {
        return Ok(());
    }
    Err(mismatch(format!("{inputs} inputs are no whole number of groups of: {group}")))
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Tensor, message)
}
