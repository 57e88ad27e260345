//! Affine codes in MLX's layout: what `quantize` of the same values gives, bit for bit.

use super::{Codec, Format, Held, check_fields, check_input};
use tandem_contracts::tensor::{Affine, Device, Dtype, Quantized, Result, Tensor};

/// The codec behind [`Format::Affine`].
#[derive(Debug)]
pub(super) struct AffineCodec {
    pub(super) device: Device,
    pub(super) affine: Affine,
    pub(super) dtype: Dtype,
    pub(super) width: usize,
}

impl AffineCodec {
    fn quantized(&self, fields: &[Tensor]) -> Result<Quantized> {
        check_fields(self.format(), self.width, fields)?;
        Ok(Quantized {
            codes: fields[0].clone(),
            scales: fields[1].clone(),
            biases: fields[2].clone(),
            format: self.affine,
        })
    }
}

impl Codec for AffineCodec {
    fn format(&self) -> Format {
        Format::Affine { affine: self.affine, dtype: self.dtype }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        check_input("encode", x, self.width)?;
        let x = self.device.cast(x, self.dtype)?;
        let Quantized { codes, scales, biases, .. } = self.device.quantize(&x, self.affine)?;
        Ok(vec![codes, scales, biases])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        self.device.dequantize(&self.quantized(fields)?)
    }

    fn held(&self, fields: &[Tensor]) -> Result<Held> {
        self.quantized(fields).map(Held::Affine)
    }
}
