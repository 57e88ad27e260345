//! Keys: affine codes with a whole zero point.
//!
//! For each group of 32 elements, with `M = 2^bits - 1` and epsilon 1e-8:
//!
//! ```text
//! 8 bits:  scale = (max - min) / 254,  zero = round((max + min) / (2 (scale + epsilon))),  codes -127 to 127
//! others:  scale = (max - min) / M,    zero = round(min / (scale + epsilon)),              codes 0 to M
//! code  = clamp(round(x / (scale + epsilon) - zero))
//! x     = (code + zero) * scale
//! ```
//!
//! Invariant: a group whose scale would vanish as f16, or whose zero point would exceed f16, is taken as constant: it
//! stores its mean as the scale, zero point 0 and codes 1, so that it comes back as that mean. Zeros are stored
//! without a sign.

use super::{
    super::{Codec, Format, all_finite, check_fields, check_input},
    Arithmetic, EPSILON, code,
};
use tandem_contracts::tensor::{Binary, Device, Dtype, Reduce, Result, Tensor, Unary};

/// The codec behind [`Format::TurboKeys`].
#[derive(Debug)]
pub(in crate::codec) struct Keys {
    device: Device,
    bits: u8,
    width: usize,
}

/// Codes and what scales them, in f32 as computed: `[.., groups, 32]` and `[.., groups, 1]`.
struct Coded {
    codes: Tensor,
    scale: Tensor,
    zero: Tensor,
}

impl Keys {
    pub(in crate::codec) fn open(device: Device, bits: u8, width: usize) -> Result<Self> {
        Ok(Self { device, bits, width })
    }

    /// Smallest code, largest code, and the number of steps between the ends of a range.
    fn range(&self) -> (f32, f32, f32) {
        if self.bits == 8 {
            return (-127.0, 127.0, 254.0);
        }
        let most = f32::from((1_u16 << self.bits) - 1);
        (0.0, most, most)
    }

    fn coded(&self, groups: &Tensor) -> Result<Coded> {
        let f = Arithmetic(&self.device);
        let (least_code, most_code, steps) = self.range();
        let (most, least) = (f.reduce(Reduce::Maximum, groups)?, f.reduce(Reduce::Minimum, groups)?);
        let scale = f.by(Binary::Divide, &f.binary(Binary::Subtract, &most, &least)?, steps)?;
        let divisor = f.by(Binary::Add, &scale, EPSILON)?;
        let zero = if self.bits == 8 {
            let twice = f.by(Binary::Multiply, &divisor, 2.0)?;
            f.binary(Binary::Divide, &f.binary(Binary::Add, &most, &least)?, &twice)?
        } else {
            f.binary(Binary::Divide, &least, &divisor)?
        };
        let zero = f.unary(Unary::Round, &zero)?;
        let codes = f.binary(Binary::Divide, groups, &divisor)?;
        let codes = f.unary(Unary::Round, &f.binary(Binary::Subtract, &codes, &zero)?)?;
        let codes = f.by(Binary::Minimum, &f.by(Binary::Maximum, &codes, least_code)?, most_code)?;
        Ok(Coded { codes, scale, zero })
    }

    /// Replaces groups that have no usable scale or zero point by their mean.
    fn settled(&self, groups: &Tensor, coded: Coded) -> Result<Coded> {
        let f = Arithmetic(&self.device);
        // Which zero is smaller, or what a sum of negative zeros is, devices may settle for themselves.
        let positive_zero = |x: &Tensor| f.by(Binary::Add, x, 0.0);
        let as_stored = |x: &Tensor| self.device.cast(&self.device.cast(x, Dtype::F16)?, Dtype::F32);
        let vanishes = f.by(Binary::Equal, &as_stored(&coded.scale)?, 0.0)?;
        let zero = f.unary(Unary::Abs, &as_stored(&coded.zero)?)?;
        let overflows = f.by(Binary::Equal, &zero, f32::INFINITY)?;
        let constant = f.binary(Binary::Or, &vanishes, &overflows)?;
        let mean = positive_zero(&f.reduce(Reduce::Mean, groups)?)?;
        let (none, one) = (f.constant(0.0)?, f.constant(1.0)?);
        Ok(Coded {
            codes: self.device.select(&constant, &one, &coded.codes)?,
            scale: self.device.select(&constant, &mean, &coded.scale)?,
            zero: self.device.select(&constant, &none, &positive_zero(&coded.zero)?)?,
        })
    }
}

impl Codec for Keys {
    fn format(&self) -> Format {
        Format::TurboKeys { bits: self.bits }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        check_input("encode", x, self.width)?;
        let f = Arithmetic(&self.device);
        let groups = f.grouped(x)?;
        let Coded { codes, scale, zero } = self.settled(&groups, self.coded(&groups)?)?;
        let (scales, zeros) = (f.stored(&scale)?, f.stored(&zero)?);
        let codes = f.joined(&codes)?;
        let codes = if self.bits == 8 {
            self.device.cast(&codes, Dtype::I8)?
        } else {
            code::pack(&self.device, &self.device.cast(&codes, Dtype::I32)?, self.bits)?
        };
        Ok(vec![codes, scales, zeros])
    }

    fn sound(&self, x: &Tensor, fields: &[Tensor]) -> Result<Tensor> {
        check_input("sound", x, self.width)?;
        check_fields(self.format(), self.width, fields)?;
        all_finite(&self.device, x, &[&fields[1], &fields[2]])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        check_fields(self.format(), self.width, fields)?;
        let f = Arithmetic(&self.device);
        let codes = if self.bits == 8 {
            fields[0].clone()
        } else {
            code::unpack(&self.device, &fields[0], self.bits)?
        };
        let (scale, zero) = (f.restored(&fields[1])?, f.restored(&fields[2])?);
        let shifted = f.binary(Binary::Add, &f.grouped(&codes)?, &zero)?;
        let values = f.joined(&f.binary(Binary::Multiply, &shifted, &scale)?)?;
        self.device.cast(&values, Dtype::Bf16)
    }
}
