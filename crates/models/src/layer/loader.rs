//! Brings weights onto a device under the names and shapes that layers declare.

use super::{Norm, Projection};
use crate::{config::Config, error::Result, weights::Weights};
use std::rc::Rc;
use tandem_contracts::tensor::{Device, Linear, Rope, Weight};

/// A prepared weight of at least so many bytes gives its buffers back to the system at once, so that few large
/// weights do not leave their size behind. Those of smaller ones are worth keeping for the next.
const LARGE: usize = 16 << 20;

/// What layers are loaded with.
pub(crate) struct Loader<'l, 'a> {
    pub(crate) weights: &'l mut Weights<'a>,
    pub(crate) config: &'l Config,
    pub(crate) device: &'l Device,
    /// Told the files' bytes that are not needed any more.
    pub(crate) release: &'l dyn Fn(&[u8]),
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
        self.prepare(vec![weight])
    }

    /// Lays weights out, and lets go of all that they came from.
    fn prepare(&mut self, weights: Vec<Weight>) -> Result<Linear> {
        let linear = self.device.prepare_linear(&weights)?;
        drop(weights);
        self.weights.drain_taken().for_each(self.release);
        if linear.bytes() >= LARGE {
            self.device.trim();
        }
        Ok(linear)
    }

    /// Ends loading: no tensor may be left over, and no buffer stays behind.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.weights.drain_taken().for_each(self.release);
        self.device.trim();
        self.weights.finish()
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
        let linear = self.prepare(weights)?;
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
