//! The gated delta net (Yang, Kautz and Hatamizadeh, arXiv:2412.06464), as Qwen3-Next and Qwen3.5 have it.
//!
//! Queries, keys and values go through one short convolution; queries and keys are brought to unit length, and queries
//! are scaled as in attention. The state forgets by `A_log`, `dt_bias` and `a`, and learns at the rate `sigmoid(b)`. What
//! it gives is normed, head by head, and gated by `z`.

use super::{
    Entered, Net, Parts, columns, convolution::ShortConvolution, decay::Decay, heads, joined, matrices,
};
use crate::{
    config::DeltaConfig,
    error,
    layer::{Loader, Norm, Stored},
};
use std::rc::Rc;
use tandem_contracts::tensor::{
    Activation, Binary, Device, Dtype, Error, Recurred, Result, Rule, Scan, Tensor, Unary,
};
use tandem_kv::{
    RecurrentShape,
    recurrence::{Carried, Carry, Recurrence},
};

/// Added to the squared length of queries and keys.
const EPSILON: f32 = 1e-6;

/// What the layer keeps.
pub(super) const fn state(config: DeltaConfig) -> RecurrentShape {
    let DeltaConfig { value_heads, key_width, value_width, taps, .. } = config;
    RecurrentShape { heads: value_heads, value_width, key_width, channels: config.channels(), taps }
}

/// What stands around the recurrence.
#[derive(Debug)]
pub(super) struct DeltaNet {
    config: DeltaConfig,
    stored: Stored,
    decay: Decay,
    norm: Norm,
}

/// Columns of the projection, each `[tokens, columns]`.
struct Columns {
    /// Queries, keys and values.
    mixed: Tensor,
    z: Tensor,
    b: Tensor,
    a: Tensor,
}

impl DeltaNet {
    pub(super) fn load(
        config: DeltaConfig,
        stored: Stored,
        module: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Parts> {
        let path = format!("{module}.conv1d");
        let convolution =
            ShortConvolution::load(&path, [config.channels(), config.taps], (false, true), loader)?;
        let root = (config.key_width as f32).sqrt().recip();
        let recurrence = DeltaRule {
            convolution,
            config,
            key_scale: loader.number(root)?,
            query_scale: loader.number(root * root)?,
            // Norms add it to the mean square.
            epsilon: EPSILON * root * root,
        };
        let (channels, values, each) = (config.channels(), config.values(), config.value_heads);
        let entry = match stored {
            Stored::Apart => vec![
                ("in_proj_qkv", channels),
                ("in_proj_z", values),
                ("in_proj_b", each),
                ("in_proj_a", each),
            ],
            Stored::Joined => vec![("in_proj_qkvz", channels + values), ("in_proj_ba", 2 * each)],
        };
        let decay = Decay::load(module, each, loader)?;
        let norm = loader.plain_norm(&format!("{module}.norm"), config.value_width)?;
        Ok(Parts {
            entry,
            inner: values,
            bias: false,
            net: Box::new(Self { config, stored, decay, norm }),
            recurrence: Rc::new(recurrence),
        })
    }

    fn cut(&self, device: &Device, projected: &Tensor) -> Result<Columns> {
        let (channels, values, each) =
            (self.config.channels(), self.config.values(), self.config.value_heads);
        let joined = channels + values;
        if self.stored == Stored::Joined {
            return self.by_key_head(device, projected);
        }
        Ok(Columns {
            mixed: columns(device, projected, 0..channels)?,
            z: columns(device, projected, channels..joined)?,
            b: columns(device, projected, joined..joined + each)?,
            a: columns(device, projected, joined + each..joined + 2 * each)?,
        })
    }

    /// Of files that join what belongs to one key head: its query, its key, its values, their gates; then, in the other
    /// matrix, `b` of its values, and `a`.
    fn by_key_head(&self, device: &Device, projected: &Tensor) -> Result<Columns> {
        let DeltaConfig { key_heads, value_heads, key_width, value_width, .. } = self.config;
        let (tokens, shared) = (projected.shape()[0], value_heads / key_heads);
        let joined = self.config.channels() + self.config.values();
        let wide = heads(device, projected, 0..joined, key_heads)?;
        let narrow = heads(device, projected, joined..joined + 2 * value_heads, key_heads)?;
        let cut = |x: &Tensor, start: usize, width: usize| {
            let part = device.slice(x, &[0..tokens, 0..key_heads, start..start + width])?;
            device.reshape(&part, &[tokens, key_heads * width])
        };
        let values = shared * value_width;
        let mixed = [
            cut(&wide, 0, key_width)?,
            cut(&wide, key_width, key_width)?,
            cut(&wide, 2 * key_width, values)?,
        ];
        Ok(Columns {
            mixed: device.concat(&mixed.each_ref(), 1)?,
            z: cut(&wide, 2 * key_width + values, values)?,
            b: cut(&narrow, 0, shared)?,
            a: cut(&narrow, shared, shared)?,
        })
    }
}

impl Net for DeltaNet {
    fn enter(&self, device: &Device, projected: &Tensor) -> Result<Entered> {
        let Columns { mixed, z, b, a } = self.cut(device, projected)?;
        let decay = self.decay.left(device, self.decay.step(device, &a)?)?;
        let rate = device.unary(Unary::Sigmoid, device.cast(&b, Dtype::F32)?)?;
        Ok(Entered { inputs: vec![mixed, decay, rate], gate: z })
    }

    fn leave(&self, device: &Device, outputs: Tensor, gate: &Tensor) -> Result<Tensor> {
        let normed = device.reshape(&self.norm.apply(device, &outputs)?, gate.shape())?;
        device.gated(&device.concat(&[gate, &normed], 1)?, Activation::Silu)
    }
}

/// The convolution and the gated delta rule.
#[derive(Debug)]
struct DeltaRule {
    convolution: ShortConvolution,
    config: DeltaConfig,
    key_scale: Tensor,
    query_scale: Tensor,
    epsilon: f32,
}

impl DeltaRule {
    /// `x` of unit length, times the root of its width and a scale.
    fn unit(&self, x: &Tensor, scale: &Tensor) -> Result<Tensor> {
        let device = &self.convolution.device;
        device.binary(Binary::Multiply, device.rms_norm(x, None, self.epsilon)?, scale)
    }
}

impl Recurrence for DeltaRule {
    fn carry(&self, inputs: &[Tensor], rows: &[Carried<'_>]) -> Result<Carry> {
        let [x, decay, rate] = inputs else {
            return Err(Error::shape("carry", format!("three inputs, got: {}", inputs.len())));
        };
        let (device, config) = (&self.convolution.device, self.config);
        let (keys, channels) = (config.keys(), config.channels());
        let mixed = self.convolution.apply(x, rows)?;
        let part = |cut, count| heads(device, &mixed.outputs, cut, count);
        let scan = Scan {
            queries: &self.unit(&part(0..keys, config.key_heads)?, &self.query_scale)?,
            keys: &self.unit(&part(keys..2 * keys, config.key_heads)?, &self.key_scale)?,
            values: &part(2 * keys..channels, config.value_heads)?,
            decay,
            rate,
            rule: Rule::Delta,
        };
        let Recurred { outputs, states } = device.scan(&scan, &matrices(rows))?;
        Ok(Carry { outputs, states: joined(mixed.states, states) })
    }
}
