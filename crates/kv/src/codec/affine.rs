//! Affine codes in MLX's layout: what `quantize` of the same values gives, bit for bit.

use super::{Codec, Encoded, Format, all_finite, check_fields, check_input};
use tandem_contracts::tensor::{Affine, Device, Dtype, Quantized, Result, Tensor};

/// The codec behind [`Format::Affine`].
#[derive(Debug)]
pub(super) struct AffineCodec {
    pub(super) device: Device,
    pub(super) affine: Affine,
    pub(super) dtype: Dtype,
    pub(super) width: usize,
}

impl Codec for AffineCodec {
    fn format(&self) -> Format {
        Format::Affine { affine: self.affine, dtype: self.dtype }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Encoded> {
        check_input("encode", x, self.width)?;
        let x = self.device.cast(x, self.dtype)?;
        let Quantized { codes, scales, biases, .. } = self.device.quantize(&x, self.affine)?;
        // Finite elements still have no scale where their range exceeds that of f32.
        let sound = all_finite(&self.device, &x, &[&scales, &biases])?;
        Ok(Encoded { fields: vec![codes, scales, biases], sound })
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        check_fields(self.format(), self.width, fields)?;
        self.device.dequantize(&Quantized {
            codes: fields[0].clone(),
            scales: fields[1].clone(),
            biases: fields[2].clone(),
            format: self.affine,
        })
    }
}
