//! Which layers of a model are stored how: one request for all of them, or one for each.
//!
//! Invariant: a policy is whole. A request that a layer cannot meet is refused, or the layer stays plain and is named
//! with its reason ([`Exemption`]); nothing is left out in silence.

use crate::{Kind, Transition, codec::Scheme};
use std::{collections::BTreeMap, fmt, ops::Range};
use tandem_contracts::tensor::{Dtype, Error, ErrorKind, Result};

/// What is asked for: how layers are to be stored once their rows reach `start` tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Dtype of layers, and of rows, that are not encoded.
    pub plain: Dtype,
    /// What to encode.
    pub encoding: Encoding,
    /// Position from which on queries read encoded keys.
    pub start: usize,
}

/// Layers and the scheme of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Nothing.
    None,
    /// Every layer that can be.
    Uniform(Scheme),
    /// These layers, by index; the others stay plain. An empty list is [`Encoding::None`].
    ByLayer(Vec<(usize, Scheme)>),
}

/// How each layer of a model is stored. Two equal policies give equal numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    plain: Dtype,
    layers: Vec<Transition>,
}

/// A layer that stays plain although everything was to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption {
    /// Index of the layer.
    pub layer: usize,
    /// Why.
    pub reason: Reason,
}

/// Why a layer stays plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has no keys.
    Recurrent,
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::Recurrent => "it has no keys",
        };
        write!(f, "layer {} stays plain: {reason}", self.layer)
    }
}

impl Policy {
    /// Every one of `layers` layers as floats of `dtype`.
    pub fn plain(layers: usize, dtype: Dtype) -> Self {
        Self { plain: dtype, layers: vec![Transition::never(Scheme::plain(dtype)); layers] }
    }

    /// The policy that meets a request for a model of these layers, and the layers that it had to leave plain.
    ///
    /// # Errors
    /// A scheme that does not take a layer's heads; or, of named layers, one that is named twice, does not exist, or
    /// keeps no keys that could be encoded so.
    pub fn new(kinds: &[Kind], request: &Request) -> Result<(Self, Vec<Exemption>)> {
        let mut policy = Self::plain(kinds.len(), request.plain);
        for (kind, transition) in kinds.iter().zip(&policy.layers) {
            kind.shape().map_or(Ok(()), |shape| transition.scheme(0).check(shape))?;
        }
        let mut exemptions = Vec::new();
        for (layer, scheme) in request.encoding.layers(kinds.len())? {
            match (kinds[layer], refusal(kinds[layer])) {
                (Kind::Shared { .. }, _) if request.encoding.is_uniform() => {}
                (_, Some(reason)) if request.encoding.is_uniform() => {
                    exemptions.push(Exemption { layer, reason });
                }
                (kind, refused) => {
                    let shape = kind.shape().filter(|_| refused.is_none()).ok_or_else(|| {
                        Error::new(
                            ErrorKind::Unsupported,
                            "policy",
                            format!("layer {layer} cannot be stored as: {scheme}"),
                        )
                    })?;
                    scheme.check(shape)?;
                    policy.layers[layer] =
                        Transition::at(request.start, Scheme::plain(request.plain), scheme);
                }
            }
        }
        Ok((policy, exemptions))
    }

    /// The layers in order.
    pub fn layers(&self) -> &[Transition] {
        &self.layers
    }

    /// Dtype of what is not encoded.
    pub fn dtype(&self) -> Dtype {
        self.plain
    }

    /// The most tokens of a step that begins at `position`; none where nothing limits it.
    pub fn limit(&self, position: usize) -> Option<usize> {
        self.layers.iter().filter_map(|layer| layer.limit(position)).min()
    }

    /// Cuts consecutive positions into steps that no layer's threshold lies inside of. None of them is empty.
    pub fn split(&self, positions: Range<usize>) -> Vec<Range<usize>> {
        let mut steps = Vec::new();
        let mut first = positions.start;
        while first < positions.end {
            let left = positions.end - first;
            let end = first + self.limit(first).map_or(left, |limit| limit.min(left));
            steps.push(first..end);
            first = end;
        }
        steps
    }

    /// Fewest tokens to which a row of `tokens` tokens may be shortened and still be what a fresh row would be.
    pub fn floor(&self, tokens: usize) -> usize {
        self.layers.iter().map(|layer| layer.floor(tokens)).max().unwrap_or(0)
    }
}

impl Encoding {
    fn is_uniform(&self) -> bool {
        matches!(self, Self::Uniform(_))
    }

    /// Layers to encode, in order.
    fn layers(&self, count: usize) -> Result<BTreeMap<usize, Scheme>> {
        let mut layers = BTreeMap::new();
        match self {
            Self::None => {}
            Self::Uniform(scheme) => layers.extend((0..count).map(|layer| (layer, *scheme))),
            Self::ByLayer(named) => {
                for &(layer, scheme) in named {
                    if layer >= count {
                        return Err(Error::index(
                            "policy",
                            format!("the model has {count} layers, got: {layer}"),
                        ));
                    }
                    if layers.insert(layer, scheme).is_some() {
                        return Err(Error::index("policy", format!("layer is named twice: {layer}")));
                    }
                }
            }
        }
        Ok(layers)
    }
}

/// Why a layer of this kind cannot be encoded, whatever its heads.
fn refusal(kind: Kind) -> Option<Reason> {
    match kind {
        Kind::Recurrent(_) => Some(Reason::Recurrent),
        Kind::Full(_) | Kind::Window { .. } | Kind::Shared { .. } => None,
    }
}

#[cfg(test)]
mod tests;
