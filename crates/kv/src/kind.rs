//! What a layer keeps of a sequence, apart from how it is stored.
//!
//! A kind says which positions are kept and in how many columns; a [`Scheme`] says what a column of them takes. Neither
//! knows the other.

use crate::codec::Scheme;
use std::num::NonZeroUsize;
use tandem_contracts::tensor::{Dtype, Error, Result};

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys and values of every token.
    Full(LayerShape),
    /// Keys and values of the last tokens, and perhaps of the first ones.
    ///
    /// What a query sees depends on its position alone: the first `keep` positions and the last `window - keep`. A ring
    /// of `mlx_lm` that is written token by token shows the same; one that is given a prompt in one call shows each of
    /// its tokens the last `window` positions and no first ones. That is had by attending the prompt as one step with
    /// [`Attend::keep`](tandem_contracts::tensor::Attend::keep) 0, as the step's own keys are all there.
    Window {
        /// Heads and widths.
        shape: LayerShape,
        /// Positions that a query sees, its own included.
        window: usize,
        /// So many of them are the row's first positions, for ever; the others are the last ones.
        keep: usize,
    },
    /// A state of fixed size (linear attention, gated delta, Mamba): nothing for each token.
    Recurrent(RecurrentShape),
    /// Nothing of its own: the layer reads the keys and values of an earlier one.
    Shared {
        /// Index of that layer.
        donor: usize,
    },
}

/// Keys and values of one layer, for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Heads of keys and of values.
    pub heads: usize,
    /// Width of a key head.
    pub key_width: usize,
    /// Width of a value head.
    pub value_width: usize,
}

/// Extents of a recurrent layer's state: of a convolution's tail and of a matrix for each head. A layer that has a
/// convolution alone has no heads; one without a convolution has one tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentShape {
    /// Heads of values.
    pub heads: usize,
    /// Width of a value head (of a head, in a state space).
    pub value_width: usize,
    /// Width of a key head (of the state, in a state space).
    pub key_width: usize,
    /// Channels that the convolution runs over.
    pub channels: usize,
    /// Taps of the convolution; it remembers one token less.
    pub taps: usize,
}

/// By how many columns planes grow: few enough that little is wasted, many enough that growth, which copies, is rare.
/// Planes of more than eight growths grow by an eighth of the next power of two, so that a token's share of all copies
/// stays the same. Layers of a row grow at moments of their own, so that no step copies all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// A power of two.
    columns: NonZeroUsize,
    /// By how much of a growth the layer is ahead of others, in parts of [`PHASES`].
    phase: usize,
}

/// Moments of a growth at which layers may grow.
const PHASES: usize = 32;

impl Growth {
    /// So many columns at a time, or the next power of two.
    pub const fn by(columns: NonZeroUsize) -> Self {
        let columns = match columns.checked_next_power_of_two() {
            Some(power) => power,
            None => columns,
        };
        Self { columns, phase: 0 }
    }

    /// The growth of one of `layers` layers: all grow equally often, and evenly after one another.
    pub(crate) const fn of(self, layer: usize, layers: usize) -> Self {
        Self { phase: if layer < layers { layer * PHASES / layers } else { 0 }, ..self }
    }

    /// Columns at a time.
    pub const fn columns(self) -> usize {
        self.columns.get()
    }

    /// Columns that planes have when they hold `tokens` tokens; saturates.
    pub const fn capacity(self, tokens: usize) -> usize {
        let whole = self.whole(tokens);
        let early = whole.saturating_sub(self.ahead(whole));
        if early >= tokens {
            return early;
        }
        let next = self.whole(whole.saturating_add(1));
        let next = next.saturating_sub(self.ahead(next));
        if next >= tokens { next } else { tokens }
    }

    /// Columns at a time of planes that hold `tokens` tokens.
    const fn step(self, tokens: usize) -> usize {
        match tokens.checked_next_power_of_two() {
            Some(power) if power / 8 > self.columns() => power / 8,
            _ => self.columns(),
        }
    }

    /// The capacity of a layer that is ahead of none.
    const fn whole(self, tokens: usize) -> usize {
        let step = self.step(tokens);
        tokens.div_ceil(step).saturating_mul(step)
    }

    /// How many columns before `whole` of them the layer stops.
    const fn ahead(self, whole: usize) -> usize {
        let step = self.step(whole);
        if step < PHASES { step * self.phase / PHASES } else { step / PHASES * self.phase }
    }
}

impl Default for Growth {
    /// 256 columns.
    fn default() -> Self {
        Self::by(const { NonZeroUsize::MIN.saturating_add(255) })
    }
}

impl RecurrentShape {
    /// Shape of the tail: `[taps - 1, channels]`.
    pub const fn tail(self) -> [usize; 2] {
        [self.taps.saturating_sub(1), self.channels]
    }

    /// Shape of the matrices: `[heads, value width, key width]`.
    pub const fn matrix(self) -> [usize; 3] {
        [self.heads, self.value_width, self.key_width]
    }

    /// Whether there is nothing to keep, or an extent that cannot be.
    fn is_empty(self) -> bool {
        let Self { heads, value_width, key_width, channels, taps } = self;
        let no_matrix = heads == 0 || value_width == 0 || key_width == 0;
        channels == 0 || taps == 0 || (heads > 0 && no_matrix) || (no_matrix && taps == 1)
    }

    /// Bytes of the state in f32 and of the convolution's tail in `dtype`; saturates.
    pub fn bytes(self, dtype: Dtype) -> usize {
        let product = |extents: &[usize]| extents.iter().fold(1_usize, |all, &one| all.saturating_mul(one));
        let matrix = product(&self.matrix()).saturating_mul(Dtype::F32.size());
        matrix.saturating_add(product(&self.tail()).saturating_mul(dtype.size()))
    }
}

impl Kind {
    /// Checks that nothing is empty, and that layer `index` reads an earlier layer if it reads another.
    ///
    /// # Errors
    /// An extent of 0, or a donor that does not come before. Whether the donor keeps keys is the caller's to check.
    pub fn check(self, index: usize) -> Result<()> {
        let empty = match self {
            Self::Full(shape) => is_empty(shape),
            Self::Window { shape, window, keep } => is_empty(shape) || keep >= window,
            Self::Recurrent(shape) => shape.is_empty(),
            Self::Shared { donor } => donor >= index,
        };
        if empty {
            return Err(Error::shape("layer", format!("layer {index} cannot be: {self:?}")));
        }
        Ok(())
    }

    /// Heads and widths of keys and values that the layer keeps itself.
    pub const fn shape(self) -> Option<LayerShape> {
        match self {
            Self::Full(shape) | Self::Window { shape, .. } => Some(shape),
            Self::Recurrent(_) | Self::Shared { .. } => None,
        }
    }

    /// Columns that hold a row of `tokens` tokens that came in steps of at most `step`, where planes grow by `growth` columns.
    /// A window has room for what a step reads and for the step, and keeps it until the next one begins.
    pub fn columns(self, tokens: usize, step: usize, growth: Growth) -> usize {
        match self {
            Self::Full(_) => growth.capacity(tokens),
            Self::Window { window, .. } => growth.capacity(tokens.min((window - 1).saturating_add(step))),
            Self::Recurrent(_) | Self::Shared { .. } => 0,
        }
    }

    /// Bytes of a row with so many [`Kind::columns`] stored by `scheme`. Saturates.
    ///
    /// # Errors
    /// The scheme does not take the layer's heads.
    pub fn bytes(self, scheme: Scheme, columns: usize) -> Result<usize> {
        match self.shape() {
            Some(shape) => Ok(columns.saturating_mul(scheme.bytes_per_token(shape)?)),
            None => Ok(0),
        }
    }

    /// Bytes that every row takes however long it is: recurrent state, with its tail in `dtype`. Saturates.
    pub fn fixed_bytes(self, dtype: Dtype) -> usize {
        match self {
            Self::Recurrent(shape) => shape.bytes(dtype),
            Self::Full(_) | Self::Window { .. } | Self::Shared { .. } => 0,
        }
    }
}

fn is_empty(shape: LayerShape) -> bool {
    [shape.heads, shape.key_width, shape.value_width].contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: LayerShape = LayerShape { heads: 2, key_width: 64, value_width: 128 };
    const STATE: RecurrentShape =
        RecurrentShape { heads: 4, value_width: 16, key_width: 8, channels: 96, taps: 4 };

    fn bytes(kind: Kind, tokens: usize) -> usize {
        let columns = kind.columns(tokens, 1, Growth::default());
        kind.bytes(Scheme::plain(Dtype::Bf16), columns).unwrap() + kind.fixed_bytes(Dtype::Bf16)
    }

    #[test]
    fn full_layers_grow_with_the_row() {
        let token = 2 * (64 + 128) * 2;
        assert_eq!(
            [0, 1, 256, 257].map(|tokens| bytes(Kind::Full(SHAPE), tokens)),
            [0, 256 * token, 256 * token, 512 * token]
        );
        assert_eq!(bytes(Kind::Full(SHAPE), usize::MAX), usize::MAX);
    }

    #[test]
    fn long_planes_grow_by_longer_steps() {
        let growth = Growth::default();
        assert_eq!(
            [2048, 2049, 4096, 4097, 8192].map(|tokens| growth.capacity(tokens)),
            [2048, 2560, 4096, 5120, 8192]
        );
    }

    #[test]
    fn layers_grow_at_moments_of_their_own() {
        let layers: Vec<Growth> = (0..30).map(|layer| Growth::default().of(layer, 30)).collect();
        // The first is ahead of none; the 16th of thirty has 16 of 32 parts of a step less.
        let levels =
            |layer: usize| [1, 128, 129, 1920, 1921, 2304, 2305].map(|tokens| layers[layer].capacity(tokens));
        assert_eq!(levels(0), [256, 256, 256, 2048, 2048, 2560, 2560]);
        assert_eq!(levels(15), [128, 128, 384, 1920, 2304, 2304, 2816]);
        // Of two layers each grows when the other does not, and no step of one token lets more than one of thirty grow.
        let mut grown = vec![0; 30];
        for tokens in 1..9000 {
            let now: Vec<usize> = layers.iter().map(|layer| layer.capacity(tokens)).collect();
            let growing = now.iter().zip(&grown).filter(|(now, before)| now != before).count();
            assert!(tokens == 1 || growing <= 1, "{growing} layers grow for token {tokens}");
            assert!(now.iter().zip(&grown).all(|(now, before)| now >= before && *now >= tokens));
            grown = now;
        }
    }

    #[test]
    fn windows_stop_growing() {
        let token = 2 * (64 + 128) * 2;
        let kind = |window| Kind::Window { shape: SHAPE, window, keep: 0 };
        assert_eq!(
            [1, 300, 512, 9000].map(|tokens| bytes(kind(512), tokens)),
            [256, 512, 512, 512].map(|columns| columns * token)
        );
        assert_eq!(bytes(kind(1), 9000), 256 * token);
        // 511 positions before a step of 300, and the step.
        assert_eq!(kind(512).columns(9000, 300, Growth::default()), 1024);
        assert_eq!(kind(512).columns(600, 300, Growth::default()), 768);
        assert_eq!(kind(1).columns(9000, usize::MAX, Growth::default()), 10240);
    }

    #[test]
    fn recurrent_state_has_one_size() {
        // 4 heads of 16 x 8 in f32, 3 remembered tokens of 96 channels in bf16.
        let size = 4 * 16 * 8 * 4 + 3 * 96 * 2;
        assert_eq!([1, 9000].map(|tokens| bytes(Kind::Recurrent(STATE), tokens)), [size, size]);
    }

    #[test]
    fn shared_layers_keep_nothing() {
        assert_eq!(bytes(Kind::Shared { donor: 0 }, 9000), 0);
    }

    #[test]
    fn nothing_may_be_empty_and_donors_come_before() {
        let refused = |kind: Kind, index| kind.check(index).is_err();
        assert!(refused(Kind::Full(LayerShape { heads: 0, ..SHAPE }), 0));
        assert!(refused(Kind::Window { shape: SHAPE, window: 0, keep: 0 }, 0));
        assert!(refused(Kind::Window { shape: SHAPE, window: 4, keep: 4 }, 0));
        for shape in [
            RecurrentShape { taps: 0, ..STATE },
            RecurrentShape { channels: 0, ..STATE },
            RecurrentShape { key_width: 0, ..STATE },
            RecurrentShape { heads: 0, taps: 1, ..STATE },
        ] {
            assert!(refused(Kind::Recurrent(shape), 0), "{shape:?}");
        }
        // A short convolution, and a recurrence without one.
        for shape in [RecurrentShape { heads: 0, ..STATE }, RecurrentShape { taps: 1, ..STATE }] {
            assert!(!refused(Kind::Recurrent(shape), 0), "{shape:?}");
        }
        assert!(refused(Kind::Shared { donor: 3 }, 3));
        assert!(Kind::Shared { donor: 2 }.check(3).is_ok());
        assert!(Kind::Window { shape: SHAPE, window: 1, keep: 0 }.check(0).is_ok());
    }
}
