//! Attention over a row's own past, with key heads that several query heads share (Ainslie et al.,
//! arXiv:2305.13245).

use super::{Entry, Exit, Loader, Norm, Norms, Pass, Stored};
use crate::{
    checkpoint::Ring,
    config::{QueryGrowth, RopeConfig},
    error,
};
use std::{ops::Range, rc::Rc};
use tandem_contracts::tensor::{Attend, Binary, Dtype, Result, Rope, Scalar, Tensor, Unary};
use tandem_kv::{Kind, LayerShape};

/// What distinguishes one attention layer. Its modules are `q_proj`, `k_proj`, `v_proj` and others of the block's
/// `self_attn`; the first three are `qkv_proj` where they are stored as one.
#[derive(Clone, Debug)]
pub(crate) struct AttentionDeclaration {
    pub(crate) norms: Norms,
    pub(crate) names: AttentionNames,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads.
    pub(crate) shared_heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    pub(crate) stored: Stored,
    /// Whether queries, keys and values have biases.
    pub(crate) input_bias: bool,
    /// Whether the output has a bias.
    pub(crate) output_bias: bool,
    pub(crate) head_norms: HeadNorms,
    /// Whether `q_proj` gives each head, behind its queries, a gate of what the head reads.
    pub(crate) gated: bool,
    pub(crate) values: Values,
    /// Layer whose keys and values are read, where this one makes none.
    pub(crate) donor: Option<usize>,
    /// Positions that a query sees.
    pub(crate) window: Option<usize>,
    /// So many of them are the first ones, in steps that begin at the second number or beyond.
    pub(crate) keep: (usize, usize),
    /// How queries and keys are rotated, if they are.
    pub(crate) rope: Option<RopeConfig>,
    /// Multiplies the scores.
    pub(crate) scale: f32,
    /// Whether each head has a score, `sinks`, that takes part in the softmax and stands for no value (arXiv:2309.17453).
    pub(crate) sinks: bool,
}

/// Names of modules that files do not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionNames {
    /// The last projection.
    pub(crate) output: &'static str,
    /// Norm of queries.
    pub(crate) query_norm: &'static str,
    /// Norm of keys.
    pub(crate) key_norm: &'static str,
}

impl AttentionNames {
    /// Those of most files.
    pub(crate) const STANDARD: Self = Self { output: "o_proj", query_norm: "q_norm", key_norm: "k_norm" };
}

/// Norms of queries and keys before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// There are none.
    None,
    /// Over each head alone; all heads share one weight.
    Each,
    /// Over all heads together.
    All,
}

/// What values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// The projection `v_proj`.
    Projected,
    /// The same, through a norm of each head that has no weight.
    Normed,
    /// Keys before their own norm, through such a norm.
    NormedKeys,
}

impl AttentionDeclaration {
    /// Bounds what the layer keeps, if it would keep everything.
    pub(crate) fn bound(&mut self, ring: Ring) {
        if self.window.is_none() {
            (self.window, self.keep) = (Some(ring.window), (ring.keep, ring.from));
        }
    }

    /// What the layer keeps of each token.
    pub(crate) fn cached(&self) -> Kind {
        let shape = LayerShape { heads: self.shared_heads, key_width: self.width, value_width: self.width };
        match (self.donor, self.window) {
            (Some(donor), _) => Kind::Shared { donor },
            (None, Some(window)) => Kind::Window { shape, window, keep: self.keep.0 },
            (None, None) => Kind::Full(shape),
        }
    }

    /// Projections of the input in the order of their outputs: name and heads.
    fn inputs(&self) -> Vec<(&'static str, usize)> {
        let heads = if self.gated { 2 * self.heads } else { self.heads };
        match (self.donor, self.stored, self.values) {
            (Some(_), ..) => vec![("q_proj", heads)],
            (None, Stored::Joined, _) => vec![("qkv_proj", heads + 2 * self.shared_heads)],
            (None, Stored::Apart, Values::NormedKeys) => {
                vec![("q_proj", heads), ("k_proj", self.shared_heads)]
            }
            (None, Stored::Apart, _) => {
                vec![("q_proj", heads), ("k_proj", self.shared_heads), ("v_proj", self.shared_heads)]
            }
        }
    }
}

/// A loaded attention layer.
#[derive(Debug)]
pub(crate) struct Attention {
    /// Index of the layer whose planes it reads.
    layer: usize,
    /// Queries, and where the layer makes them keys and values, joined.
    entry: Entry,
    pub(crate) exit: Exit,
    heads: usize,
    width: usize,
    query_norm: Option<Norm>,
    gated: bool,
    own: Option<Own>,
    attend: Attend<'static>,
    /// `f32 [heads]`.
    sinks: Option<Tensor>,
    /// Steps that begin before this position see no first ones.
    keep_from: usize,
    rope: Option<Rc<Rope>>,
    growth: Option<QueryGrowth>,
    head_norms: HeadNorms,
}

/// The keys and values that a layer makes.
#[derive(Debug)]
struct Own {
    heads: usize,
    key_norm: Option<Norm>,
    values: Values,
    value_norm: Norm,
}

impl Attention {
    /// Loads layer `layer`, whose block is at `path`.
    pub(crate) fn load(
        declaration: &AttentionDeclaration,
        path: &str,
        layer: usize,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let &AttentionDeclaration {
            norms, names, heads, shared_heads, width, head_norms, gated, values, ..
        } = declaration;
        let part = |(name, heads)| (format!("{path}.self_attn.{name}"), heads * width);
        let inputs: Vec<_> = declaration.inputs().into_iter().map(part).collect();
        let entry = loader.entry((path, norms), &inputs, declaration.input_bias)?;
        let output = format!("{path}.self_attn.{}", names.output);
        let exit = loader.exit((path, norms), &output, heads * width, declaration.output_bias)?;
        let mut head_norm = |name: &str, heads: usize| {
            let width = match head_norms {
                HeadNorms::None => return Ok(None),
                HeadNorms::Each => width,
                HeadNorms::All => heads * width,
            };
            loader.norm(&format!("{path}.self_attn.{name}"), width).map(Some)
        };
        let query_norm = head_norm(names.query_norm, heads)?;
        let own = match declaration.donor {
            Some(_) => None,
            None => Some(Own {
                heads: shared_heads,
                key_norm: head_norm(names.key_norm, shared_heads)?,
                values,
                value_norm: Norm::unweighted(loader.config.norm_epsilon),
            }),
        };
        let soft_cap = loader.config.scales.score_cap;
        let mut sinks = || {
            let sinks = loader.vector(&format!("{path}.self_attn.sinks"), heads)?;
            Ok::<_, error::Error>(loader.device.cast(&sinks, Dtype::F32)?)
        };
        let sinks = declaration.sinks.then(&mut sinks).transpose()?;
        Ok(Self {
            layer: declaration.donor.unwrap_or(layer),
            entry,
            exit,
            heads,
            width,
            query_norm,
            gated,
            own,
            attend: Attend {
                window: declaration.window,
                keep: declaration.keep.0,
                soft_cap,
                ..Attend::causal(declaration.scale)
            },
            sinks,
            keep_from: declaration.keep.1,
            rope: declaration.rope.as_ref().map(|rope| loader.rope(rope, width)).transpose()?,
            growth: loader.config.query_growth,
            head_norms,
        })
    }

    /// What the packed tokens `x [tokens, hidden]` read from their rows, `[tokens, heads * width]`, for the exit;
    /// appends their keys and values to the rows where the layer makes them.
    pub(crate) fn mix(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let (device, tokens, width) = (pass.device, x.shape()[0], self.width);
        let joined = self.entry.apply(x, pass)?;
        let joined = device.reshape(&joined, &[tokens, joined.shape()[1] / width, width])?;
        let (joined, gate) = self.part_gate(joined, pass)?;
        let queries = match &self.own {
            None => self
                .turn(self.normed(self.cut(&joined, 0..self.heads, pass)?, &self.query_norm, pass)?, pass)?,
            Some(own) => {
                let (queries, keys, values) = self.split(joined, own, pass)?;
                pass.append(self.layer, &keys, &values)?;
                queries
            }
        };
        let queries = self.grow(queries, pass)?;
        let how = Attend { sinks: self.sinks.as_ref(), precision: pass.precision, ..self.attend };
        let mut mixed = pass.attend(self.layer, &queries, &how, self.keep_from)?;
        if let Some(gate) = gate {
            mixed = device.binary(Binary::Multiply, mixed, &device.unary(Unary::Sigmoid, gate)?)?;
        }
        device.reshape(&mixed, &[tokens, self.heads * width])
    }

    /// Parts queries from their gates, where there are some: heads without gates, and gates `[tokens, heads, width]`.
    fn part_gate(&self, joined: Tensor, pass: &Pass<'_>) -> Result<(Tensor, Option<Tensor>)> {
        if !self.gated {
            return Ok((joined, None));
        }
        let (device, tokens, width, heads) = (pass.device, joined.shape()[0], self.width, self.heads);
        let pairs = device.reshape(&self.cut(&joined, 0..2 * heads, pass)?, &[tokens, heads, 2 * width])?;
        let side = |columns| device.slice(&pairs, &[0..tokens, 0..heads, columns]);
        let rest = self.cut(&joined, 2 * heads..joined.shape()[1], pass)?;
        Ok((device.concat(&[&side(0..width)?, &rest], 1)?, Some(side(width..2 * width)?)))
    }

    /// Queries, keys and values, turned and normed, of all heads side by side.
    fn split(&self, joined: Tensor, own: &Own, pass: &Pass<'_>) -> Result<(Tensor, Tensor, Tensor)> {
        let (heads, ends) = (self.heads, self.heads + own.heads);
        let values = match own.values {
            Values::Projected => self.cut(&joined, ends..ends + own.heads, pass)?,
            Values::Normed => {
                own.value_norm.apply(pass.device, &self.cut(&joined, ends..ends + own.heads, pass)?)?
            }
            Values::NormedKeys => {
                own.value_norm.apply(pass.device, &self.cut(&joined, heads..ends, pass)?)?
            }
        };
        if self.query_norm.is_none() && own.key_norm.is_none() {
            // Queries and keys stand side by side and turn in one call.
            let both = self.cut(&joined, 0..ends, pass)?;
            drop(joined);
            let both = self.turn(both, pass)?;
            return Ok((self.cut(&both, 0..heads, pass)?, self.cut(&both, heads..ends, pass)?, values));
        }
        let queries = self.normed(self.cut(&joined, 0..heads, pass)?, &self.query_norm, pass)?;
        let keys = self.normed(self.cut(&joined, heads..ends, pass)?, &own.key_norm, pass)?;
        Ok((self.turn(queries, pass)?, self.turn(keys, pass)?, values))
    }

    /// Heads of `x [tokens, heads, width]`.
    fn cut(&self, x: &Tensor, heads: Range<usize>, pass: &Pass<'_>) -> Result<Tensor> {
        pass.device.slice(x, &[0..x.shape()[0], heads, 0..self.width])
    }

    fn normed(&self, x: Tensor, norm: &Option<Norm>, pass: &Pass<'_>) -> Result<Tensor> {
        let (Some(norm), device) = (norm, pass.device) else { return Ok(x) };
        if self.head_norms == HeadNorms::Each {
            return norm.apply(device, &x);
        }
        let flat = device.reshape(&x, &[x.shape()[0], x.shape()[1] * self.width])?;
        device.reshape(&norm.apply(device, &flat)?, x.shape())
    }

    fn turn(&self, x: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        match &self.rope {
            Some(rope) => pass.device.rope(x, rope, pass.positions),
            None => Ok(x),
        }
    }

    fn grow(&self, queries: Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let (Some(growth), device) = (&self.growth, pass.device) else { return Ok(queries) };
        let number = |value| device.full(Scalar::Float(value), Dtype::F32, &[]);
        let positions = device.cast(pass.positions, Dtype::F32)?;
        let spans = device
            .unary(Unary::Floor, device.binary(Binary::Divide, positions, &number(growth.context)?)?)?;
        let grown = device.unary(Unary::Log, device.binary(Binary::Add, spans, &number(1.0)?)?)?;
        let grown = device.binary(Binary::Multiply, grown, &number(growth.rate)?)?;
        let grown = device.binary(Binary::Add, grown, &number(1.0)?)?;
        let grown = device.reshape(&device.cast(&grown, queries.dtype())?, &[queries.shape()[0], 1, 1])?;
        device.binary(Binary::Multiply, queries, &grown)
    }
}
