//! One tensor in a file, and the ways in which it becomes a handle.
//!
//! Invariants: shapes are held against what the model needs before anything is converted, so that a file's extents
//! enter no arithmetic; infinite scales are refused.

use super::{
    gguf::{Block, Planes},
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
    /// In blocks of codes that share a scale.
    Block(Block),
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

    /// A vector of floats in the dtype in which the device computes.
    pub(super) fn vector(&self, width: usize, device: &Device) -> Result<Tensor> {
        let vector = self.dense(&[width], device)?;
        Ok(device.cast(&vector, device.traits().compute_dtype)?)
    }

    /// A matrix as the file holds it: floats, or blocks as affine codes.
    pub(super) fn matrix(&self, shape: [usize; 2], device: &Device) -> Result<Weight> {
        let Encoding::Block(block) = self.encoding else {
            return self.dense(&shape, device).map(Weight::Dense);
        };
        self.require_shape(&shape)?;
        let mut planes = Planes::default();
        block.unpack(&self.rows_in_order(), &mut planes);
        upload_affine(
            block.affine(),
            shape,
            [&planes.codes, &planes.scales, &planes.biases],
            Dtype::F16,
            device,
        )
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
        [outputs, inputs]: [usize; 2],
        device: &Device,
    ) -> Result<Weight> {
        require_groups(inputs, format.group.into())?;
        self.require_encoding("codes", Dtype::U32)?;
        self.require_shape(&[outputs, format.words(inputs)])?;
        let dtype = match scales.encoding {
            Encoding::Plain(dtype) if dtype.is_float() => dtype,
            other => return Err(mismatch(format!("scales must be floats, are: {other:?}"))),
        };
        biases.require_encoding("biases", dtype)?;
        scales.require_shape(&[outputs, format.groups(inputs)])?;
        biases.require_shape(&[outputs, format.groups(inputs)])?;
        upload_affine(format, [outputs, inputs], [self.bytes, scales.bytes, biases.bytes], dtype, device)
    }

    /// Block-scaled small floats, decoded.
    pub(super) fn microscaling(
        &self,
        scales: &Entry<'_>,
        format: Format,
        [outputs, inputs]: [usize; 2],
        device: &Device,
    ) -> Result<Weight> {
        require_groups(inputs, format.group())?;
        self.require_encoding("codes", Dtype::U32)?;
        self.require_shape(&[outputs, inputs / format.codes_in_word()])?;
        scales.require_encoding("scales", Dtype::U8)?;
        scales.require_shape(&[outputs, inputs / format.group()])?;
        let values = format.decode(self.bytes, scales.bytes)?;
        Ok(Weight::Dense(device.upload(&values, Dtype::Bf16, &[outputs, inputs])?))
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

    /// The bytes, with the rows of each head in halves: row `side * half + pair` of a head is row `2 pair + side` in
    /// the file.
    fn rows_in_order(&self) -> Cow<'a, [u8]> {
        let rows = self.shape.first().copied().unwrap_or(0);
        let splits = |&heads: &usize| heads > 0 && rows > 0 && rows.is_multiple_of(2 * heads);
        let Some(heads) = self.interleaved_heads.filter(splits) else { return Cow::Borrowed(self.bytes) };
        let (size, width) = (self.bytes.len() / rows, rows / heads);
        let ordered = (0..rows).flat_map(|row| {
            let (head, within) = (row / width, row % width);
            let (side, pair) = (within / (width / 2), within % (width / 2));
            let stored = head * width + 2 * pair + side;
            &self.bytes[stored * size..(stored + 1) * size]
        });
        Cow::Owned(ordered.copied().collect())
    }
}

/// Codes, scales and biases of a matrix.
fn upload_affine(
    format: Affine,
    [outputs, inputs]: [usize; 2],
    [codes, scales, biases]: [&[u8]; 3],
    dtype: Dtype,
    device: &Device,
) -> Result<Weight> {
    require_finite(scales, dtype)?;
    require_finite(biases, dtype)?;
    let groups = [outputs, format.groups(inputs)];
    Ok(Weight::Affine(Quantized {
        codes: device.upload(codes, Dtype::U32, &[outputs, format.words(inputs)])?,
        scales: device.upload(scales, dtype, &groups)?,
        biases: device.upload(biases, dtype, &groups)?,
        format,
    }))
}

fn require_finite(bytes: &[u8], dtype: Dtype) -> Result<()> {
    let finite = match dtype {
        Dtype::F32 => bytes.chunks_exact(4).all(|it| f32::read(it).is_finite()),
        Dtype::F16 => bytes.chunks_exact(2).all(|it| f16::read(it).is_finite()),
        _ => bytes.chunks_exact(2).all(|it| bf16::read(it).is_finite()),
    };
    if finite { Ok(()) } else { Err(Error::format("a scale is infinite or not a number")) }
}

fn require_groups(inputs: usize, group: usize) -> Result<()> {
    if inputs.is_multiple_of(group) {
        return Ok(());
    }
    Err(mismatch(format!("{inputs} inputs are no whole number of groups of: {group}")))
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Tensor, message)
}
