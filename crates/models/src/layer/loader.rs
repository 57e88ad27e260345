//! Brings weights onto a device under the names and shapes that layers declare.

use super::{Norm, Projection};
use crate::{config::Config, error::Result, weights::Weights};
use std::rc::Rc;
use tandem_contracts::tensor::{Device, Linear, Rope};

/// What layers are loaded with.
pub(crate) struct Loader<'l, 'a> {
    pub(crate) weights: &'l mut Weights<'a>,
    pub(crate) config: &'l Config,
    pub(crate) device: &'l Device,
}

impl Loader<'_, '_> {
    /// The norm of activations at a module's path.
    pub(crate) fn norm(&mut self, path: &str) -> Result<Norm> {
        let weight = self.weights.vector(&format!("{path}.weight"), self.config.hidden, self.device)?;
        Ok(Norm { weight, epsilon: self.config.norm_epsilon })
    }

    /// A matrix `[outputs, inputs]`.
    pub(crate) fn linear(&mut self, path: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let scheme = self.config.quantization.of(path);
        let weight = self.weights.matrix(path, scheme, [outputs, inputs], self.device)?;
        Ok(self.device.prepare_linear(&[weight])?)
    }

    /// Modules that read the same input, joined by their outputs.
    pub(crate) fn projection(
        &mut self,
        parts: &[(String, usize)],
        inputs: usize,
        bias: bool,
    ) -> Result<Projection> {
        let weights = parts
            .iter()
            .map(|(path, outputs)| {
                let scheme = self.config.quantization.of(path);
                self.weights.matrix(path, scheme, [*outputs, inputs], self.device)
            })
            .collect::<Result<Vec<_>>>()?;
        let linear = self.device.prepare_linear(&weights)?;
        if !bias {
            return Ok(Projection { linear, bias: None });
        }
        let biases = parts
            .iter()
            .map(|(path, outputs)| self.weights.vector(&format!("{path}.bias"), *outputs, self.device))
            .collect::<Result<Vec<_>>>()?;
        let joined = self.device.concat(&biases.iter().collect::<Vec<_>>(), 0)?;
        Ok(Projection { linear, bias: Some(joined) })
    }

    /// Rotary frequencies of heads of a width.
    pub(crate) fn rope(&self, width: usize) -> Result<Rc<Rope>> {
        let rope = &self.config.rope;
        let frequencies = rope.frequencies(width)?;
        Ok(Rc::new(Rope {
            frequencies: self.device.upload_f32(&frequencies, &[frequencies.len()])?,
            interleaved: rope.interleaved,
            scale: rope.scale(),
        }))
    }
}
