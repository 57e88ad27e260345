//! Attention over a row's own past, with key heads that several query heads share (Ainslie et al.,
//! arXiv:2305.13245).

use super::{Loader, Norm, Pass, Projection};
use crate::error;
use std::rc::Rc;
use tandem_contracts::tensor::{Attend, Result, Rope, Tensor};
use tandem_kv::LayerShape;

/// What distinguishes one attention layer.
#[derive(Clone, Debug)]
pub(crate) struct AttentionDeclaration {
    /// Module of the norm before it.
    pub(crate) norm: String,
    /// Module that holds `q_proj`, `k_proj`, `v_proj` and `o_proj`.
    pub(crate) path: String,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads.
    pub(crate) shared_heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    /// Positions that a query sees.
    pub(crate) window: Option<usize>,
    /// Whether queries and keys are rotated.
    pub(crate) rotary: bool,
    /// Multiplies the scores.
    pub(crate) scale: f32,
}

impl AttentionDeclaration {
    /// What the layer keeps of each token.
    pub(crate) fn cached(&self) -> LayerShape {
        LayerShape { heads: self.shared_heads, key_width: self.width, value_width: self.width }
    }
}

/// A loaded attention layer.
#[derive(Debug)]
pub(crate) struct Attention {
    /// Index of its planes in a row.
    layer: usize,
    norm: Norm,
    /// Queries, keys and values, joined.
    input: Projection,
    output: Projection,
    heads: usize,
    shared_heads: usize,
    width: usize,
    window: Option<usize>,
    scale: f32,
    rope: Option<Rc<Rope>>,
}

impl Attention {
    /// Loads the layer whose planes are those at `layer` in every row.
    pub(crate) fn load(
        declaration: &AttentionDeclaration,
        layer: usize,
        rope: Option<&Rc<Rope>>,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let &AttentionDeclaration { heads, shared_heads, width, bias, window, scale, .. } = declaration;
        let hidden = loader.config.hidden;
        let part = |name: &str, heads: usize| (format!("{}.{name}", declaration.path), heads * width);
        let joined = [part("q_proj", heads), part("k_proj", shared_heads), part("v_proj", shared_heads)];
        Ok(Self {
            layer,
            norm: loader.norm(&declaration.norm)?,
            input: loader.projection(&joined, hidden, bias)?,
            output: loader.projection(
                &[(format!("{}.o_proj", declaration.path), hidden)],
                heads * width,
                bias,
            )?,
            heads,
            shared_heads,
            width,
            window,
            scale,
            rope: rope.filter(|_| declaration.rotary).cloned(),
        })
    }

    /// `x + attention(norm(x))` for packed `x [tokens, hidden]`; appends the tokens' keys and values to their rows.
    pub(crate) fn forward(&self, x: Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let device = pass.device;
        let (tokens, heads, rotated) = (x.shape()[0], self.heads, self.heads + self.shared_heads);
        let joined = self.input.after_norm(device, &x, &self.norm, pass.precision)?;
        let joined = device.reshape(&joined, &[tokens, rotated + self.shared_heads, self.width])?;
        let cut = |x: &Tensor, heads| device.slice(x, &[0..tokens, heads, 0..self.width]);

        // Queries and keys stand side by side and turn in one call.
        let values = cut(&joined, rotated..rotated + self.shared_heads)?;
        let mut turned = cut(&joined, 0..rotated)?;
        drop(joined);
        if let Some(rope) = &self.rope {
            turned = device.rope(turned, rope, pass.positions)?;
        }
        let (queries, keys) = (cut(&turned, 0..heads)?, cut(&turned, heads..rotated)?);
        drop(turned);
        pass.append(self.layer, &keys, &values)?;
        drop((keys, values));

        let how = Attend { window: self.window, ..Attend::causal(self.scale) };
        let mixed = device.attend(&queries, &pass.spans(self.layer)?, &how)?;
        let mixed = device.reshape(&mixed, &[tokens, heads * self.width])?;
        self.output.onto(device, x, &mixed, pass.precision)
    }
}
