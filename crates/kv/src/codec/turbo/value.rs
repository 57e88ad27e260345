//! Values: rotated so that elements look normal, scaled to unit variance, rounded to a codebook; see
//! [`fused::encode_turbo_values`].

use super::{
    super::{Codec, Format, Held, check_fields, check_input},
    codebook::{boundaries, levels},
    sign::signs,
};
use tandem_contracts::tensor::{Device, Dtype, Result, Tensor, TurboBook, TurboValues, fused};

/// The codec behind [`Format::TurboValues`].
#[derive(Debug)]
pub(in crate::codec) struct Values {
    device: Device,
    width: usize,
    book: TurboBook,
}

impl Values {
    pub(in crate::codec) fn open(device: Device, bits: u8, width: usize) -> Result<Self> {
        let (levels, boundaries) = (levels(bits), boundaries(bits));
        let book = TurboBook {
            bits,
            levels: device.upload_f32(&levels, &[levels.len()])?,
            boundaries: device.upload_f32(&boundaries, &[boundaries.len()])?,
            signs: device.upload_f32(&signs(width), &[width])?,
        };
        Ok(Self { device, width, book })
    }

    fn values(&self, fields: &[Tensor]) -> Result<TurboValues> {
        check_fields(self.format(), self.width, fields)?;
        Ok(TurboValues { book: self.book.clone(), codes: fields[0].clone(), scales: fields[1].clone() })
    }
}

impl Codec for Values {
    fn format(&self) -> Format {
        Format::TurboValues { bits: self.book.bits }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        check_input("encode", x, self.width)?;
        let TurboValues { codes, scales, .. } = self.device.encode_turbo_values(x, &self.book)?;
        Ok(vec![codes, scales])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        let rotated = fused::turbo_values(&self.device, &self.values(fields)?)?;
        let values = fused::turn_back(&self.device, &rotated, &self.book.signs)?;
        self.device.cast(&values, Dtype::Bf16)
    }

    fn held(&self, fields: &[Tensor]) -> Result<Held> {
        self.values(fields).map(Held::TurboValues)
    }
}
