//! Embeddings of which each layer reads its own part (Gemma 3n and 4): a table beside the first embedding, mixed once
//! with a projection of the activations, then gated in every layer.

use super::{Entry, Exit, Loader, Norm, Norms, Pass, Projection};
use crate::{config::LayerInputConfig, error};
use tandem_contracts::tensor::{Activation, Binary, Linear, Result, Tensor};

/// What there is for all layers.
#[derive(Clone, Debug)]
pub(crate) struct LayerInputsDeclaration {
    /// Module that holds `embed_tokens_per_layer`, `per_layer_model_projection` and `per_layer_projection_norm`.
    pub(crate) path: String,
    /// Extents.
    pub(crate) extents: LayerInputConfig,
    /// Layers that have a part.
    pub(crate) layers: usize,
}

/// The loaded table and projection.
#[derive(Debug)]
pub(crate) struct LayerInputs {
    table: Linear,
    projection: Projection,
    norm: Norm,
    layers: usize,
    width: usize,
    /// Root of the width, multiplies what the table gives.
    table_scale: Tensor,
    /// One over the root of the activations' width, multiplies what is projected.
    projection_scale: Tensor,
    /// Keeps the sum of both at the size of one.
    sum_scale: Tensor,
}

impl LayerInputs {
    pub(crate) fn load(
        declaration: &LayerInputsDeclaration,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let LayerInputsDeclaration { path, extents: LayerInputConfig { width, vocabulary }, layers } =
            declaration;
        let (hidden, outputs) = (loader.config.hidden, layers * width);
        Ok(Self {
            table: loader.linear(&format!("{path}.embed_tokens_per_layer"), *vocabulary, outputs)?,
            projection: loader.projection(
                &[(format!("{path}.per_layer_model_projection"), outputs)],
                hidden,
                false,
            )?,
            norm: loader.norm(&format!("{path}.per_layer_projection_norm"), *width)?,
            layers: *layers,
            width: *width,
            table_scale: loader.number((*width as f32).sqrt())?,
            projection_scale: loader.number((hidden as f32).sqrt().recip())?,
            sum_scale: loader.number(std::f32::consts::FRAC_1_SQRT_2)?,
        })
    }

    /// All layers' parts, `[tokens, layers, width]`, of ids `i32 [tokens]` and their activations `x [tokens, hidden]`.
    pub(crate) fn of(&self, ids: &Tensor, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let device = pass.device;
        let shape = [x.shape()[0], self.layers, self.width];
        let given = device.embed(&self.table, ids)?;
        let given = device.binary(Binary::Multiply, given, &self.table_scale)?;
        let projected = self.projection.apply(x, pass)?;
        let projected = device.binary(Binary::Multiply, projected, &self.projection_scale)?;
        let projected = self.norm.apply(device, &device.reshape(&projected, &shape)?)?;
        let sum = device.binary(Binary::Add, projected, &device.reshape(&given, &shape)?)?;
        device.binary(Binary::Multiply, sum, &self.sum_scale)
    }
}

/// One layer's gate of its part.
#[derive(Debug)]
pub(crate) struct LayerInput {
    layer: usize,
    width: usize,
    entry: Entry,
    exit: Exit,
}

impl LayerInput {
    /// Loads the gate of the block at `path`.
    pub(crate) fn load(
        declaration: &LayerInputsDeclaration,
        path: &str,
        layer: usize,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let width = declaration.extents.width;
        let norms = Norms::after("post_per_layer_input_norm");
        let gate = [(format!("{path}.per_layer_input_gate"), width)];
        Ok(Self {
            layer,
            width,
            entry: loader.entry((path, norms), &gate, false)?,
            exit: loader.exit((path, norms), &format!("{path}.per_layer_projection"), width, false)?,
        })
    }

    /// `x + norm(projection(gelu(gate(x)) * part))`.
    pub(crate) fn onto(&self, x: Tensor, inputs: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let (device, tokens) = (pass.device, x.shape()[0]);
        let part = device.slice(inputs, &[0..tokens, self.layer..self.layer + 1, 0..self.width])?;
        let part = device.reshape(&part, &[tokens, self.width])?;
        let gate = self.entry.apply(&x, pass)?;
        let inner = device.gated(&device.concat(&[&gate, &part], 1)?, Activation::GeluTanh)?;
        self.exit.onto(x, &inner, pass)
    }
}
