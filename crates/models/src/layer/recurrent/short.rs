//! LFM2's short convolution (Liquid AI): gated before and behind, of each channel by itself.
//!
//! `out_proj(C * convolution(B * x))`, where `B`, `C` and `x` are the thirds of `in_proj`.

use super::{Entered, Net, Parts, columns, convolution::ShortConvolution};
use crate::{config::ShortConfig, error, layer::Loader};
use std::rc::Rc;
use tandem_contracts::tensor::{Binary, Device, Error, Result, Tensor};
use tandem_kv::{
    RecurrentShape,
    recurrence::{Carried, Carry, Recurrence, State},
};

/// What the layer keeps.
pub(super) const fn state(config: ShortConfig, channels: usize) -> RecurrentShape {
    RecurrentShape { heads: 0, value_width: 1, key_width: 1, channels, taps: config.taps }
}

/// The gates.
#[derive(Debug)]
pub(super) struct ShortNet {
    channels: usize,
}

impl ShortNet {
    pub(super) fn load(
        config: ShortConfig,
        module: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Parts> {
        let channels = loader.config.hidden;
        let path = format!("{module}.conv");
        let convolution =
            ShortConvolution::load(&path, [channels, config.taps], (config.bias, false), loader)?;
        Ok(Parts {
            entry: vec![("in_proj", 3 * channels)],
            inner: channels,
            bias: config.bias,
            net: Box::new(Self { channels }),
            recurrence: Rc::new(Tail(convolution)),
        })
    }
}

impl Net for ShortNet {
    fn enter(&self, device: &Device, projected: &Tensor) -> Result<Entered> {
        let third = |index| columns(device, projected, index * self.channels..(index + 1) * self.channels);
        Ok(Entered { inputs: vec![device.binary(Binary::Multiply, third(0)?, &third(2)?)?], gate: third(1)? })
    }

    fn leave(&self, device: &Device, outputs: Tensor, gate: &Tensor) -> Result<Tensor> {
        device.binary(Binary::Multiply, outputs, gate)
    }
}

/// The convolution alone.
#[derive(Debug)]
struct Tail(ShortConvolution);

impl Recurrence for Tail {
    fn carry(&self, inputs: &[Tensor], rows: &[Carried<'_>]) -> Result<Carry> {
        let [x] = inputs else {
            return Err(Error::shape("carry", format!("one input, got: {}", inputs.len())));
        };
        let mixed = self.0.apply(x, rows)?;
        let states = mixed.states.into_iter().zip(rows);
        let states = states.map(|(tail, row)| State { tail, matrix: row.state.matrix.clone() }).collect();
        Ok(Carry { outputs: mixed.outputs, states })
    }
}
