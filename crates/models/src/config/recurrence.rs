//! Extents of layers that carry a state of fixed size in place of keys and values.
//!
//! Invariants of a [`RecurrenceConfig`] that was read: every extent is at least 1, and heads share what they share
//! evenly.

use super::{MOST, field::Fields, missing};
use crate::error::{Error, Result};

/// Widest head and longest convolution of such a layer.
const WIDEST: u64 = 1 << 12;

/// Most elements of a layer's state, a matrix for each head: 64 MiB in f32, for each row. Models have up to 2 M of them.
const MOST_CARRIED: usize = 1 << 24;

/// What the layers carry that have no attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrenceConfig {
    /// The last inputs of a gated convolution (LFM2).
    Short(ShortConfig),
    /// The state of a gated delta net (Yang, Kautz and Hatamizadeh, arXiv:2412.06464).
    Delta(DeltaConfig),
    /// The state of a selective state space (Mamba-2; Dao and Gu, arXiv:2405.21060).
    Space(SpaceConfig),
}

/// A gated convolution over as many channels as activations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConfig {
    /// Tokens that it reads.
    pub taps: usize,
    /// Whether it and its projections have biases.
    pub bias: bool,
}

/// A gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of the former.
    pub value_heads: usize,
    /// Width of a query or key.
    pub key_width: usize,
    /// Width of a value.
    pub value_width: usize,
    /// Tokens that the convolution before it reads.
    pub taps: usize,
}

/// A selective state space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// Groups of heads that share `B` and `C`.
    pub groups: usize,
    /// Width of `B` and `C`.
    pub state: usize,
    /// Tokens that the convolution before it reads.
    pub taps: usize,
    /// Whether projections have biases.
    pub bias: bool,
    /// Whether the convolution has a bias.
    pub convolution_bias: bool,
    /// Least and largest step in time.
    pub steps: (f32, f32),
}

impl ShortConfig {
    pub(crate) fn read(fields: Fields<'_>) -> Result<Self> {
        Ok(Self {
            taps: extent(fields, "conv_L_cache")?,
            bias: fields.flag("conv_bias")?.ok_or_else(|| missing("conv_bias"))?,
        })
    }
}

impl DeltaConfig {
    pub(crate) fn read(fields: Fields<'_>) -> Result<Self> {
        let heads = |key| fields.count(key, MOST)?.ok_or_else(|| missing(key));
        let config = Self {
            key_heads: heads("linear_num_key_heads")?,
            value_heads: heads("linear_num_value_heads")?,
            key_width: extent(fields, "linear_key_head_dim")?,
            value_width: extent(fields, "linear_value_head_dim")?,
            taps: extent(fields, "linear_conv_kernel_dim")?,
        };
        require_shared("linear_num_value_heads", config.value_heads, config.key_heads)?;
        require_small(config.value_heads, config.value_width, config.key_width)?;
        Ok(config)
    }

    /// Channels of queries or of keys.
    pub(crate) const fn keys(self) -> usize {
        self.key_heads * self.key_width
    }

    /// Channels of values.
    pub(crate) const fn values(self) -> usize {
        self.value_heads * self.value_width
    }

    /// Channels of the convolution: queries, keys and values.
    pub(crate) const fn channels(self) -> usize {
        2 * self.keys() + self.values()
    }
}

impl SpaceConfig {
    pub(crate) fn read(fields: Fields<'_>) -> Result<Self> {
        let heads = |key| fields.count(key, MOST)?.ok_or_else(|| missing(key));
        let flag = |key| fields.flag(key)?.ok_or_else(|| missing(key));
        let state = fields.count("ssm_state_size", WIDEST)?;
        let config = Self {
            heads: heads("num_heads")?,
            width: extent(fields, "head_dim")?,
            groups: heads("n_groups")?,
            state: state.map_or_else(|| extent(fields, "state_size"), Ok)?,
            taps: extent(fields, "conv_kernel")?,
            bias: flag("use_bias")?,
            convolution_bias: flag("use_conv_bias")?,
            steps: read_steps(fields)?,
        };
        require_shared("num_heads", config.heads, config.groups)?;
        require_small(config.heads, config.width, config.state)?;
        Ok(config)
    }

    /// Channels of all heads.
    pub(crate) const fn inner(self) -> usize {
        self.heads * self.width
    }

    /// Channels of `B` or of `C`.
    pub(crate) const fn shared(self) -> usize {
        self.groups * self.state
    }

    /// Channels of the convolution: the heads, `B` and `C`.
    pub(crate) const fn channels(self) -> usize {
        self.inner() + 2 * self.shared()
    }
}

fn extent(fields: Fields<'_>, key: &str) -> Result<usize> {
    fields.count(key, WIDEST)?.ok_or_else(|| missing(key))
}

fn require_shared(key: &str, heads: usize, shared: usize) -> Result<()> {
    if heads.is_multiple_of(shared) {
        return Ok(());
    }
    Err(Error::config(format!("{key} must be a multiple of {shared}, got: {heads}")))
}

fn require_small(heads: usize, width: usize, state: usize) -> Result<()> {
    let elements = heads.saturating_mul(width).saturating_mul(state);
    if elements <= MOST_CARRIED {
        return Ok(());
    }
    let message = format!("a layer's state may have up to {MOST_CARRIED} elements, got: {elements}");
    Err(Error::config(message))
}

/// `time_step_limit`: two numbers, of which the second may be Python's `Infinity`.
fn read_steps(fields: Fields<'_>) -> Result<(f32, f32)> {
    let key = "time_step_limit";
    let Some(limits) = fields.list(key)? else { return Ok((0.0, f32::INFINITY)) };
    let pair = match &limits[..] {
        [low, high] if high.as_str() == Some("Infinity") => low.as_f64().zip(Some(f64::INFINITY)),
        [low, high] => low.as_f64().zip(high.as_f64()),
        _ => None,
    };
    pair.map(|(low, high)| (low as f32, high as f32)).filter(|(low, high)| low <= high).ok_or_else(|| {
        Error::config(format!("{key} must be two numbers in order, has numbers: {}", limits.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn space(more: Value) -> Result<SpaceConfig> {
        let mut fields = json!({ "num_heads": 6, "head_dim": 8, "n_groups": 2, "state_size": 16, "conv_kernel": 4,
            "use_bias": false, "use_conv_bias": true });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        SpaceConfig::read(Fields(fields.as_object().unwrap()))
    }

    #[test]
    fn a_state_space_is_read_with_or_without_bounds() {
        let config = space(json!({})).unwrap();
        assert_eq!((config.inner(), config.shared(), config.channels()), (48, 32, 112));
        assert_eq!((config.steps, config.bias, config.convolution_bias), ((0.0, f32::INFINITY), false, true));
        assert_eq!(space(json!({ "ssm_state_size": 4 })).unwrap().state, 4);
        let steps = |limits: Value| space(json!({ "time_step_limit": limits })).unwrap().steps;
        assert_eq!(steps(json!([0.001, 0.1])), (0.001, 0.1));
        assert_eq!(steps(json!([0.5, "Infinity"])), (0.5, f32::INFINITY));
        for limits in [json!(["Infinity", 1]), json!([0, "-Infinity"]), json!(["NaN", 1]), json!([0, null])] {
            assert!(space(json!({ "time_step_limit": limits })).is_err(), "{limits}");
        }
    }

    #[test]
    fn extents_that_cannot_be_are_refused() {
        for (fields, expected) in [
            (json!({ "n_groups": 4 }), "num_heads must be a multiple of 4, got: 6"),
            (
                json!({ "head_dim": 4096, "state_size": 4096 }),
                "a layer's state may have up to 16777216 elements, got: 100663296",
            ),
            (json!({ "conv_kernel": null }), "the configuration lacks: conv_kernel"),
            (json!({ "state_size": 5000 }), "state_size must be a whole number from 1 to 4096, got: 5000"),
            (
                json!({ "time_step_limit": [1.0] }),
                "time_step_limit must be two numbers in order, has numbers: 1",
            ),
            (
                json!({ "time_step_limit": [2, 1] }),
                "time_step_limit must be two numbers in order, has numbers: 2",
            ),
        ] {
            assert_eq!(space(fields).unwrap_err().to_string(), expected);
        }
        let delta = json!({ "linear_num_key_heads": 2, "linear_num_value_heads": 3, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4 });
        let error = DeltaConfig::read(Fields(delta.as_object().unwrap())).unwrap_err();
        assert_eq!(error.to_string(), "linear_num_value_heads must be a multiple of 2, got: 3");
    }
}
