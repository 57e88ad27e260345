//! The selective state space of Mamba-2 (Dao and Gu, arXiv:2405.21060).
//!
//! `in_proj` gives a gate, the channels of a short convolution, and a step in time for each head. The convolution's
//! channels are the heads' inputs `x`, `B` and `C`. What the state gives, plus `D * x`, is gated and then normed.

use super::{
    Entered, Net, Parts, columns, convolution::ShortConvolution, decay::Decay, heads, joined, matrices,
};
use crate::{
    config::SpaceConfig,
    error,
    layer::{Loader, Norm},
};
use std::rc::Rc;
use tandem_contracts::tensor::{
    Activation, Binary, Device, Dtype, Error, Recurred, Result, Rule, Scalar, Scan, Tensor,
};
use tandem_kv::{
    RecurrentShape,
    recurrence::{Carried, Carry, Recurrence},
};

/// What the layer keeps.
pub(super) const fn state(config: SpaceConfig) -> RecurrentShape {
    let SpaceConfig { heads, width, state, taps, .. } = config;
    RecurrentShape { heads, value_width: width, key_width: state, channels: config.channels(), taps }
}

/// What stands around the recurrence.
#[derive(Debug)]
pub(super) struct SpaceNet {
    config: SpaceConfig,
    decay: Decay,
    norm: Norm,
}

impl SpaceNet {
    pub(super) fn load(
        config: SpaceConfig,
        module: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Parts> {
        let path = format!("{module}.conv1d");
        let kind = (config.convolution_bias, true);
        let convolution = ShortConvolution::load(&path, [config.channels(), config.taps], kind, loader)?;
        let skip = loader.vector(&format!("{module}.D"), config.heads)?;
        let skip = loader.device.reshape(&skip, &[config.heads, 1])?;
        let decay = Decay::load(module, config.heads, loader)?;
        let norm = loader.plain_norm(&format!("{module}.norm"), config.inner())?;
        Ok(Parts {
            entry: vec![("in_proj", config.inner() + config.channels() + config.heads)],
            inner: config.inner(),
            bias: config.bias,
            net: Box::new(Self { config, decay, norm }),
            recurrence: Rc::new(Space { convolution, config, skip }),
        })
    }

    /// Steps within their bounds.
    fn bounded(&self, device: &Device, mut steps: Tensor) -> Result<Tensor> {
        let number = |value| device.full(Scalar::Float(value), Dtype::F32, &[]);
        let (low, high) = self.config.steps;
        // Softplus is above 0.
        if low > 0.0 {
            steps = device.binary(Binary::Maximum, steps, &number(low)?)?;
        }
        if high < f32::INFINITY {
            steps = device.binary(Binary::Minimum, steps, &number(high)?)?;
        }
        Ok(steps)
    }
}

impl Net for SpaceNet {
    fn enter(&self, device: &Device, projected: &Tensor) -> Result<Entered> {
        let (inner, channels) = (self.config.inner(), self.config.channels());
        let steps = columns(device, projected, inner + channels..inner + channels + self.config.heads)?;
        let steps = self.bounded(device, self.decay.step(device, &steps)?)?;
        let decay = self.decay.left(device, steps.clone())?;
        let mixed = columns(device, projected, inner..inner + channels)?;
        Ok(Entered { inputs: vec![mixed, decay, steps], gate: columns(device, projected, 0..inner)? })
    }

    fn leave(&self, device: &Device, outputs: Tensor, gate: &Tensor) -> Result<Tensor> {
        let outputs = device.reshape(&outputs, gate.shape())?;
        let gated = device.gated(&device.concat(&[gate, &outputs], 1)?, Activation::Silu)?;
        self.norm.apply(device, &gated)
    }
}

/// The convolution and the state space.
#[derive(Debug)]
struct Space {
    convolution: ShortConvolution,
    config: SpaceConfig,
    /// `D`, `[heads, 1]`.
    skip: Tensor,
}

impl Recurrence for Space {
    fn carry(&self, inputs: &[Tensor], rows: &[Carried<'_>]) -> Result<Carry> {
        let [x, decay, rate] = inputs else {
            return Err(Error::shape("carry", format!("three inputs, got: {}", inputs.len())));
        };
        let (device, config) = (&self.convolution.device, self.config);
        let (inner, shared) = (config.inner(), config.shared());
        let mixed = self.convolution.apply(x, rows)?;
        let part = |cut, count| heads(device, &mixed.outputs, cut, count);
        let values = part(0..inner, config.heads)?;
        let scan = Scan {
            queries: &part(inner + shared..inner + 2 * shared, config.groups)?,
            keys: &part(inner..inner + shared, config.groups)?,
            values: &values,
            decay,
            rate,
            rule: Rule::Sum,
        };
        let Recurred { outputs, states } = device.scan(&scan, &matrices(rows))?;
        let skipped = device.binary(Binary::Multiply, values, &self.skip)?;
        let outputs = device.binary(Binary::Add, outputs, &skipped)?;
        Ok(Carry { outputs, states: joined(mixed.states, states) })
    }
}
