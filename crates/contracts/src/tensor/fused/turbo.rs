//! TurboQuant's encoders and what reads its codes.
//!
//! Arithmetic is in f32, step by step as the formulas are written, rounding to nearest with halves to even; sums and
//! means of a group run in ascending order. Scales and zero points are stored as f16, but codes are computed with the
//! unrounded ones.

use super::stream;
use crate::tensor::turbo::GROUP;
use crate::tensor::{
    Binary, Device, Dtype, Reduce, Result, Scalar, Tensor, TurboBook, TurboKeys, TurboValues, Unary, shape,
};

/// Keeps a divisor from being 0.
pub const EPSILON: f32 = 1e-8;

/// Keys: affine codes with a whole zero point.
///
/// For each group of 32 elements, with `M = 2^bits - 1` and epsilon 1e-8:
///
/// ```text
/// 8 bits:  scale = (max - min) / 254,  zero = round((max + min) / (2 (scale + epsilon))),  codes -127 to 127
/// others:  scale = (max - min) / M,    zero = round(min / (scale + epsilon)),              codes 0 to M
/// code  = clamp(round(x / (scale + epsilon) - zero))
/// ```
///
/// A group whose scale would vanish as f16, or whose zero point would exceed f16, is taken as constant: it stores its
/// mean as the scale, zero point 0 and codes 1, so that it comes back as that mean. Zeros are stored without a sign.
/// What becomes of a head that is not finite is open.
///
/// # Errors
/// As [`shape::encode_turbo_keys`].
pub fn encode_turbo_keys(device: &Device, x: &Tensor, bits: u8) -> Result<TurboKeys> {
    shape::encode_turbo_keys(x, bits)?;
    let f = Arithmetic(device);
    let groups = f.grouped(x)?;
    let Coded { codes, scale, zero } = settled(f, &groups, coded(f, &groups, bits)?)?;
    let (scales, zeros) = (f.stored(&scale)?, f.stored(&zero)?);
    let codes = f.joined(&codes)?;
    let codes = if bits == 8 {
        device.cast(&codes, Dtype::I8)?
    } else {
        stream::pack(device, &device.cast(&codes, Dtype::I32)?, bits)?
    };
    Ok(TurboKeys { bits, codes, scales, zeros })
}

/// Codes and what scales them, in f32 as computed: `[.., groups, 32]` and `[.., groups, 1]`.
struct Coded {
    codes: Tensor,
    scale: Tensor,
    zero: Tensor,
}

/// Smallest code of keys, largest code, and the number of steps between the ends of a range.
pub fn turbo_key_range(bits: u8) -> (f32, f32, f32) {
    if bits == 8 {
        return (-127.0, 127.0, 254.0);
    }
    let most = f32::from((1_u16 << bits) - 1);
    (0.0, most, most)
}

fn coded(f: Arithmetic<'_>, groups: &Tensor, bits: u8) -> Result<Coded> {
    let (least_code, most_code, steps) = turbo_key_range(bits);
    let (most, least) = (f.reduce(Reduce::Maximum, groups)?, f.reduce(Reduce::Minimum, groups)?);
    let scale = f.by(Binary::Divide, &f.binary(Binary::Subtract, &most, &least)?, steps)?;
    let divisor = f.by(Binary::Add, &scale, EPSILON)?;
    let zero = if bits == 8 {
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
fn settled(f: Arithmetic<'_>, groups: &Tensor, coded: Coded) -> Result<Coded> {
    // Which zero is smaller, or what a sum of negative zeros is, devices may settle for themselves.
    let positive_zero = |x: &Tensor| f.by(Binary::Add, x, 0.0);
    let as_stored = |x: &Tensor| f.0.cast(&f.0.cast(x, Dtype::F16)?, Dtype::F32);
    let vanishes = f.by(Binary::Equal, &as_stored(&coded.scale)?, 0.0)?;
    let zero = f.unary(Unary::Abs, &as_stored(&coded.zero)?)?;
    let overflows = f.by(Binary::Equal, &zero, f32::INFINITY)?;
    let constant = f.binary(Binary::Or, &vanishes, &overflows)?;
    let mean = positive_zero(&f.reduce(Reduce::Mean, groups)?)?;
    let (none, one) = (f.constant(0.0)?, f.constant(1.0)?);
    Ok(Coded {
        codes: f.0.select(&constant, &one, &coded.codes)?,
        scale: f.0.select(&constant, &mean, &coded.scale)?,
        zero: f.0.select(&constant, &none, &positive_zero(&coded.zero)?)?,
    })
}

/// Values: rotated so that elements look normal, scaled to unit variance, rounded to a codebook.
///
/// ```text
/// y     = hadamard(x * signs)
/// scale = sqrt(mean(y^2))                     for each group of 32
/// code  = count(boundaries < y / (scale + 1e-8))
/// ```
///
/// What becomes of a head that is not finite is open.
///
/// # Errors
/// As [`shape::encode_turbo_values`].
pub fn encode_turbo_values(device: &Device, x: &Tensor, book: &TurboBook) -> Result<TurboValues> {
    shape::encode_turbo_values(x, book)?;
    let f = Arithmetic(device);
    let signed = device.binary(Binary::Multiply, device.cast(x, Dtype::F32)?, &book.signs)?;
    let groups = f.grouped(&device.hadamard(&signed)?)?;
    let mean = f.reduce(Reduce::Mean, &f.unary(Unary::Square, &groups)?)?;
    let scale = f.unary(Unary::Sqrt, &mean)?;
    let unit = f.binary(Binary::Divide, &groups, &f.by(Binary::Add, &scale, EPSILON)?)?;
    let codes = f.joined(&below(device, &unit, book)?)?;
    let codes = if book.bits == 8 {
        device.cast(&codes, Dtype::U8)?
    } else {
        stream::pack(device, &codes, book.bits)?
    };
    Ok(TurboValues { book: book.clone(), codes, scales: f.stored(&scale)? })
}

/// How many boundaries lie below each element, by bisection: `i32` of the shape of `x`.
fn below(device: &Device, x: &Tensor, book: &TurboBook) -> Result<Tensor> {
    let number = |value| device.full(Scalar::Int(value), Dtype::I32, &[]);
    let mut code = device.full(Scalar::Int(0), Dtype::I32, x.shape())?;
    for bit in (0..book.bits).rev() {
        // With the boundary before `code + step` below the element, that many are.
        let step = 1_i32 << bit;
        let index = device.binary(Binary::Add, code.clone(), &number(step - 1)?)?;
        let boundary = device.take(&book.boundaries, &index, 0)?;
        let passed = device.binary(Binary::Less, boundary, x)?;
        let further = device.binary(Binary::Add, code.clone(), &number(step)?)?;
        code = device.select(&passed, &further, &code)?;
    }
    Ok(code)
}

/// The keys behind codes: `(code + zero) * scale`, `f32 [.., width]`.
///
/// # Errors
/// As [`shape::turbo_keys`].
pub fn turbo_keys(device: &Device, keys: &TurboKeys) -> Result<Tensor> {
    shape::turbo_keys("turbo_keys", keys)?;
    let f = Arithmetic(device);
    let codes =
        if keys.bits == 8 { keys.codes.clone() } else { stream::unpack(device, &keys.codes, keys.bits)? };
    let shifted = f.binary(Binary::Add, &f.grouped(&codes)?, &f.restored(&keys.zeros)?)?;
    f.joined(&f.binary(Binary::Multiply, &shifted, &f.restored(&keys.scales)?)?)
}

/// Rotated values, `levels[code] * scale`: `f32 [.., width]`.
///
/// # Errors
/// As [`shape::turbo_values`].
pub fn turbo_values(device: &Device, values: &TurboValues) -> Result<Tensor> {
    shape::turbo_values("turbo_values", values)?;
    let f = Arithmetic(device);
    let codes = if values.book.bits == 8 {
        device.cast(&values.codes, Dtype::I32)?
    } else {
        stream::unpack(device, &values.codes, values.book.bits)?
    };
    let levels = f.grouped(&device.take(&values.book.levels, &codes, 0)?)?;
    f.joined(&f.binary(Binary::Multiply, &levels, &f.restored(&values.scales)?)?)
}

/// Undoes the rotation of `f32 [.., width]`: `hadamard(y) * signs`.
///
/// # Errors
/// As [`shape::hadamard`], or signs of another width.
pub fn turn_back(device: &Device, y: &Tensor, signs: &Tensor) -> Result<Tensor> {
    device.binary(Binary::Multiply, device.hadamard(y)?, signs)
}

/// Short names for the port's operations on f32.
#[derive(Clone, Copy, Debug)]
struct Arithmetic<'a>(&'a Device);

impl Arithmetic<'_> {
    fn constant(self, value: f32) -> Result<Tensor> {
        self.0.full(Scalar::Float(value), Dtype::F32, &[])
    }

    fn binary(self, op: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.0.binary(op, a.clone(), b)
    }

    /// With a number on the right.
    fn by(self, op: Binary, a: &Tensor, b: f32) -> Result<Tensor> {
        self.0.binary(op, a.clone(), &self.constant(b)?)
    }

    fn unary(self, op: Unary, x: &Tensor) -> Result<Tensor> {
        self.0.unary(op, x.clone())
    }

    /// Over the last axis, which becomes 1.
    fn reduce(self, op: Reduce, x: &Tensor) -> Result<Tensor> {
        self.0.reduce(op, x, x.shape().len() - 1)
    }

    /// `[.., width]` in f32 as `[.., groups, 32]`.
    fn grouped(self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F32)?;
        let width = x.shape().last().copied().unwrap_or(0);
        self.0.reshape(&x, &with_last(x.shape(), &[width / GROUP, GROUP]))
    }

    /// `[.., groups, 32]` as `[.., width]`.
    fn joined(self, x: &Tensor) -> Result<Tensor> {
        let (leading, &[groups, size]) = x.shape().split_last_chunk::<2>().unwrap_or((&[], &[1, 1]));
        self.0.reshape(x, &[leading, &[groups * size]].concat())
    }

    /// One number for each group, `[.., groups, 1]`, as f16 `[.., groups]`.
    fn stored(self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F16)?;
        self.0.reshape(&x, &x.shape()[..x.shape().len() - 1])
    }

    /// The stored numbers, f16 `[.., groups]`, as f32 `[.., groups, 1]`.
    fn restored(self, x: &Tensor) -> Result<Tensor> {
        let x = self.0.cast(x, Dtype::F32)?;
        self.0.reshape(&x, &[x.shape(), &[1]].concat())
    }
}

/// `shape` with its last axis replaced.
pub(super) fn with_last(shape: &[usize], last: &[usize]) -> Vec<usize> {
    [&shape[..shape.len() - 1], last].concat()
}

#[cfg(all(test, feature = "fake"))]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn keys_by_hand() {
        let device = fake::open();
        // From 0 to 31: at 4 bits the scale is 31/15 and the zero point 0.
        let x: Vec<f32> = (0..32_u8).map(f32::from).collect();
        let keys = device.encode_turbo_keys(&device.upload_f32(&x, &[1, 32]).unwrap(), 4).unwrap();
        let scale = half::f16::from_f32(31.0 / 15.0);
        assert_eq!(keys.scales.to_vec::<half::f16>().unwrap(), [scale]);
        assert_eq!(keys.zeros.to_vec::<half::f16>().unwrap(), [half::f16::ZERO]);
        // 0 and 1 are nearest to code 0, 2 and 3 to code 1; 30 (14.5 steps) and 31 to code 15.
        let codes = keys.codes.to_vec::<u8>().unwrap();
        assert_eq!((codes[0], codes[1], codes[15]), (0x00, 0x11, 0xff));
        let values = turbo_keys(&device, &keys).unwrap().to_vec::<f32>().unwrap();
        assert_eq!((values[0], values[3], values[31]), (0.0, scale.to_f32(), 15.0 * scale.to_f32()));
    }

    #[test]
    fn values_by_hand() {
        let device = fake::open();
        let book = TurboBook {
            bits: 2,
            levels: device.upload_f32(&[-3.0, -1.0, 1.0, 3.0], &[4]).unwrap(),
            boundaries: device.upload_f32(&[-2.0, 0.0, 2.0], &[3]).unwrap(),
            signs: device.upload_f32(&[1.0; 32], &[32]).unwrap(),
        };
        // One element spreads over all of them alike: each is 1/sqrt(32) of it, and so is the scale.
        let mut x = [0.0; 32];
        x[0] = 32_f32.sqrt();
        let values = device.encode_turbo_values(&device.upload_f32(&x, &[32]).unwrap(), &book).unwrap();
        assert_eq!(values.codes.to_vec::<u8>().unwrap(), [0b1010_1010; 8]);
        let rotated = turbo_values(&device, &values).unwrap();
        assert_eq!(rotated.to_vec::<f32>().unwrap(), [1.0; 32]);
        let back = turn_back(&device, &rotated, &book.signs).unwrap().to_vec::<f32>().unwrap();
        assert!((back[0] - 32_f32.sqrt()).abs() < 1e-6 && back[1..].iter().all(|x| *x == 0.0));
    }
}
