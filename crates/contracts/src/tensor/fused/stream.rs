//! Packing: codes of a head as one little-endian bit stream, code `i` at bits `i * bits` and on.
//!
//! Eight codes fill `bits` whole bytes, and a byte holds parts of few of them: each byte of eight codes is the union
//! of shifted codes, each code the union of shifted bytes.

use super::turbo::with_last;
use crate::tensor::{Binary, Device, Dtype, Error, Result, Scalar, Tensor};

/// `i32 [.., width]` of codes below `2^bits` as `u8 [.., width * bits / 8]`; the width is a multiple of 8.
pub(super) fn pack(device: &Device, codes: &Tensor, bits: u8) -> Result<Tensor> {
    let bits = usize::from(bits);
    let width = codes.shape().last().copied().unwrap_or(0);
    let eights = device.reshape(codes, &[codes.elements() / 8, 8])?;
    let byte = |byte: usize| {
        let (first, end) = (8 * byte, 8 * byte + 8);
        let parts = (first / bits..end.div_ceil(bits)).map(|code| {
            let part = column(device, &eights, code)?;
            shift(device, part, bits as isize * code as isize - first as isize)
        });
        union(device, parts)
    };
    let bytes = (0..bits).map(byte).collect::<Result<Vec<_>>>()?;
    let bytes = device.concat(&bytes.iter().collect::<Vec<_>>(), 1)?;
    // Keeps the low 8 bits, which drops what belongs to the next byte.
    device.reshape(&device.cast(&bytes, Dtype::U8)?, &with_last(codes.shape(), &[width * bits / 8]))
}

/// Undoes [`pack`].
pub(super) fn unpack(device: &Device, bytes: &Tensor, bits: u8) -> Result<Tensor> {
    let mask = device.full(Scalar::Int((1 << bits) - 1), Dtype::I32, &[])?;
    let bits = usize::from(bits);
    let length = bytes.shape().last().copied().unwrap_or(0);
    let eights = device.reshape(&device.cast(bytes, Dtype::I32)?, &[bytes.elements() / bits, bits])?;
    let code = |code: usize| {
        let (first, end) = (bits * code, bits * code + bits);
        let parts = (first / 8..end.div_ceil(8)).map(|byte| {
            let part = column(device, &eights, byte)?;
            shift(device, part, 8 * byte as isize - first as isize)
        });
        device.binary(Binary::And, union(device, parts)?, &mask)
    };
    let codes = (0..8).map(code).collect::<Result<Vec<_>>>()?;
    let codes = device.concat(&codes.iter().collect::<Vec<_>>(), 1)?;
    device.reshape(&codes, &with_last(bytes.shape(), &[length * 8 / bits]))
}

fn column(device: &Device, x: &Tensor, index: usize) -> Result<Tensor> {
    device.slice(x, &[0..x.shape()[0], index..index + 1])
}

/// To the left where `by` is positive.
fn shift(device: &Device, x: Tensor, by: isize) -> Result<Tensor> {
    let distance = device.full(Scalar::Int(by.unsigned_abs() as i32), Dtype::I32, &[])?;
    match by {
        0 => Ok(x),
        1.. => device.binary(Binary::ShiftLeft, x, &distance),
        _ => device.binary(Binary::ShiftRight, x, &distance),
    }
}

fn union(device: &Device, parts: impl Iterator<Item = Result<Tensor>>) -> Result<Tensor> {
    parts
        .reduce(|all, part| device.binary(Binary::Or, all?, &part?))
        .unwrap_or_else(|| Err(Error::shape("pack", "a byte has bits")))
}

#[cfg(all(test, feature = "fake"))]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn bytes_by_hand() {
        let device = fake::open();
        let packed = |codes: &[i32], bits| {
            let codes = device.upload_i32(codes, &[1, codes.len()]).unwrap();
            pack(&device, &codes, bits).unwrap().to_vec::<u8>().unwrap()
        };
        assert_eq!(packed(&[1, 2, 3, 0, 0, 0, 0, 3], 2), [0b0011_1001, 0b1100_0000]);
        // Code 2 has 2 bits in the first byte and 1 in the second, code 5 has 1 and 2.
        assert_eq!(packed(&[1, 2, 3, 4, 5, 6, 7, 0], 3), [0b1101_0001, 0b0101_1000, 0b0001_1111]);
        assert_eq!(packed(&[1, 15, 0, 8, 2, 0, 0, 4], 4), [0xF1, 0x80, 0x02, 0x40]);
        assert_eq!(packed(&[31, 0, 0, 0, 0, 0, 0, 16], 5), [31, 0, 0, 0, 0b1000_0000]);
    }

    #[test]
    fn codes_come_back() {
        let device = fake::open();
        for bits in [2, 3, 4, 5] {
            let codes: Vec<i32> = (0..2 * 3 * 64).map(|i| (i * 7 + i / 5) % (1 << bits)).collect();
            let tensor = device.upload_i32(&codes, &[2, 3, 64]).unwrap();
            let bytes = pack(&device, &tensor, bits).unwrap();
            assert_eq!(bytes.shape(), [2, 3, 8 * usize::from(bits)]);
            assert_eq!(unpack(&device, &bytes, bits).unwrap().to_vec::<i32>().unwrap(), codes);
        }
    }
}
