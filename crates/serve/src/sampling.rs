//! What clients say of sampling, over what holds where they say nothing.
//!
//! Names are those of the wire; a command line has the same.

use crate::text::{Tokenizer, breakers};
use serde::Deserialize;
use tandem_contracts::{
    sampling::{Breakers, Sampling, SamplingError},
    text::Vocabulary,
};
use utoipa::ToSchema;

/// Strings at which repetitions end where nothing else is said.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// What was said; what is absent stays as it was.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Settings {
    /// As [`Sampling::temperature`].
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// As [`Sampling::top_p`]; 0 leaves the most likely token.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// As [`Sampling::min_p`].
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f64>,
    /// As [`Sampling::typical_p`]; 0 leaves the most typical token.
    #[schema(minimum = 0, maximum = 1)]
    pub typical_p: Option<f64>,
    /// As [`Sampling::top_k`].
    pub top_k: Option<u32>,
    /// As [`tandem_contracts::sampling::Xtc::probability`].
    #[schema(minimum = 0, maximum = 1)]
    pub xtc_probability: Option<f64>,
    /// As [`tandem_contracts::sampling::Xtc::threshold`].
    #[schema(minimum = 0, maximum = 0.5)]
    pub xtc_threshold: Option<f64>,
    /// Amount of [`Sampling::repetition`].
    #[schema(minimum = 0.01, maximum = 100)]
    pub repetition_penalty: Option<f64>,
    /// Its context: 0 is everything.
    pub repetition_context_size: Option<u32>,
    /// Amount of [`Sampling::presence`].
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f64>,
    /// Its context: 0 is everything.
    pub presence_context_size: Option<u32>,
    /// Amount of [`Sampling::frequency`].
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f64>,
    /// Its context: 0 is everything.
    pub frequency_context_size: Option<u32>,
    /// As [`tandem_contracts::sampling::Dry::multiplier`].
    #[schema(minimum = 0, maximum = 100)]
    pub dry_multiplier: Option<f64>,
    /// As [`tandem_contracts::sampling::Dry::base`].
    #[schema(minimum = 1, maximum = 100)]
    pub dry_base: Option<f64>,
    /// As [`tandem_contracts::sampling::Dry::allowed_length`].
    #[schema(minimum = 1)]
    pub dry_allowed_length: Option<u32>,
    /// How many tokens back repetitions are looked for; -1 is everything, 0 is off.
    #[schema(minimum = -1, maximum = 4294967295u64)]
    pub dry_penalty_last_n: Option<i64>,
    /// Strings that no repetition reaches over.
    pub dry_sequence_breakers: Option<Vec<String>>,
}

impl Settings {
    /// These settings over others, for a model with this tokeniser.
    ///
    /// # Errors
    /// The first value that is out of range, by its name.
    pub fn over(&self, defaults: &Sampling, tokenizer: &Tokenizer) -> Result<Sampling, SamplingError> {
        let mut all = defaults.clone();
        set(&mut all.temperature, self.temperature);
        set(&mut all.min_p, self.min_p);
        for (value, said) in [(&mut all.top_p, self.top_p), (&mut all.typical_p, self.typical_p)] {
            set(value, said);
            if *value == 0.0 {
                *value = f32::MIN_POSITIVE;
            }
        }
        set(&mut all.xtc.probability, self.xtc_probability);
        set(&mut all.xtc.threshold, self.xtc_threshold);
        all.top_k = self.top_k.unwrap_or(all.top_k);
        for (penalty, amount, context) in [
            (&mut all.repetition, self.repetition_penalty, self.repetition_context_size),
            (&mut all.presence, self.presence_penalty, self.presence_context_size),
            (&mut all.frequency, self.frequency_penalty, self.frequency_context_size),
        ] {
            set(&mut penalty.amount, amount);
            penalty.context = context.unwrap_or(penalty.context);
        }
        self.set_dry(&mut all)?;
        all.validate()?;
        if all.xtc.probability > 0.0 && all.xtc.spared.is_empty() {
            let lines = tokenizer.encode("\n");
            all.xtc.spared = tokenizer.end_tokens().iter().copied().chain(lines).collect();
        }
        if all.dry.multiplier > 0.0 {
            all.dry.breakers = self.breakers(defaults, tokenizer);
        }
        Ok(all)
    }

    fn set_dry(&self, all: &mut Sampling) -> Result<(), SamplingError> {
        let dry = &mut all.dry;
        set(&mut dry.multiplier, self.dry_multiplier);
        set(&mut dry.base, self.dry_base);
        dry.allowed_length = self.dry_allowed_length.unwrap_or(dry.allowed_length);
        match self.dry_penalty_last_n {
            None => {}
            Some(-1) => dry.context = 0,
            Some(0) => dry.multiplier = 0.0,
            Some(count) => {
                dry.context = u32::try_from(count).map_err(|_| SamplingError {
                    field: "dry_penalty_last_n",
                    expected: "a number of tokens, 0 or -1",
                    value: count as f64,
                })?;
            }
        }
        Ok(())
    }

    fn breakers(&self, defaults: &Sampling, tokenizer: &Tokenizer) -> Breakers {
        match &self.dry_sequence_breakers {
            Some(strings) => breakers(tokenizer, strings),
            None if defaults.dry.multiplier > 0.0 => defaults.dry.breakers.clone(),
            None => breakers(tokenizer, &BREAKERS),
        }
    }
}

fn set(value: &mut f32, said: Option<f64>) {
    if let Some(said) = said {
        *value = said as f32;
    }
}

/// What a `generation_config.json` says; fields that are absent, of another type or out of range say nothing. A file
/// that says `do_sample: false` is greedy.
pub(crate) fn of_generation_config(bytes: &[u8]) -> Sampling {
    let mut all = Sampling::default();
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(bytes) else { return all };
    let mut take = |key: &str, place: fn(&mut Sampling) -> &mut f32| {
        let mut with = all.clone();
        set(place(&mut with), config[key].as_f64());
        if with.validate().is_ok() {
            all = with;
        }
    };
    take("temperature", |all| &mut all.temperature);
    take("top_p", |all| &mut all.top_p);
    take("min_p", |all| &mut all.min_p);
    take("typical_p", |all| &mut all.typical_p);
    take("repetition_penalty", |all| &mut all.repetition.amount);
    if config["do_sample"].as_bool() == Some(false) {
        all.temperature = 0.0;
    }
    if let Some(top_k) = config["top_k"].as_u64().and_then(|top_k| u32::try_from(top_k).ok()) {
        all.top_k = top_k;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::sampling::{Dry, Penalty};

    fn over(said: &str, defaults: &Sampling) -> Result<Sampling, SamplingError> {
        let settings: Settings = serde_json::from_str(said).expect(said);
        settings.over(defaults, &Tokenizer::bytes().expect("a tokeniser"))
    }

    #[test]
    fn what_is_said_wins_and_the_rest_stays() {
        let plain = Sampling::default();
        assert_eq!(over("{}", &plain), Ok(plain.clone()));
        let defaults = Sampling { temperature: 0.5, top_k: 7, ..plain };
        let all = over(r#"{"top_k": 9, "presence_penalty": 0.5, "repetition_context_size": 0}"#, &defaults);
        let want = Sampling {
            top_k: 9,
            presence: Penalty { amount: 0.5, ..defaults.presence },
            repetition: Penalty { context: 0, ..defaults.repetition },
            ..defaults.clone()
        };
        assert_eq!(all, Ok(want));
        assert_eq!(over(r#"{"top_p": 0}"#, &defaults).map(|all| all.top_p), Ok(f32::MIN_POSITIVE));
        let refused = |said| over(said, &defaults).map_err(|error| error.field).err();
        assert_eq!(refused(r#"{"repetition_penalty": 0}"#), Some("repetition_penalty"));
        assert_eq!(refused(r#"{"dry_penalty_last_n": -2}"#), Some("dry_penalty_last_n"));
    }

    #[test]
    fn what_needs_tokens_gets_them_where_it_is_on() {
        let plain = Sampling::default();
        let off =
            over(r#"{"dry_sequence_breakers": ["x"], "xtc_threshold": 0.2}"#, &plain).expect("settings");
        assert_eq!((&off.dry, &off.xtc.spared[..]), (&Dry::default(), &[][..]));
        let on = over(r#"{"dry_multiplier": 0.8, "xtc_probability": 0.5}"#, &plain).expect("settings");
        // The end token and a line's end of a tokeniser of bytes.
        assert_eq!(on.xtc.spared[..], [256, 10]);
        assert!(b"\n:\"*".iter().all(|&byte| on.dry.breakers.end(&[byte.into()])));
        assert!(!on.dry.breakers.end(&[b'x'.into()]));
        let own = over(r#"{"dry_sequence_breakers": ["x"]}"#, &on).expect("settings");
        assert!(own.dry.breakers.end(&[b'x'.into()]) && !own.dry.breakers.end(&[10]));
        assert_eq!(over("{}", &own), Ok(own.clone()));
        assert_eq!(over(r#"{"dry_penalty_last_n": 0}"#, &own).map(|all| all.dry.multiplier), Ok(0.0));
        assert_eq!(over(r#"{"dry_penalty_last_n": 64}"#, &own).map(|all| all.dry.context), Ok(64));
    }

    #[test]
    fn generation_settings_win_over_openai_defaults() {
        let file = br#"{"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": "x", "eos_token_id": [1, 2],
            "repetition_penalty": 1.05, "typical_p": 7}"#;
        let all = of_generation_config(file);
        assert_eq!((all.temperature, all.top_p, all.top_k, all.min_p), (0.6, 0.95, 20, 0.0));
        assert_eq!((all.repetition, all.typical_p), (Penalty { amount: 1.05, context: 20 }, 1.0));
        assert_eq!(of_generation_config(b"{\"do_sample\": false}").temperature, 0.0);
        assert_eq!(of_generation_config(b"not json"), Sampling::default());
    }
}
