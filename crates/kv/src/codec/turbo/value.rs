//! Values: rotated so that elements look normal, scaled to unit variance, rounded to a codebook.
//!
//! ```text
//! y     = rotate(x)
//! scale = sqrt(mean(y^2))                     for each group of 32
//! code  = count(boundaries < y / (scale + 1e-8))
//! y     = codebook[code] * scale,  x = turn_back(y)
//! ```
//!
//! Turning back is linear, so attention may mix rotated values and turn the result back once.

use super::{
    super::{Codec, Format, all_finite, check_fields, check_input},
    Arithmetic, EPSILON, code,
    codebook::{boundaries, levels},
    rotation::Rotation,
};
use tandem_contracts::tensor::{Binary, Device, Dtype, Reduce, Result, Scalar, Tensor, Unary};

/// The codec behind [`Format::TurboValues`].
#[derive(Debug)]
pub(in crate::codec) struct Values {
    device: Device,
    bits: u8,
    width: usize,
    rotation: Rotation,
    /// `f32 [2^bits]`.
    levels: Tensor,
    /// `f32 [2^bits - 1]`.
    boundaries: Tensor,
}

impl Values {
    pub(in crate::codec) fn open(device: Device, bits: u8, width: usize) -> Result<Self> {
        let (levels, boundaries) = (levels(bits), boundaries(bits));
        Ok(Self {
            bits,
            width,
            rotation: Rotation::open(&device, width)?,
            levels: device.upload_f32(&levels, &[levels.len()])?,
            boundaries: device.upload_f32(&boundaries, &[boundaries.len()])?,
            device,
        })
    }

    /// How many boundaries lie below each element, by bisection: `i32` of the shape of `x`.
    fn below(&self, x: &Tensor) -> Result<Tensor> {
        let number = |value| self.device.full(Scalar::Int(value), Dtype::I32, &[]);
        let mut code = self.device.full(Scalar::Int(0), Dtype::I32, x.shape())?;
        for bit in (0..self.bits).rev() {
            // With the boundary before `code + step` below the element, that many are.
            let step = 1_i32 << bit;
            let index = self.device.binary(Binary::Add, code.clone(), &number(step - 1)?)?;
            let boundary = self.device.take(&self.boundaries, &index, 0)?;
            let passed = self.device.binary(Binary::Less, boundary, x)?;
            let further = self.device.binary(Binary::Add, code.clone(), &number(step)?)?;
            code = self.device.select(&passed, &further, &code)?;
        }
        Ok(code)
    }

    /// Levels times scales, in the rotated domain: `f32 [.., width]`.
    fn rotated(&self, fields: &[Tensor]) -> Result<Tensor> {
        check_fields(self.format(), self.width, fields)?;
        let f = Arithmetic(&self.device);
        let codes = if self.bits == 8 {
            self.device.cast(&fields[0], Dtype::I32)?
        } else {
            code::unpack(&self.device, &fields[0], self.bits)?
        };
        let y = f.grouped(&self.device.take(&self.levels, &codes, 0)?)?;
        f.joined(&f.binary(Binary::Multiply, &y, &f.restored(&fields[1])?)?)
    }
}

impl Codec for Values {
    fn format(&self) -> Format {
        Format::TurboValues { bits: self.bits }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        check_input("encode", x, self.width)?;
        let f = Arithmetic(&self.device);
        let groups = f.grouped(&self.rotation.rotate(&self.device.cast(x, Dtype::F32)?)?)?;
        let mean = f.reduce(Reduce::Mean, &f.unary(Unary::Square, &groups)?)?;
        let scale = f.unary(Unary::Sqrt, &mean)?;
        let unit = f.binary(Binary::Divide, &groups, &f.by(Binary::Add, &scale, EPSILON)?)?;
        let codes = f.joined(&self.below(&unit)?)?;
        let codes = if self.bits == 8 {
            self.device.cast(&codes, Dtype::U8)?
        } else {
            code::pack(&self.device, &codes, self.bits)?
        };
        let scales = f.stored(&scale)?;
        Ok(vec![codes, scales])
    }

    fn sound(&self, x: &Tensor, fields: &[Tensor]) -> Result<Tensor> {
        check_input("sound", x, self.width)?;
        check_fields(self.format(), self.width, fields)?;
        all_finite(&self.device, x, &[&fields[1]])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        let values = self.rotation.turn_back(&self.rotated(fields)?)?;
        self.device.cast(&values, Dtype::Bf16)
    }

    fn decode_deferred(&self, fields: &[Tensor]) -> Result<Tensor> {
        self.device.cast(&self.rotated(fields)?, Dtype::Bf16)
    }

    fn settle(&self, mixed: Tensor) -> Result<Tensor> {
        check_input("settle", &mixed, self.width)?;
        let dtype = mixed.dtype();
        let turned = self.rotation.turn_back(&self.device.cast(&mixed, Dtype::F32)?)?;
        self.device.cast(&turned, dtype)
    }
}
