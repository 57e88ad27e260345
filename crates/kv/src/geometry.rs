//! Sizes of a model's cache, and the bytes that a row will take.
//!
//! Invariant: what [`Geometry::bytes`] projects for a number of tokens is what a row of so many tokens allocates.

use tandem_contracts::tensor::{Dtype, Error, Result};

/// Columns by which planes of up to 2048 grow: few enough that little is wasted, many enough that growth, which
/// copies, is rare. Longer ones grow by an eighth of the next power of two, so that a token's share of all copies stays
/// the same.
pub const CAPACITY_STEP: usize = 256;

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

/// The cache of a whole model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    layers: Vec<LayerShape>,
    dtype: Dtype,
}

impl Geometry {
    /// The layers in order, with planes of `dtype`.
    ///
    /// # Errors
    /// No layer, an extent of zero, or a dtype that is no float.
    pub fn new(layers: Vec<LayerShape>, dtype: Dtype) -> Result<Self> {
        if !dtype.is_float() {
            return Err(Error::dtype("geometry", format!("planes hold floats, got: {dtype:?}")));
        }
        if layers.is_empty()
            || layers.iter().any(|it| it.heads == 0 || it.key_width == 0 || it.value_width == 0)
        {
            return Err(Error::shape(
                "geometry",
                format!("needs layers without empty axes, got: {layers:?}"),
            ));
        }
        Ok(Self { layers, dtype })
    }

    /// The layers in order.
    pub fn layers(&self) -> &[LayerShape] {
        &self.layers
    }

    /// Dtype of the planes.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Columns that planes have when they hold `tokens` tokens.
    pub fn capacity(tokens: usize) -> usize {
        let step =
            tokens.checked_next_power_of_two().map_or(CAPACITY_STEP, |power| CAPACITY_STEP.max(power / 8));
        tokens.div_ceil(step).saturating_mul(step)
    }

    /// Device bytes of a row of `tokens` tokens; saturates, so that an absurd request is merely too large.
    pub fn bytes(&self, tokens: usize) -> usize {
        let columns = Self::capacity(tokens);
        self.layers.iter().fold(0, |sum, layer| {
            let width = layer.key_width.saturating_add(layer.value_width);
            let plane = columns.saturating_mul(layer.heads).saturating_mul(width);
            sum.saturating_add(plane.saturating_mul(self.dtype.size()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 32 };

    #[test]
    fn bytes_count_whole_steps_of_every_layer() {
        let geometry = Geometry::new(vec![LAYER, LAYER], Dtype::Bf16).unwrap();
        assert_eq!(geometry.bytes(0), 0);
        // 2 layers, 256 columns, 3 heads, 96 elements, 2 bytes.
        assert_eq!(geometry.bytes(1), 2 * 256 * 3 * 96 * 2);
        assert_eq!(geometry.bytes(256), geometry.bytes(1));
        assert_eq!(geometry.bytes(257), 2 * geometry.bytes(1));
        assert_eq!(geometry.bytes(2048), 8 * geometry.bytes(1));
        // Steps of 512 up to 4096, of 1024 up to 8192.
        assert_eq!(geometry.bytes(2049), 10 * geometry.bytes(1));
        assert_eq!(geometry.bytes(4097), 20 * geometry.bytes(1));
        assert_eq!(geometry.bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn empty_layers_and_integer_planes_are_refused() {
        assert!(Geometry::new(vec![], Dtype::F32).is_err());
        assert!(Geometry::new(vec![LayerShape { heads: 0, ..LAYER }], Dtype::F32).is_err());
        assert!(Geometry::new(vec![LAYER], Dtype::I32).is_err());
    }
}
