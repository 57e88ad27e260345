//! How one row chooses its next token. Plain values, validated once where a request enters.
//!
//! Invariant: with equal parameters, seed, history and logits a row samples the same token, whatever else runs.

use crate::text::TokenId;
use std::{collections::HashMap, sync::Arc};

/// Tokens of its own history that a penalty looks at where nothing else is said.
const CONTEXT: u32 = 20;

/// Sampling parameters of one request. [`Default`] is plain sampling at temperature 1 with everything else off.
///
/// They apply in this order: `logit_bias`, `repetition`, `presence`, `frequency`, `dry`; then, to the probabilities
/// that the logits give, `top_p`, `min_p`, `typical_p`, `xtc`, `top_k`, and last `temperature`. A row's history is
/// its own prompt and answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy (the smallest id among equal maxima), and then no filter applies.
    pub temperature: f32,
    /// Keeps the smallest set of most likely tokens whose probability reaches this; 1 is off.
    pub top_p: f32,
    /// Drops tokens less likely than this fraction of the most likely one; 0 is off.
    pub min_p: f32,
    /// Keeps the smallest set of most typical tokens whose probability reaches this; 1 is off. (Meister, Pimentel,
    /// Wiher, Cotterell, "Locally typical sampling", TACL 2023.)
    pub typical_p: f32,
    /// Leaves likely tokens out now and then.
    pub xtc: Xtc,
    /// Keeps this many most likely tokens; 0 is off.
    pub top_k: u32,
    /// Added to the logits of single tokens before anything else.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Divides the positive logits of tokens of the history, and multiplies the negative ones; 1 is off. (Keskar and
    /// others, "CTRL", 2019.)
    pub repetition: Penalty,
    /// Subtracted once from the logits of tokens of the history; 0 is off.
    pub presence: Penalty,
    /// Subtracted from the logits of tokens of the history, as often as they stand there; 0 is off.
    pub frequency: Penalty,
    /// Penalises tokens that would go on with what was said before.
    pub dry: Dry,
    /// Seed of the counter-based generator; the same seed gives the same tokens.
    pub seed: u64,
}

/// A penalty on the tokens of a row's history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    /// How much.
    pub amount: f32,
    /// How many tokens back it looks; 0 is all of them.
    pub context: u32,
}

/// "Exclude top choices": with a probability, of all tokens above a threshold only the least likely stays.
/// (<https://github.com/oobabooga/text-generation-webui/pull/6335>.)
#[derive(Clone, Debug, PartialEq)]
pub struct Xtc {
    /// How often; 0 is off.
    pub probability: f32,
    /// Probability from which on a token is a top choice.
    pub threshold: f32,
    /// Tokens that are never left out: ends of answers and of lines.
    pub spared: Arc<[TokenId]>,
}

/// "Don't repeat yourself": a token that would lengthen a repetition of the last `n` tokens loses
/// `multiplier * base^(n - allowed_length)`, where `n` is at least `allowed_length`.
/// (<https://github.com/oobabooga/text-generation-webui/pull/5677>.)
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The penalty of the shortest repetition that has one; 0 is off.
    pub multiplier: f32,
    /// By how much each further token raises it.
    pub base: f32,
    /// Longest repetition that costs nothing, with the token that it would come to; at least 1.
    pub allowed_length: u32,
    /// How many tokens back repetitions are looked for; 0 is all of them.
    pub context: u32,
    /// Sequences that no repetition reaches over.
    pub breakers: Breakers,
}

/// Token sequences at which repetitions end. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakers {
    /// What stands before it in each sequence, by the last token.
    by_last: Arc<HashMap<TokenId, Vec<Vec<TokenId>>>>,
}

impl Breakers {
    /// These sequences; empty ones break nothing.
    pub fn new(sequences: impl IntoIterator<Item = Vec<TokenId>>) -> Self {
        let mut by_last: HashMap<TokenId, Vec<Vec<TokenId>>> = HashMap::new();
        for mut sequence in sequences {
            if let Some(last) = sequence.pop() {
                by_last.entry(last).or_default().push(sequence);
            }
        }
        Self { by_last: Arc::new(by_last) }
    }

    /// Whether one of the sequences stands at the end of `tokens`.
    pub fn end(&self, tokens: &[TokenId]) -> bool {
        let Some((last, before)) = tokens.split_last() else { return false };
        self.by_last.get(last).is_some_and(|heads| heads.iter().any(|head| before.ends_with(head)))
    }
}

impl Default for Sampling {
    fn default() -> Self {
        let off = |amount| Penalty { amount, context: CONTEXT };
        Self {
            temperature: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            xtc: Xtc::default(),
            top_k: 0,
            logit_bias: Vec::new(),
            repetition: off(1.0),
            presence: off(0.0),
            frequency: off(0.0),
            dry: Dry::default(),
            seed: 0,
        }
    }
}

impl Default for Xtc {
    fn default() -> Self {
        Self { probability: 0.0, threshold: 0.1, spared: Arc::default() }
    }
}

impl Default for Dry {
    fn default() -> Self {
        Self { multiplier: 0.0, base: 1.75, allowed_length: 2, context: 0, breakers: Breakers::default() }
    }
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {expected}, got: {value}")]
pub struct SamplingError {
    /// Name of the field as clients write it.
    pub field: &'static str,
    /// What would be accepted.
    pub expected: &'static str,
    /// What was given.
    pub value: f64,
}

impl Sampling {
    /// Greedy decoding: the most likely token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether no random number is drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether logits are changed before a token is chosen by them.
    pub fn changes_logits(&self) -> bool {
        !self.logit_bias.is_empty()
            || self.repetition.amount != 1.0
            || self.presence.amount != 0.0
            || self.frequency.amount != 0.0
            || self.dry.multiplier != 0.0
    }

    /// Checks every range; NaN is outside all of them. Penalties are bounded so that finite logits stay finite.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let check = |field, value: f32, low: f32, high: f32, expected| {
            if value >= low && value <= high {
                Ok(())
            } else {
                Err(SamplingError { field, expected, value: f64::from(value) })
            }
        };
        let Self { xtc, dry, .. } = self;
        let share = "a number above 0 and at most 1";
        let fraction = "a number from 0 to 1";
        let percent = "a number from -100 to 100";
        check("temperature", self.temperature, 0.0, 100.0, "a number from 0 to 100")?;
        check("top_p", self.top_p, f32::MIN_POSITIVE, 1.0, share)?;
        check("min_p", self.min_p, 0.0, 1.0, fraction)?;
        check("typical_p", self.typical_p, f32::MIN_POSITIVE, 1.0, share)?;
        check("xtc_probability", xtc.probability, 0.0, 1.0, fraction)?;
        check("xtc_threshold", xtc.threshold, 0.0, 0.5, "a number from 0 to 0.5")?;
        check(
            "repetition_penalty",
            self.repetition.amount,
            0.01,
            100.0,
            "a number from 0.01 to 100, 1 is off",
        )?;
        check("presence_penalty", self.presence.amount, -100.0, 100.0, percent)?;
        check("frequency_penalty", self.frequency.amount, -100.0, 100.0, percent)?;
        check("dry_multiplier", dry.multiplier, 0.0, 100.0, "a number from 0 to 100")?;
        check("dry_base", dry.base, 1.0, 100.0, "a number from 1 to 100")?;
        if dry.allowed_length == 0 {
            return Err(SamplingError { field: "dry_allowed_length", expected: "at least 1", value: 0.0 });
        }
        self.logit_bias.iter().try_for_each(|&(_, bias)| check("logit_bias", bias, -100.0, 100.0, percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_and_nan_is_in_none() {
        let plain = Sampling::default();
        assert_eq!(plain.validate(), Ok(()));
        assert_eq!(Sampling::greedy().validate(), Ok(()));
        let penalty = |amount| Penalty { amount, context: 0 };
        let xtc = |probability, threshold| Xtc { probability, threshold, ..Xtc::default() };
        let dry =
            |multiplier, base, allowed_length| Dry { multiplier, base, allowed_length, ..Dry::default() };
        for (field, bad) in [
            ("temperature", Sampling { temperature: -0.1, ..plain.clone() }),
            ("temperature", Sampling { temperature: f32::NAN, ..plain.clone() }),
            ("top_p", Sampling { top_p: 0.0, ..plain.clone() }),
            ("top_p", Sampling { top_p: 1.5, ..plain.clone() }),
            ("min_p", Sampling { min_p: f32::INFINITY, ..plain.clone() }),
            ("typical_p", Sampling { typical_p: 0.0, ..plain.clone() }),
            ("typical_p", Sampling { typical_p: 1.1, ..plain.clone() }),
            ("xtc_probability", Sampling { xtc: xtc(1.1, 0.1), ..plain.clone() }),
            ("xtc_threshold", Sampling { xtc: xtc(0.5, 0.6), ..plain.clone() }),
            ("repetition_penalty", Sampling { repetition: penalty(0.0), ..plain.clone() }),
            ("repetition_penalty", Sampling { repetition: penalty(f32::INFINITY), ..plain.clone() }),
            ("presence_penalty", Sampling { presence: penalty(101.0), ..plain.clone() }),
            ("frequency_penalty", Sampling { frequency: penalty(f32::NAN), ..plain.clone() }),
            ("dry_multiplier", Sampling { dry: dry(-1.0, 1.75, 2), ..plain.clone() }),
            ("dry_base", Sampling { dry: dry(1.0, 0.9, 2), ..plain.clone() }),
            ("dry_allowed_length", Sampling { dry: dry(1.0, 1.75, 0), ..plain.clone() }),
            ("logit_bias", Sampling { logit_bias: vec![(3, 101.0)], ..plain.clone() }),
        ] {
            assert_eq!(bad.validate().map_err(|e| e.field), Err(field));
        }
    }

    #[test]
    fn only_what_changes_logits_says_so() {
        let plain = Sampling::default();
        let typical = Sampling { typical_p: 0.5, top_k: 3, ..plain.clone() };
        assert!(!plain.changes_logits() && !typical.changes_logits());
        let penalty = |amount| Penalty { amount, context: 0 };
        for changing in [
            Sampling { logit_bias: vec![(1, 0.5)], ..plain.clone() },
            Sampling { repetition: penalty(1.1), ..plain.clone() },
            Sampling { presence: penalty(-1.0), ..plain.clone() },
            Sampling { frequency: penalty(0.1), ..plain.clone() },
            Sampling { dry: Dry { multiplier: 0.8, ..Dry::default() }, ..plain },
        ] {
            assert!(changing.changes_logits(), "{changing:?}");
        }
    }

    #[test]
    fn breakers_are_whole_sequences() {
        let breakers = Breakers::new([vec![5], vec![1, 2, 3], vec![9, 3], vec![]]);
        for (tokens, ends) in [
            (&[5][..], true),
            (&[7, 5], true),
            (&[1, 2, 3], true),
            (&[2, 3], false),
            (&[9, 3], true),
            (&[5, 1], false),
            (&[], false),
        ] {
            assert_eq!(breakers.end(tokens), ends, "{tokens:?}");
        }
    }
}
