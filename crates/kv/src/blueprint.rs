//! What a row is made by: the layers of a model with how each is stored, and the bytes that follow.
//!
//! Invariant: what [`Blueprint::need`] projects for a number of tokens in steps of some length is what a row of its own
//! allocates at most that comes to them so, to the byte but for windows, which may keep one [`Growth`] of columns less.
//! What rows take together, which may share planes, a [`Layout`](crate::Layout) knows.

use crate::{
    Growth, Kind, Transition,
    codec::Scheme,
    policy::{Encoding, Exemption, Policy, Request},
};
use tandem_contracts::tensor::{Dtype, Error, ErrorKind, Result};

/// Layers and their policy, checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blueprint {
    kinds: Vec<Kind>,
    policy: Policy,
    growth: Growth,
}

impl Blueprint {
    /// Layers stored as floats of `dtype`.
    ///
    /// # Errors
    /// As [`Blueprint::new`].
    pub fn plain(kinds: Vec<Kind>, dtype: Dtype) -> Result<Self> {
        let request = Request { plain: dtype, encoding: Encoding::None, start: 0 };
        Self::new(kinds, &request).map(|(blueprint, _)| blueprint)
    }

    /// Layers stored as requested, and those that stay plain although they were to be encoded.
    ///
    /// # Errors
    /// No layer, one with an extent of 0, a donor without keys of its own, or as [`Policy::new`].
    pub fn new(kinds: Vec<Kind>, request: &Request) -> Result<(Self, Vec<Exemption>)> {
        if kinds.is_empty() {
            return Err(Error::shape("blueprint", "needs at least one layer"));
        }
        for (index, &kind) in kinds.iter().enumerate() {
            kind.check(index)?;
            if let Kind::Shared { donor } = kind
                && kinds[donor].shape().is_none()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "blueprint",
                    format!("layer {index} reads keys of a layer that keeps none: {donor}"),
                ));
            }
        }
        let (policy, exemptions) = Policy::new(&kinds, request)?;
        Ok((Self { kinds, policy, growth: Growth::default() }, exemptions))
    }

    /// With planes that grow by other than 256 columns.
    #[must_use]
    pub fn growing(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }

    /// How the planes of each layer grow: those that keep keys one after the other.
    fn growths(&self) -> impl Iterator<Item = Growth> {
        let keeps = |kind: &Kind| kind.shape().is_some();
        let count = self.kinds.iter().filter(|kind| keeps(kind)).count();
        self.kinds.iter().scan(0, move |before, kind| {
            let own = self.growth.of(*before, count);
            *before += usize::from(keeps(kind));
            Some(own)
        })
    }

    /// The layers in order.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// How they are stored.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Device bytes of a row that holds `tokens` tokens, which came one by one; saturates, so that an absurd request is
    /// merely too large.
    pub fn bytes(&self, tokens: usize) -> usize {
        self.bytes_of((tokens, 1), |_, _| true)
    }

    /// The most bytes that a row takes on its way to `tokens` tokens, in steps of at most `step`: before a transition it may
    /// take more than after.
    pub fn need(&self, tokens: usize, step: usize) -> usize {
        self.need_of((tokens, step), |_, _| true)
    }

    /// The same of those layers that `counts` takes, by what they keep and how it is stored.
    pub(crate) fn need_of(
        &self,
        (tokens, step): (usize, usize),
        counts: impl Fn(Kind, Scheme) -> bool,
    ) -> usize {
        let thresholds = self.policy.layers().iter().filter_map(|layer| layer.boundary());
        thresholds
            .filter(|&start| start < tokens)
            .chain([tokens])
            .map(|held| self.bytes_of((held, step), &counts))
            .max()
            .unwrap_or(0)
    }

    /// The sum of the most bytes that each layer takes on that way: of rows that share planes and are at moments of their own,
    /// of which a layer with codes and one without may be at their largest at once.
    pub(crate) fn need_apart(&self, tokens: usize, step: usize) -> usize {
        self.layers().fold(0, |sum: usize, layer| {
            let moments = layer.1.boundary().filter(|&start| start < tokens).into_iter().chain([tokens]);
            let most = moments.map(|held| self.layer_bytes(layer, (held, step), |_, _| true)).max();
            sum.saturating_add(most.unwrap_or(0))
        })
    }

    /// Each layer, how it is stored, and how its planes grow.
    pub(crate) fn layers(&self) -> impl Iterator<Item = (Kind, &Transition, Growth)> {
        let kinds = self.kinds.iter().copied().zip(self.policy.layers());
        kinds.zip(self.growths()).map(|((kind, transition), growth)| (kind, transition, growth))
    }

    fn bytes_of(&self, length: (usize, usize), counts: impl Fn(Kind, Scheme) -> bool) -> usize {
        self.layers()
            .fold(0, |sum: usize, layer| sum.saturating_add(self.layer_bytes(layer, length, &counts)))
    }

    /// Bytes of a layer with so many tokens, in steps of at most so many.
    fn layer_bytes(
        &self,
        (kind, transition, growth): (Kind, &Transition, Growth),
        (tokens, step): (usize, usize),
        counts: impl Fn(Kind, Scheme) -> bool,
    ) -> usize {
        let scheme = transition.stored(tokens).filter(|&scheme| counts(kind, scheme));
        let Some(scheme) = scheme else { return 0 };
        // Schemes were checked against their layers, so that none is refused here.
        let grown = kind.bytes(scheme, kind.columns(tokens, step, growth)).unwrap_or(usize::MAX);
        grown.saturating_add(kind.fixed_bytes(self.policy.dtype()))
    }

    /// Bytes by which each further token grows a long row, whose windows have stopped growing. Saturates.
    pub fn bytes_per_token(&self) -> usize {
        self.kinds.iter().zip(self.policy.layers()).fold(0, |sum: usize, (kind, transition)| match kind {
            Kind::Full(shape) => {
                let bytes = transition.scheme(usize::MAX).bytes_per_token(*shape);
                sum.saturating_add(bytes.unwrap_or(usize::MAX))
            }
            Kind::Window { .. } | Kind::Recurrent(_) | Kind::Shared { .. } => sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LayerShape, RecurrentShape};
    use tandem_contracts::tensor::Affine;

    const SHAPE: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 64 };

    fn uniform(kinds: Vec<Kind>, scheme: Scheme, start: usize) -> Blueprint {
        let request = Request { plain: Dtype::Bf16, encoding: Encoding::Uniform(scheme), start };
        Blueprint::new(kinds, &request).unwrap().0
    }

    fn affine(bits: u8) -> Scheme {
        Scheme::affine(Affine { bits, group: 64 }, Dtype::Bf16)
    }

    /// Thirty layers of three heads of 64.
    #[test]
    fn codes_are_as_much_smaller_as_they_should_be() {
        let kinds = vec![Kind::Full(SHAPE); 30];
        let plain = Blueprint::plain(kinds.clone(), Dtype::Bf16).unwrap();
        assert_eq!(plain.bytes_per_token(), 30 * 3 * 2 * 64 * 2);
        let smaller = |scheme| {
            let (one, coded) = (uniform(vec![kinds[0]], scheme, 0), uniform(kinds.clone(), scheme, 0));
            assert_eq!(30 * one.bytes(1000), 1024 * coded.bytes_per_token());
            plain.bytes_per_token() as f64 / coded.bytes_per_token() as f64
        };
        assert!(smaller(affine(8)) >= 1.88, "128 / 68");
        assert!(smaller(affine(4)) >= 3.5, "128 / 36");
        assert!(smaller(Scheme::turbo(8, 3)) >= 2.5, "256 / 100");
        assert!(smaller(Scheme::turbo(4, 3)) >= 3.7, "256 / 68");
    }

    #[test]
    fn every_kind_adds_its_own_bytes() {
        let state = RecurrentShape { heads: 2, value_width: 8, key_width: 8, channels: 48, taps: 4 };
        let kinds = vec![
            Kind::Full(SHAPE),
            Kind::Window { shape: SHAPE, window: 300, keep: 0 },
            Kind::Recurrent(state),
            Kind::Shared { donor: 0 },
        ];
        let blueprint = uniform(kinds, affine(8), 0);
        let (token, state) = (3 * 2 * 68, 2 * 8 * 8 * 4 + 3 * 48 * 2);
        assert_eq!(blueprint.bytes(0), 0);
        // The window, the second of two that keep keys, is half a growth ahead.
        assert_eq!(blueprint.bytes(1), (256 + 128) * token + state);
        assert_eq!(blueprint.bytes(2000), (2048 + 384) * token + state);
        assert_eq!(blueprint.bytes_per_token(), token);
        assert_eq!(blueprint.bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn the_need_of_a_delayed_row_is_its_largest_moment() {
        let blueprint = uniform(vec![Kind::Full(SHAPE)], Scheme::turbo(4, 3), 1024);
        let (plain, coded) = (3 * 256, 3 * 68);
        assert_eq!(blueprint.bytes(1024), 1024 * plain);
        assert_eq!(blueprint.bytes(1025), 1280 * coded);
        assert_eq!(blueprint.need(512, 512), 512 * plain);
        assert_eq!(blueprint.need(1025, 512), 1024 * plain);
        assert_eq!(blueprint.need(8192, 512), 8192 * coded);
    }

    #[test]
    fn layers_that_cannot_be_are_refused() {
        let kind = |kinds| Blueprint::plain(kinds, Dtype::F32).map_err(|error| error.kind()).unwrap_err();
        let state = RecurrentShape { heads: 2, value_width: 8, key_width: 8, channels: 48, taps: 4 };
        assert_eq!(kind(vec![]), ErrorKind::Shape);
        assert_eq!(kind(vec![Kind::Shared { donor: 0 }]), ErrorKind::Shape);
        assert_eq!(kind(vec![Kind::Recurrent(state), Kind::Shared { donor: 0 }]), ErrorKind::Unsupported);
    }
}
