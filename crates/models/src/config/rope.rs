//! Rotary positions: base and scaling, and the frequencies that follow.
//!
//! All frequencies are computed in f64 and rounded once. Invariant: they do not depend on a row's length, so that a
//! token's numbers depend on its position alone.

use super::{field::Fields, missing};
use crate::error::{Error, Result, printable};
use std::f64::consts::PI;

/// Rotary positions (Su et al., arXiv:2104.09864).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric series of wavelengths.
    pub base: f64,
    /// Share of a head that is rotated, from its first element on.
    pub share: f64,
    /// Whether pairs are neighbours; else halves.
    pub interleaved: bool,
    /// How positions beyond the trained ones are reached.
    pub scaling: Scaling,
}

/// A scheme that stretches rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// None. Dynamic NTK scaling is this too: it changes only rows past `max_position_embeddings`, where contexts
    /// end here, as frequencies that grow with the row would make a token's numbers depend on the row's length.
    None,
    /// Positions divided by a factor (Chen et al., arXiv:2306.15595).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3.1: long waves stretched, short ones kept, a blend between.
    Llama3 {
        /// Stretch of long waves.
        factor: f64,
        /// Waves longer than the original context divided by this are stretched.
        low_frequency_factor: f64,
        /// Waves shorter than the original context divided by this are kept.
        high_frequency_factor: f64,
        /// Context of the original training.
        original_context: f64,
    },
    /// YaRN (Peng et al., arXiv:2309.00071).
    Yarn {
        /// Stretch of slow dimensions.
        factor: f64,
        /// Context of the original training.
        original_context: f64,
        /// Dimensions with more turns than this over the original context are kept.
        beta_fast: f64,
        /// Dimensions with fewer turns than this are stretched.
        beta_slow: f64,
        /// Multiplies queries and keys.
        attention_factor: f64,
    },
    /// Frequencies divided one by one: LongRoPE (Ding et al., arXiv:2402.13753), and what GGUF files give. Of
    /// LongRoPE's two lists it is the long one in every row, as a token's numbers depend on its position alone.
    Divisors {
        /// One for each pair.
        divisors: Vec<f32>,
        /// Multiplies queries and keys.
        attention_factor: f64,
    },
    /// The whole head has pairs, of which those beyond the rotated share stand still (Gemma 4).
    Proportional {
        /// Positions are divided by it.
        factor: f64,
    },
}

impl RopeConfig {
    /// The block with scaling, in the newer and in the older spelling.
    pub(crate) fn block(fields: Fields<'_>) -> Result<Option<Fields<'_>>> {
        match fields.object("rope_scaling")? {
            Some(block) => Ok(Some(block)),
            None => fields.object("rope_parameters"),
        }
    }

    /// Rotary positions of layers that see everything, and of those with a window where the file tells them apart.
    pub(crate) fn read(fields: Fields<'_>, context: usize) -> Result<(Self, Option<Self>)> {
        let block = Self::block(fields)?;
        let of = |kind| block.map_or(Ok(None), |block| block.object(kind));
        match (of("full_attention")?, of("sliding_attention")?) {
            (None, None) => Ok((Self::read_one(fields, block, context)?, None)),
            (full, windowed) => {
                let full = Self::read_one(fields, full, context)?;
                Ok((full, Some(Self::read_one(fields, windowed, context)?)))
            }
        }
    }

    fn read_one(fields: Fields<'_>, block: Option<Fields<'_>>, context: usize) -> Result<Self> {
        // Newer configurations hold all in one block.
        let number = |key| match block.map_or(Ok(None), |block| block.positive(key))? {
            Some(nested) => Ok(Some(nested)),
            None => fields.positive(key),
        };
        let base = number("rope_theta")?.unwrap_or(10_000.0);
        if base <= 1.0 {
            return Err(Error::config(format!("rope_theta must be above 1, got: {base}")));
        }
        let share = number("partial_rotary_factor")?.unwrap_or(1.0);
        if share > 1.0 {
            return Err(Error::config(format!("partial_rotary_factor must be at most 1, got: {share}")));
        }
        let original = number("original_max_position_embeddings")?;
        Ok(Self {
            base,
            share,
            interleaved: fields.flag("rope_traditional")?.unwrap_or(false),
            scaling: block.map_or(Ok(Scaling::None), |block| Scaling::read(block, context, original))?,
        })
    }

    /// Elements of a head of `width` that are rotated: two for each pair.
    fn rotated(&self, width: usize) -> usize {
        match self.scaling {
            Scaling::Proportional { .. } => width,
            _ => (width as f64 * self.share) as usize,
        }
    }

    /// Radians per position of each pair of a head of `width`.
    ///
    /// # Errors
    /// A rotated share that is no whole number of pairs; divisors of another number than pairs, or one that is not
    /// above 0.
    pub fn frequencies(&self, width: usize) -> Result<Vec<f32>> {
        let (whole, width) = (width, self.rotated(width));
        if width < 2 || !width.is_multiple_of(2) {
            return Err(Error::config(format!(
                "an even part of a head must be rotated, got: {width} of {whole}"
            )));
        }
        let pairs = width / 2;
        let plain = |pair: usize| self.base.powf(-2.0 * pair as f64 / width as f64);
        if let Scaling::Divisors { divisors, .. } = &self.scaling {
            if divisors.len() != pairs {
                let message = format!("there must be {pairs} rotary divisors, there are: {}", divisors.len());
                return Err(Error::config(message));
            }
            if let Some(bad) = divisors.iter().find(|it| !(it.is_finite() && **it > 0.0)) {
                return Err(Error::config(format!("rotary divisors must be finite and above 0, got: {bad}")));
            }
        }
        let scaled = |pair: usize| {
            let frequency = plain(pair);
            match &self.scaling {
                Scaling::None => frequency,
                Scaling::Linear { factor } => frequency / factor,
                Scaling::Divisors { divisors, .. } => frequency / f64::from(divisors[pair]),
                Scaling::Proportional { factor } => {
                    let turning = 2.0 * (pair as f64) < (whole as f64 * self.share).floor();
                    if turning { frequency / factor } else { 0.0 }
                }
                Scaling::Llama3 {
                    factor,
                    low_frequency_factor: low,
                    high_frequency_factor: high,
                    original_context,
                } => {
                    let turns = original_context * frequency / (2.0 * PI);
                    // All of the short waves, none of the long ones, and a line between.
                    let kept =
                        if turns >= *high { 1.0 } else { ((turns - low) / (high - low)).clamp(0.0, 1.0) };
                    frequency * (kept + (1.0 - kept) / factor)
                }
                Scaling::Yarn { factor, .. } => {
                    let stretched = self.yarn_ramp(pair, width);
                    frequency * ((1.0 - stretched) + stretched / factor)
                }
            }
        };
        Ok((0..pairs).map(|pair| scaled(pair) as f32).collect())
    }

    /// What multiplies rotated elements.
    pub fn scale(&self) -> f32 {
        match self.scaling {
            Scaling::Yarn { attention_factor, .. } | Scaling::Divisors { attention_factor, .. } => {
                attention_factor as f32
            }
            _ => 1.0,
        }
    }

    /// How much of YaRN's stretch a pair takes: 0 for fast ones, 1 for slow ones, a line between.
    fn yarn_ramp(&self, pair: usize, width: usize) -> f64 {
        let Scaling::Yarn { original_context, beta_fast, beta_slow, .. } = self.scaling else { return 0.0 };
        let dimension =
            |turns: f64| width as f64 * (original_context / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln());
        let first = dimension(beta_fast).floor().max(0.0);
        let last = dimension(beta_slow).ceil().min(width as f64 - 1.0);
        let last = if last == first { last + 0.001 } else { last };
        ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0)
    }
}

impl Scaling {
    fn read(block: Fields<'_>, context: usize, original: Option<f64>) -> Result<Self> {
        let kind = block.text("type")?.map_or_else(|| block.text("rope_type"), |kind| Ok(Some(kind)))?;
        let required =
            |key: &str| block.positive(key)?.ok_or_else(|| missing(&format!("rope_scaling.{key}")));
        let or = |key, default: f64| Ok::<_, Error>(block.positive(key)?.unwrap_or(default));
        match kind.unwrap_or("default") {
            // Sections of `mrope` differ in pictures alone.
            "default" | "dynamic" | "mrope" => Ok(Self::None),
            "proportional" => Ok(Self::Proportional { factor: or("factor", 1.0)? }),
            "longrope" | "su" => Self::read_long(block, context, original),
            "linear" => Ok(Self::Linear { factor: required("factor")? }),
            "llama3" => {
                let (low, high) = (or("low_freq_factor", 1.0)?, or("high_freq_factor", 4.0)?);
                if low > high {
                    return Err(Error::config(format!(
                        "low_freq_factor is above high_freq_factor: {low} > {high}"
                    )));
                }
                Ok(Self::Llama3 {
                    factor: required("factor")?,
                    low_frequency_factor: low,
                    high_frequency_factor: high,
                    original_context: original.unwrap_or(8192.0),
                })
            }
            "yarn" => {
                let factor = required("factor")?;
                let attention_factor = match block.positive("attention_factor")? {
                    Some(given) => given,
                    None => {
                        magnitude(factor, or("mscale", 1.0)?)
                            / magnitude(factor, or_zero(block, "mscale_all_dim")?)
                    }
                };
                Ok(Self::Yarn {
                    factor,
                    original_context: original.unwrap_or(context as f64),
                    beta_fast: or("beta_fast", 32.0)?,
                    beta_slow: or("beta_slow", 1.0)?,
                    attention_factor,
                })
            }
            other => {
                let known = "default, linear, dynamic, llama3, yarn, longrope and proportional";
                Err(Error::unsupported(format!("rope scalings are {known}, got: {}", printable(other))))
            }
        }
    }

    fn read_long(block: Fields<'_>, context: usize, original: Option<f64>) -> Result<Self> {
        let key = "original_max_position_embeddings";
        let original = original.filter(|original| *original > 1.0).ok_or_else(|| missing(key))?;
        let stretch = context as f64 / original;
        let grown = if stretch <= 1.0 { 1.0 } else { (1.0 + stretch.ln() / original.ln()).sqrt() };
        let attention_factor = block.positive("attention_factor")?.unwrap_or(grown);
        Ok(Self::Divisors { divisors: divisors(block, "long_factor")?, attention_factor })
    }
}

/// Divisors of a list.
fn divisors(block: Fields<'_>, key: &str) -> Result<Vec<f32>> {
    let list = block.list(key)?.ok_or_else(|| missing(&format!("rope_scaling.{key}")))?;
    let number = |value: &serde_json::Value| value.as_f64().map(|number| number as f32);
    let numbers: Option<Vec<f32>> = list.iter().map(number).collect();
    numbers.ok_or_else(|| Error::config(format!("{key} must be a list of numbers")))
}

/// YaRN's growth of attention with the stretch.
fn magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

/// A number that may be 0, which is its default.
fn or_zero(block: Fields<'_>, key: &str) -> Result<f64> {
    match block.0.get(key).and_then(serde_json::Value::as_f64) {
        Some(0.0) => Ok(0.0),
        _ => Ok(block.positive(key)?.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: Scaling) -> RopeConfig {
        RopeConfig { base: 10_000.0, share: 1.0, interleaved: false, scaling }
    }

    fn close(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() <= 1e-7 * expected.abs(), "{got} is not {expected}");
        }
    }

    #[test]
    fn plain_and_linear_frequencies_are_a_geometric_series() {
        close(&rope(Scaling::None).frequencies(8).unwrap(), &[1.0, 0.1, 0.01, 0.001]);
        close(
            &rope(Scaling::Linear { factor: 4.0 }).frequencies(8).unwrap(),
            &[0.25, 0.025, 0.0025, 0.00025],
        );
        let divisors = rope(Scaling::Divisors { divisors: vec![1.0, 1.0, 2.0, 8.0], attention_factor: 1.0 });
        close(&divisors.frequencies(8).unwrap(), &[1.0, 0.1, 0.005, 0.000_125]);
        assert!(divisors.frequencies(16).is_err());
    }

    #[test]
    fn a_share_of_the_head_turns() {
        let half = RopeConfig { share: 0.5, ..rope(Scaling::None) };
        close(&half.frequencies(16).unwrap(), &[1.0, 0.1, 0.01, 0.001]);
        assert!(RopeConfig { share: 0.3, ..half.clone() }.frequencies(10).is_err());
        assert!(RopeConfig { share: 0.01, ..half.clone() }.frequencies(16).is_err());
        // Pairs of the whole head, the slower half of which stand still.
        let proportional = RopeConfig { scaling: Scaling::Proportional { factor: 2.0 }, ..half };
        close(&proportional.frequencies(8).unwrap(), &[0.5, 0.05, 0.0, 0.0]);
    }

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let scaling = Scaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 64.0,
        };
        // Turns over 64 positions: 10.19, 1.0186, 0.1019, 0.0102; the second is blended by (1.0186 - 1) / 3.
        let kept = (64.0 * 0.1 / (2.0 * PI) - 1.0) / 3.0;
        let blended = 0.1 * (kept + (1.0 - kept) / 8.0);
        close(&rope(scaling).frequencies(8).unwrap(), &[1.0, blended, 0.01 / 8.0, 0.001 / 8.0]);
    }

    #[test]
    fn yarn_ramps_between_its_two_dimensions() {
        let scaling = Scaling::Yarn {
            factor: 4.0,
            original_context: 64.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: magnitude(4.0, 1.0),
        };
        // Dimension of 32 turns: negative, so 0; of 1 turn: 8 ln(64 / 2 pi) / (2 ln 10000) = 1.008, up to 2.
        let config = rope(scaling);
        close(&config.frequencies(8).unwrap(), &[1.0, 0.1 * (0.5 + 0.125), 0.01 / 4.0, 0.001 / 4.0]);
        assert_eq!(config.scale(), (0.1 * 4f64.ln() + 1.0) as f32);
    }
}
