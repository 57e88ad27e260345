//! Fields that every generating endpoint shares, and what they mean for one request to the engine.

use super::error::ApiError;
use crate::model::ServedModel;
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};
use tandem_contracts::{
    request::Request,
    sampling::Sampling,
    text::{TokenId, Vocabulary},
};

/// Most stop strings of a request.
const STOPS: usize = 16;

/// Sampling, lengths and stops. Flattened into the bodies of endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Generation {
    pub(crate) max_tokens: Option<u32>,
    pub(crate) max_completion_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<u32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) seed: Option<Seed>,
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    pub(crate) stop: Option<Stops>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) n: Option<u32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) xtc_probability: Option<f32>,
    pub(crate) dry_multiplier: Option<f32>,
    pub(crate) guided_regex: Option<Value>,
    pub(crate) guided_grammar: Option<Value>,
    pub(crate) guided_choice: Option<Value>,
    pub(crate) adapter: Option<String>,
    pub(crate) kv_quant: Option<Value>,
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
    /// The engine's request for `prompt`.
    pub(crate) fn request(&self, model: &ServedModel, prompt: Vec<TokenId>) -> Result<Request, ApiError> {
        self.refuse_unserved()?;
        let context = model.engine.capabilities().map_or(usize::MAX, |facts| facts.context);
        let room = context.saturating_sub(prompt.len()).max(1);
        let bound = model.defaults.max_tokens.unwrap_or(usize::MAX).min(room);
        let asked = self.max_completion_tokens.or(self.max_tokens);
        if asked == Some(0) {
            let field =
                if self.max_completion_tokens.is_some() { "max_completion_tokens" } else { "max_tokens" };
            return Err(ApiError::field(field, format!("{field} must be at least 1")));
        }
        Ok(Request {
            prompt,
            max_tokens: asked.map_or(bound, |asked| bound.min(asked as usize)),
            sampling: self.sampling(model)?,
            end_tokens: model.text.tokenizer.end_tokens().to_vec(),
            ignore_end: self.ignore_eos.unwrap_or(false),
            text: model.text.answer(&self.stops()?),
        })
    }

    fn sampling(&self, model: &ServedModel) -> Result<Sampling, ApiError> {
        let defaults = &model.defaults;
        let bias = self.logit_bias.iter().flatten().map(|(token, bias)| match token.parse() {
            Ok(token) => Ok((token, *bias)),
            Err(_) => Err(ApiError::field("logit_bias", format!("keys must be token ids, got: {token:?}"))),
        });
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            seed: match self.seed {
                Some(Seed::Unsigned(seed)) => seed,
                Some(Seed::Signed(seed)) => seed.cast_unsigned(),
                // Each state of the standard library's hasher has fresh keys.
                None => RandomState::new().hash_one(0),
            },
            logit_bias: bias.collect::<Result<_, _>>()?,
        };
        sampling.validate().map_err(|error| ApiError::field(error.field, error.to_string()))?;
        Ok(sampling)
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
                format!("at most {STOPS} stop strings, got: {}", stops.len()),
            ));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::field("stop", "a stop string must not be empty"));
        }
        Ok(stops)
    }

    /// Known fields are honoured or refused, never ignored. Values that mean "off" are honoured.
    fn refuse_unserved(&self) -> Result<(), ApiError> {
        if self.n == Some(0) {
            return Err(ApiError::field("n", "n must be at least 1"));
        }
        let on = |value: Option<f32>, off: f32| value.is_some_and(|value| value != off);
        let unserved = [
            ("n", self.n.is_some_and(|n| n > 1)),
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
        ];
        refuse(&unserved)
    }
}

/// Refuses the first field that is asked for and not served.
pub(crate) fn refuse(unserved: &[(&'static str, bool)]) -> Result<(), ApiError> {
    match unserved.iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((field, _)) => {
            Err(ApiError::unsupported(field, format!("this server does not support: {field}")))
        }
    }
}
