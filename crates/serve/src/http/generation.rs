//! Fields that every generating endpoint shares, and what they mean for one request to the engine.
//!
//! Invariants: a known field is honoured or refused, never ignored; a field that is absent or null takes the model's
//! default; a value out of range is refused by name, also where the field is not served.

use super::error::ApiError;
use crate::model::ServedModel;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    ops::RangeInclusive,
};
use tandem_contracts::{
    request::{Request, Scoring},
    sampling::Sampling,
    text::{TokenId, Vocabulary},
};

/// Most stop strings of a request.
const STOPS: usize = 16;

/// Sampling, lengths and stops.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Generation {
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    min_p: Option<f64>,
    seed: Option<Seed>,
    logit_bias: Option<BTreeMap<String, f64>>,
    stop: Option<Stops>,
    ignore_eos: Option<bool>,
    n: Option<u32>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    typical_p: Option<f64>,
    xtc_probability: Option<f64>,
    dry_multiplier: Option<f64>,
    guided_regex: Option<Value>,
    guided_grammar: Option<Value>,
    guided_choice: Option<Value>,
    adapter: Option<String>,
    kv_quant: Option<Value>,
}

/// A seed: any 64-bit integer, signed or not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a 64-bit integer")]
pub(crate) enum Seed {
    Unsigned(u64),
    Signed(i64),
}

/// One stop string or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum Stops {
    One(String),
    Several(Vec<String>),
}

impl Generation {
    /// Refuses what is out of range, and then what is not served.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let ranges: [(&str, Option<f64>, RangeInclusive<f64>); 9] = [
            ("temperature", self.temperature, 0.0..=2.0),
            ("top_p", self.top_p, 0.0..=1.0),
            ("min_p", self.min_p, 0.0..=1.0),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0),
            ("repetition_penalty", self.repetition_penalty, f64::MIN_POSITIVE..=f64::MAX),
            ("typical_p", self.typical_p, 0.0..=1.0),
            ("xtc_probability", self.xtc_probability, 0.0..=1.0),
            ("dry_multiplier", self.dry_multiplier, 0.0..=f64::MAX),
        ];
        for (field, value, range) in ranges {
            in_range(field, value, range)?;
        }
        in_range("n", self.n.map(f64::from), 1.0..=128.0)?;
        for (field, length) in
            [("max_completion_tokens", self.max_completion_tokens), ("max_tokens", self.max_tokens)]
        {
            if length == Some(0) {
                return Err(ApiError::field(field, format!("{field} must be at least 1")));
            }
        }
        self.refuse_unserved()
    }

    /// Values that mean "off" are honoured by doing nothing.
    fn refuse_unserved(&self) -> Result<(), ApiError> {
        let on = |value: Option<f64>, off: f64| value.is_some_and(|value| value != off);
        refuse(
            StatusCode::NOT_IMPLEMENTED,
            &[
                ("presence_penalty", on(self.presence_penalty, 0.0)),
                ("frequency_penalty", on(self.frequency_penalty, 0.0)),
                ("repetition_penalty", on(self.repetition_penalty, 1.0)),
                ("typical_p", on(self.typical_p, 1.0)),
                ("xtc_probability", on(self.xtc_probability, 0.0)),
                ("dry_multiplier", on(self.dry_multiplier, 0.0)),
                ("guided_regex", self.guided_regex.is_some()),
                ("guided_grammar", self.guided_grammar.is_some()),
                ("guided_choice", self.guided_choice.is_some()),
                ("adapter", self.adapter.as_deref().is_some_and(|adapter| adapter != "none")),
                ("kv_quant", self.kv_quant.is_some()),
            ],
        )
    }

    /// Choices of each prompt.
    pub(crate) fn choices(&self) -> usize {
        self.n.map_or(1, |n| n as usize)
    }

    /// The engine's requests: for each prompt as many as there are choices, with seeds of their own. Each is made
    /// when it is asked for, so that a refusal of the first spares the copies. [`Self::check`] comes first.
    pub(crate) fn requests<'a>(
        &'a self,
        model: &'a ServedModel,
        prompts: &'a [Vec<TokenId>],
    ) -> Result<impl Iterator<Item = Request> + 'a, ApiError> {
        let (sampling, stops) = (self.sampling(model)?, self.stops()?);
        let choices = self.choices();
        let rows =
            prompts.iter().flat_map(move |prompt| (0..choices as u64).map(move |choice| (prompt, choice)));
        Ok(rows.map(move |(prompt, choice)| Request {
            prompt: prompt.clone(),
            max_tokens: self.length(model, prompt.len()),
            sampling: Sampling { seed: sampling.seed.wrapping_add(choice), ..sampling.clone() },
            state: None,
            scoring: Scoring::default(),
            end_tokens: model.text.tokenizer.end_tokens().to_vec(),
            ignore_end: self.ignore_eos.unwrap_or(false),
            text: model.text.answer(&stops),
        }))
    }

    /// How many tokens may follow a prompt: what was asked for within the context, or as many as could ever be cached.
    fn length(&self, model: &ServedModel, prompt: usize) -> usize {
        let room = |tokens: Option<usize>| tokens.unwrap_or(usize::MAX).saturating_sub(prompt).max(1);
        let bound = model.defaults.max_tokens.unwrap_or(usize::MAX);
        match self.max_completion_tokens.or(self.max_tokens) {
            Some(asked) => {
                let context = model.engine.capabilities().map(|facts| facts.context);
                bound.min(room(context)).min(usize::try_from(asked).unwrap_or(usize::MAX))
            }
            None => bound.min(room(model.engine.longest())),
        }
    }

    fn sampling(&self, model: &ServedModel) -> Result<Sampling, ApiError> {
        let defaults = &model.defaults;
        let or = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
        let sampling = Sampling {
            temperature: or(self.temperature, defaults.temperature),
            // Of a nucleus of nothing the most likely token is left, as of the smallest one.
            top_p: or(self.top_p, defaults.top_p).max(f32::MIN_POSITIVE),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            min_p: or(self.min_p, defaults.min_p),
            seed: match self.seed {
                Some(Seed::Unsigned(seed)) => seed,
                Some(Seed::Signed(seed)) => seed.cast_unsigned(),
                // Each state of the standard library's hasher has fresh keys.
                None => RandomState::new().hash_one(0),
            },
            logit_bias: self.logit_bias(model.text.tokenizer.len())?,
            ..Sampling::default()
        };
        sampling.validate().map_err(|error| ApiError::field(error.field, error.to_string()))?;
        Ok(sampling)
    }

    fn logit_bias(&self, vocabulary: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let bias = self.logit_bias.iter().flatten().map(|(token, bias)| match token.parse::<TokenId>() {
            Ok(id) if (id as usize) < vocabulary => Ok((id, *bias as f32)),
            _ => {
                let message =
                    format!("logit_bias: keys must be token ids below {vocabulary}, got: {token:?}");
                Err(ApiError::field("logit_bias", message))
            }
        });
        bias.collect()
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop.clone()],
            Some(Stops::Several(stops)) => stops.clone(),
        };
        if stops.len() > STOPS {
            return Err(ApiError::field(
                "stop",
                format!("stop: at most {STOPS} strings, got: {}", stops.len()),
            ));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::field("stop", "stop: a stop string must not be empty"));
        }
        Ok(stops)
    }
}

/// Refuses a number outside its range.
pub(crate) fn in_range(field: &str, value: Option<f64>, range: RangeInclusive<f64>) -> Result<(), ApiError> {
    let Some(value) = value.filter(|value| !range.contains(value)) else { return Ok(()) };
    let (low, high) = (range.start(), range.end());
    let expected = match (*low, *high) {
        (f64::MIN_POSITIVE, f64::MAX) => "above 0".to_owned(),
        (low, f64::MAX) => format!("at least {low}"),
        (low, high) => format!("from {low} to {high}"),
    };
    Err(ApiError::field(field, format!("{field} must be {expected}, got: {value}")))
}

/// Refuses the first field that is asked for and not served.
pub(crate) fn refuse(status: StatusCode, unserved: &[(&'static str, bool)]) -> Result<(), ApiError> {
    match unserved.iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((field, _)) => Err(ApiError::unsupported(status, field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str) -> Option<(u16, Option<String>)> {
        let generation: Generation = serde_json::from_str(body).expect(body);
        generation.check().err().map(|error| (error.status.as_u16(), error.param))
    }

    #[test]
    fn values_out_of_range_are_400_by_name_also_where_the_field_is_not_served() {
        for (field, value) in [
            ("temperature", "2.5"),
            ("temperature", "-0.1"),
            ("top_p", "1.5"),
            ("min_p", "-1"),
            ("presence_penalty", "9"),
            ("frequency_penalty", "-9"),
            ("repetition_penalty", "0"),
            ("n", "0"),
            ("n", "129"),
            ("max_tokens", "0"),
            ("max_completion_tokens", "0"),
        ] {
            let refused = check(&format!("{{\"{field}\": {value}}}"));
            assert_eq!(refused, Some((400, Some(field.to_owned()))), "{field} {value}");
        }
    }

    #[test]
    fn what_is_not_served_is_refused_and_off_is_honoured() {
        for (body, status) in [
            (r#"{"presence_penalty": 0.5}"#, Some(501)),
            (r#"{"frequency_penalty": -1}"#, Some(501)),
            (r#"{"repetition_penalty": 1.1}"#, Some(501)),
            (r#"{"typical_p": 0.9}"#, Some(501)),
            (r#"{"xtc_probability": 0.1}"#, Some(501)),
            (r#"{"dry_multiplier": 0.8}"#, Some(501)),
            (r#"{"guided_regex": "a+"}"#, Some(501)),
            (r#"{"guided_choice": ["a"]}"#, Some(501)),
            (r#"{"adapter": "a+b"}"#, Some(501)),
            (r#"{"kv_quant": 8}"#, Some(501)),
            (
                r#"{"n": 2, "presence_penalty": 0, "repetition_penalty": 1, "typical_p": 1, "adapter": "none"}"#,
                None,
            ),
            (r#"{"n": null, "guided_regex": null, "stop": null, "logit_bias": null, "seed": null}"#, None),
            (r#"{"unknown": [1], "user": "u", "metadata": {}, "session_id": "s"}"#, None),
        ] {
            assert_eq!(check(body).map(|(status, _)| status), status, "{body}");
        }
    }
}
