//! Keys: affine codes with a whole zero point; see [`fused::encode_turbo_keys`].

use super::super::{Codec, Format, Held, check_fields, check_input};
use tandem_contracts::tensor::{Device, Dtype, Result, Tensor, TurboKeys, fused};

/// The codec behind [`Format::TurboKeys`].
#[derive(Debug)]
pub(in crate::codec) struct Keys {
    pub(in crate::codec) device: Device,
    pub(in crate::codec) bits: u8,
    pub(in crate::codec) width: usize,
}

impl Keys {
    fn keys(&self, fields: &[Tensor]) -> Result<TurboKeys> {
        check_fields(self.format(), self.width, fields)?;
        Ok(TurboKeys {
            bits: self.bits,
            codes: fields[0].clone(),
            scales: fields[1].clone(),
            zeros: fields[2].clone(),
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
        let TurboKeys { codes, scales, zeros, .. } = self.device.encode_turbo_keys(x, self.bits)?;
        Ok(vec![codes, scales, zeros])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        let values = fused::turbo_keys(&self.device, &self.keys(fields)?)?;
        self.device.cast(&values, Dtype::Bf16)
    }

    fn held(&self, fields: &[Tensor]) -> Result<Held> {
        self.keys(fields).map(Held::TurboKeys)
    }
}
