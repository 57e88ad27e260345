//! Elements as they are, in the format's dtype.

use super::{Codec, Format, Held, check_fields, check_input};
use tandem_contracts::tensor::{Device, Dtype, Result, Tensor};

/// The codec that keeps elements.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) device: Device,
    pub(super) dtype: Dtype,
    pub(super) width: usize,
}

impl Codec for Plain {
    fn format(&self) -> Format {
        Format::Plain(self.dtype)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn encode(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        check_input("encode", x, self.width)?;
        Ok(vec![self.device.cast(x, self.dtype)?])
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        check_fields(self.format(), self.width, fields)?;
        Ok(fields[0].clone())
    }

    fn held(&self, fields: &[Tensor]) -> Result<Held> {
        self.decode(fields).map(Held::Plain)
    }
}
