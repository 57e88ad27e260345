//! What mounted adapters add to projections, each on the tokens of its own rows:
//!
//! ```text
//!   packed x  | row 0 | row 1 | row 2 | row 3 |
//!   sets      |   X   | bare  |   Y   |   X   |     y + scale * ((x A) B): X on rows 0 and 3, Y on row 2
//! ```
//!
//! Invariant: tokens of other rows are not touched, and what a token gets depends on its own activations and its row's
//! set alone. So a row's numbers are the same beside rows of any sets, and a bare row's are those of a bare model.

use super::Norm;
use crate::{
    error::{self, Error, ErrorKind},
    weights::Adapter,
};
use std::{collections::BTreeMap, ops::Range};
use tandem_contracts::tensor::{Binary, Device, Dtype, Linear, Precision, Result, Scalar, Tensor, Weight};

/// Modules that take residuals, by path.
pub(crate) type Modules = BTreeMap<String, Module>;

/// A module's place.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// Number of the projection that it is in.
    pub(super) projection: usize,
    /// Its outputs among those of the projection.
    pub(super) outputs: Range<usize>,
    pub(super) inputs: usize,
}

/// What a set of adapters adds, by number of the projection.
#[derive(Debug)]
pub(crate) struct Residuals(BTreeMap<usize, Vec<Residual>>);

#[derive(Debug)]
struct Residual {
    outputs: Range<usize>,
    /// A and B, in f32.
    pair: [Linear; 2],
    scale: Tensor,
}

impl Residuals {
    /// Brings adapters onto a device.
    ///
    /// # Errors
    /// An adapter of a module that the model does not have, or of other extents than the module's; nothing is on the device
    /// then. Or the device's own.
    pub(crate) fn new(adapters: &[&Adapter], modules: &Modules, device: &Device) -> error::Result<Self> {
        let mut fitting = Vec::new();
        for adapter in adapters {
            for (path, low_rank) in &adapter.modules {
                let refused = |message| Error::new(ErrorKind::Tensor, message).of_tensor(path);
                let module = modules
                    .get(path)
                    .ok_or_else(|| refused("the model has no such module that takes adapters".to_owned()))?;
                let ([inputs, _, outputs], own) = (low_rank.extents, [module.inputs, module.outputs.len()]);
                if [inputs, outputs] != own {
                    let message = format!(
                        "the module has {own:?} inputs and outputs, its adapter has: {:?}",
                        [inputs, outputs]
                    );
                    return Err(refused(message));
                }
                fitting.push((module, low_rank, adapter.scale));
            }
        }
        let mut residuals = BTreeMap::<usize, Vec<Residual>>::new();
        for (module, low_rank, scale) in fitting {
            let [inputs, rank, outputs] = low_rank.extents;
            let prepare = |values: &[f32], extents: [usize; 2]| {
                let matrix = device.transpose(&device.upload_f32(values, &extents)?, &[1, 0])?;
                device.prepare_linear(&[Weight::Dense(matrix)])
            };
            residuals.entry(module.projection).or_default().push(Residual {
                outputs: module.outputs.clone(),
                pair: [prepare(&low_rank.a, [inputs, rank])?, prepare(&low_rank.b, [rank, outputs])?],
                scale: device.full(Scalar::Float(scale), Dtype::F32, &[])?,
            });
        }
        Ok(Self(residuals))
    }
}

/// The tokens of a step whose rows have one set of adapters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adapted<'p> {
    /// Ranges of the packed tokens, ascending.
    pub(crate) tokens: &'p [Range<usize>],
    pub(crate) residuals: &'p Residuals,
}

impl Adapted<'_> {
    /// Adds what the set has for a projection to `y [tokens, outputs]`, which it gives of `x [tokens, inputs]` through the
    /// norm, if there is one.
    pub(super) fn onto(
        &self,
        mut y: Tensor,
        (x, norm): (&Tensor, Option<&Norm>),
        projection: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let Some(residuals) = self.residuals.0.get(&projection) else { return Ok(y) };
        let own = |range: &Range<usize>| device.slice(x, &[range.clone(), 0..x.shape()[1]]);
        let own = self.tokens.iter().map(own).collect::<Result<Vec<_>>>()?;
        let own = device.concat(&own.iter().collect::<Vec<_>>(), 0)?;
        let own = norm.map_or_else(|| Ok(own.clone()), |norm| norm.apply(device, &own))?;
        let own = device.cast(&own, Dtype::F32)?;
        for Residual { outputs, pair: [a, b], scale } in residuals {
            let inner = device.linear(&own, a, Precision::Exact)?;
            let more = device.binary(Binary::Multiply, device.linear(&inner, b, Precision::Exact)?, scale)?;
            let more = device.cast(&more, y.dtype())?;
            let mut begin = 0;
            for range in self.tokens {
                let part = device.slice(&more, &[begin..begin + range.len(), 0..outputs.len()])?;
                let sum = device.binary(
                    Binary::Add,
                    device.slice(&y, &[range.clone(), outputs.clone()])?,
                    &part,
                )?;
                y = device.slice_update(y, &sum, &[range.start, outputs.start])?;
                begin += range.len();
            }
        }
        Ok(y)
    }
}
