//! Brings weights onto a device under the names and shapes that layers declare.

use super::{Entry, Exit, Landing, Modules, Norm, Norms, Projection, Recoding, adapter::Module};
use crate::{
    config::{Config, RopeConfig},
    error::Result,
    weights::Weights,
};
use std::{collections::BTreeMap, rc::Rc};
use tandem_contracts::tensor::{Binary, Device, Linear, Rope, Scalar, Tensor, Weight};

/// A prepared weight of at least so many bytes gives its buffers back to the system at once, so that few large
/// weights do not leave their size behind. Those of smaller ones are worth keeping for the next.
const LARGE: usize = 16 << 20;

/// What layers are loaded with.
pub(crate) struct Loader<'l, 'a> {
    pub(crate) weights: &'l mut Weights<'a>,
    pub(crate) config: &'l Config,
    pub(crate) device: &'l Device,
    /// Told the files' bytes that are not needed any more.
    release: &'l dyn Fn(&[u8]),
    /// Codes that floats become, if they do.
    pub(crate) recoding: Option<Recoding>,
    /// Modules that take adapters, of so many projections.
    pub(crate) modules: Modules,
    projections: usize,
    /// Norms by path: layers that name the same one share it.
    norms: BTreeMap<String, Norm>,
    /// Rotary frequencies that were made, with the width of their heads.
    ropes: Vec<(RopeConfig, usize, Rc<Rope>)>,
}

impl<'l, 'a> Loader<'l, 'a> {
    pub(crate) fn new(
        weights: &'l mut Weights<'a>,
        config: &'l Config,
        device: &'l Device,
        release: &'l dyn Fn(&[u8]),
    ) -> Self {
        let (modules, norms, ropes) = (Modules::new(), BTreeMap::new(), Vec::new());
        Self { weights, config, device, release, recoding: None, modules, projections: 0, norms, ropes }
    }

    /// A vector of floats in the dtype in which the device computes.
    pub(crate) fn vector(&mut self, name: &str, width: usize) -> Result<Tensor> {
        self.weights.floats(name, &[width], self.device)
    }

    /// The same in f32.
    pub(crate) fn exact_vector(&mut self, name: &str, width: usize) -> Result<Tensor> {
        self.weights.exact_vector(name, width, self.device)
    }

    /// The weight of a convolution of each channel by itself, `[channels, taps]`.
    pub(crate) fn taps(&mut self, name: &str, extents: [usize; 2]) -> Result<Tensor> {
        self.weights.taps(name, extents, self.device)
    }

    /// One number in that dtype.
    pub(crate) fn number(&self, value: f32) -> Result<Tensor> {
        Ok(self.device.full(Scalar::Float(value), self.device.traits().compute_dtype, &[])?)
    }

    /// The same, where it is not 1.
    pub(crate) fn factor(&self, value: f32) -> Result<Option<Tensor>> {
        (value != 1.0).then(|| self.number(value)).transpose()
    }

    /// `x + 1`.
    pub(super) fn plus_one(&self, x: Tensor) -> Result<Tensor> {
        Ok(self.device.binary(Binary::Add, x, &self.number(1.0)?)?)
    }

    /// The norm at a module's path.
    pub(crate) fn norm(&mut self, path: &str, width: usize) -> Result<Norm> {
        if let Some(norm) = self.norms.get(path) {
            return Ok(norm.clone());
        }
        let norm = Norm::load(path, width, self)?;
        self.norms.insert(path.to_owned(), norm.clone());
        Ok(norm)
    }

    /// A norm by the root mean square whose weight is as it is in every file.
    pub(crate) fn plain_norm(&mut self, path: &str, width: usize) -> Result<Norm> {
        let weight = Some(self.vector(&format!("{path}.weight"), width)?);
        Ok(Norm::RootMeanSquare { weight, epsilon: self.config.norm_epsilon })
    }

    /// One of a branch's norms, which stand in its block.
    pub(super) fn branch_norm(&mut self, block: &str, name: Option<&str>) -> Result<Option<Norm>> {
        name.map(|name| self.norm(&format!("{block}.{name}"), self.config.hidden)).transpose()
    }

    /// Where a branch of the block at a path begins, under the first of its norms: modules joined by their outputs.
    pub(crate) fn entry(
        &mut self,
        (block, norms): (&str, Norms),
        parts: &[(String, usize)],
        bias: bool,
    ) -> Result<Entry> {
        let norm = self.branch_norm(block, norms.before)?;
        Ok(Entry { norm, projection: self.projection(parts, self.config.hidden, bias)? })
    }

    /// Where a branch of the block at a path ends, under the second of its norms: the module `path`.
    pub(crate) fn exit(
        &mut self,
        (block, norms): (&str, Norms),
        path: &str,
        inputs: usize,
        bias: bool,
    ) -> Result<Exit> {
        let projection = self.projection(&[(path.to_owned(), self.config.hidden)], inputs, bias)?;
        Ok(Exit { projection, landing: self.landing(block, norms)? })
    }

    /// How a branch of the block at a path ends, under the second of its norms.
    pub(crate) fn landing(&mut self, block: &str, norms: Norms) -> Result<Landing> {
        let factor = self.factor(self.config.scales.residual)?;
        Ok(Landing { norm: self.branch_norm(block, norms.after)?, factor })
    }

    /// A matrix `[outputs, inputs]`.
    pub(crate) fn linear(&mut self, path: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let weight = self.matrix(path, &[outputs, inputs])?;
        self.prepare(vec![weight])
    }

    /// The weight of a module, `[outputs, inputs]` or with experts before.
    pub(super) fn matrix(&mut self, path: &str, shape: &[usize]) -> Result<Weight> {
        let weight = self.stored_matrix(path, shape)?;
        self.recoded(path, weight)
    }

    /// The same, as the configuration says it is stored, whatever others become.
    fn stored_matrix(&mut self, path: &str, shape: &[usize]) -> Result<Weight> {
        let scheme = self.config.quantization.of(path);
        self.weights.matrix(path, scheme, shape, self.device)
    }

    /// A module's weight, in codes if floats are to become some.
    pub(super) fn recoded(&mut self, path: &str, weight: Weight) -> Result<Weight> {
        match &mut self.recoding {
            Some(recoding) => recoding.apply(path, weight, self.device),
            None => Ok(weight),
        }
    }

    /// Lays weights out, and lets go of all that they came from.
    pub(super) fn prepare(&mut self, weights: Vec<Weight>) -> Result<Linear> {
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
            .map(|(path, outputs)| self.matrix(path, &[*outputs, inputs]))
            .collect::<Result<Vec<_>>>()?;
        let (number, mut end) = (self.projections, 0);
        for (path, outputs) in parts {
            let outputs = end..end + outputs;
            end = outputs.end;
            self.modules.insert(path.clone(), Module { projection: number, outputs, inputs });
        }
        self.projections += 1;
        Ok(Projection { number: Some(number), ..self.joined(weights, parts, bias)? })
    }

    /// A module that makes choices, whose weight stays as the files have it.
    pub(crate) fn stored_projection(
        &mut self,
        (path, outputs): (String, usize),
        inputs: usize,
        bias: bool,
    ) -> Result<Projection> {
        let weight = self.stored_matrix(&path, &[outputs, inputs])?;
        self.joined(vec![weight], &[(path, outputs)], bias)
    }

    fn joined(&mut self, weights: Vec<Weight>, parts: &[(String, usize)], bias: bool) -> Result<Projection> {
        let linear = self.prepare(weights)?;
        if !bias {
            return Ok(Projection { linear, bias: None, number: None });
        }
        let biases = parts
            .iter()
            .map(|(path, outputs)| self.weights.floats(&format!("{path}.bias"), &[*outputs], self.device))
            .collect::<Result<Vec<_>>>()?;
        let joined = self.device.concat(&biases.iter().collect::<Vec<_>>(), 0)?;
        Ok(Projection { linear, bias: Some(joined), number: None })
    }

    /// Rotary frequencies of heads of a width.
    pub(crate) fn rope(&mut self, config: &RopeConfig, width: usize) -> Result<Rc<Rope>> {
        if let Some((.., rope)) = self.ropes.iter().find(|(of, at, _)| (of, *at) == (config, width)) {
            return Ok(Rc::clone(rope));
        }
        let frequencies = config.frequencies(width)?;
        let rope = Rc::new(Rope {
            frequencies: self.device.upload_f32(&frequencies, &[frequencies.len()])?,
            interleaved: config.interleaved,
            scale: config.scale(),
        });
        self.ropes.push((config.clone(), width, Rc::clone(&rope)));
        Ok(rope)
    }
}
