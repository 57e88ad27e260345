//! Elements as they are, in the format's dtype.

use super::{Codec, Encoded, Format, check_fields, check_input, finite};
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

    fn encode(&self, x: &Tensor) -> Result<Encoded> {
        check_input("encode", x, self.width)?;
        // A number beyond the dtype's range has become infinite.
        let stored = self.device.cast(x, self.dtype)?;
        let sound = finite(&self.device, &stored)?;
        Ok(Encoded { fields: vec![stored], sound })
    }

    fn decode(&self, fields: &[Tensor]) -> Result<Tensor> {
        check_fields(self.format(), self.width, fields)?;
        Ok(fields[0].clone())
    }
}
