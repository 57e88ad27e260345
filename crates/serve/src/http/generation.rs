//! Fields that every generating endpoint shares, and what they mean for one request to the engine.
//!
//! Invariants: a known field is honoured or refused, never ignored; a field that is absent or null takes the model's
//! default; a value out of range is refused by name, also where the field is not served.

use super::{
    body::typed,
    error::ApiError,
    fill,
    structure::{Asked, Guided},
};
use crate::{model::ServedModel, sampling::Settings, text::Shown};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    ops::RangeInclusive,
};
use tandem_contracts::{
    fill::Fill,
    model::StatePolicy,
    request::{Request, Scoring},
    sampling::{Sampling, SamplingError},
    text::{TokenId, Vocabulary},
};
use tandem_spec::grammar::Compiled;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::AllOfBuilder},
};

/// Most stop strings of a request, and most sequence breakers.
const STOPS: usize = 16;
/// Bytes of one.
const STOP_BYTES: usize = 4 << 10;

/// Most bytes of a sequence breaker.
const BREAKER: usize = 64;

/// Lengths, stops, and how tokens are chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generation {
    fields: Fields,
    sampling: Settings,
    guided: Guided,
}

#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
struct Fields {
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u64>,
    seed: Option<Seed>,
    logit_bias: Option<BTreeMap<String, f64>>,
    stop: Option<Stops>,
    ignore_eos: Option<bool>,
    #[schema(minimum = 1, maximum = 128)]
    n: Option<u32>,
    /// `none`: adapters are not mounted.
    #[schema(pattern = "^none$")]
    adapter: Option<String>,
    kv_quant: Option<KvQuant>,
    // What clients tell for their own books changes no answer, but has to be of its type.
    #[serde(rename = "user")]
    _user: Option<String>,
    #[serde(rename = "session_id")]
    _session_id: Option<String>,
    #[serde(rename = "metadata")]
    _metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What an endpoint wants of its answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) scoring: Scoring,
    /// Special tokens that show in the text.
    pub(crate) shown: Shown,
    /// What binds the text to a form.
    pub(crate) form: Option<Asked>,
    /// What the request determines of it.
    pub(crate) fill: Option<Fill>,
}

/// A seed: any 64-bit integer, signed or not.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a 64-bit integer")]
pub(crate) enum Seed {
    Unsigned(u64),
    Signed(i64),
}

/// A way to keep keys and values, by its name or by its bits.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a number of bits")]
pub(crate) enum KvQuant {
    Name(String),
    Bits(u8),
}

/// One stop string or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum Stops {
    One(String),
    Several(Vec<String>),
}

impl PartialSchema for Generation {
    fn schema() -> RefOr<Schema> {
        let all = AllOfBuilder::new().item(Fields::schema()).item(Settings::schema());
        all.item(Guided::schema()).into()
    }
}

impl ToSchema for Generation {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Fields::schemas(schemas);
        Settings::schemas(schemas);
        Guided::schemas(schemas);
    }
}

impl Generation {
    /// Reads the fields; each structure for itself, so that errors name them.
    pub(crate) fn read(json: &Value) -> Result<Self, ApiError> {
        Ok(Self { fields: typed(json)?, sampling: typed(json)?, guided: typed(json)? })
    }

    /// Refuses what is out of range, and then what is not served. `least` is the least length of an answer.
    pub(crate) fn check(&self, least: u64) -> Result<(), ApiError> {
        let Self { fields, sampling, .. } = self;
        let ranges: [(&str, Option<f64>, RangeInclusive<f64>); 13] = [
            ("temperature", sampling.temperature, 0.0..=2.0),
            ("top_p", sampling.top_p, 0.0..=1.0),
            ("min_p", sampling.min_p, 0.0..=1.0),
            ("typical_p", sampling.typical_p, 0.0..=1.0),
            ("xtc_probability", sampling.xtc_probability, 0.0..=1.0),
            ("xtc_threshold", sampling.xtc_threshold, 0.0..=0.5),
            ("presence_penalty", sampling.presence_penalty, -2.0..=2.0),
            ("frequency_penalty", sampling.frequency_penalty, -2.0..=2.0),
            ("repetition_penalty", sampling.repetition_penalty, 0.01..=100.0),
            ("dry_multiplier", sampling.dry_multiplier, 0.0..=100.0),
            ("dry_base", sampling.dry_base, 1.0..=100.0),
            ("dry_allowed_length", sampling.dry_allowed_length.map(f64::from), 1.0..=f64::MAX),
            ("n", fields.n.map(f64::from), 1.0..=128.0),
        ];
        for (field, value, range) in ranges {
            in_range(field, value, range)?;
        }
        self.check_breakers()?;
        for (field, length) in
            [("max_completion_tokens", fields.max_completion_tokens), ("max_tokens", fields.max_tokens)]
        {
            if length.is_some_and(|length| length < least) {
                return Err(ApiError::field(field, format!("{field} must be at least {least}")));
            }
        }
        refuse(
            StatusCode::NOT_IMPLEMENTED,
            &[("adapter", fields.adapter.as_deref().is_some_and(|adapter| adapter != "none"))],
        )
    }

    /// Refuses sequence breakers that are too many or too long.
    pub(crate) fn check_breakers(&self) -> Result<(), ApiError> {
        let field = "dry_sequence_breakers";
        let breakers = self.sampling.dry_sequence_breakers.as_deref().unwrap_or_default();
        if breakers.len() > STOPS {
            let message = format!("{field}: at most {STOPS} strings, got: {}", breakers.len());
            return Err(ApiError::field(field, message));
        }
        match breakers.iter().find(|breaker| !(1..=BREAKER).contains(&breaker.len())) {
            Some(breaker) => {
                let message = format!("{field}: a string has 1 to {BREAKER} bytes, got: {}", breaker.len());
                Err(ApiError::field(field, message))
            }
            None => Ok(()),
        }
    }

    /// Bounds answers by an endpoint's own field, if it is given.
    pub(crate) fn bound(&mut self, tokens: Option<u64>) {
        self.fields.max_completion_tokens = tokens.or(self.fields.max_completion_tokens);
    }

    /// Whether no token is asked for.
    pub(crate) fn asks_for_nothing(&self) -> bool {
        self.fields.max_completion_tokens.or(self.fields.max_tokens) == Some(0)
    }

    /// Choices of each prompt.
    pub(crate) fn choices(&self) -> usize {
        self.fields.n.map_or(1, |n| n as usize)
    }

    /// The one form to which answers are bound, here or by an endpoint's own fields.
    pub(crate) fn form(&self, own: impl Iterator<Item = Asked>) -> Result<Option<Asked>, ApiError> {
        self.guided.one(own)
    }

    /// The engine's requests: for each prompt as many as there are choices, whose seeds count up from the request's. `format` is
    /// what the endpoint's own fields say of the answer's form.
    /// Each is made when it is asked for, so that a refusal of the first spares the copies. [`Self::check`] comes first.
    pub(crate) fn requests<'a>(
        &'a self,
        model: &'a ServedModel,
        prompts: &'a [Vec<TokenId>],
        wanted: Wanted,
    ) -> Result<impl Iterator<Item = Request> + 'a, ApiError> {
        let (sampling, stops, state) = (self.sampling(model)?, self.stops()?, self.state(model)?);
        let grammar = wanted.form.as_ref().map(|asked| asked.compile(&model.text)).transpose()?;
        let unbound = || fill::plan(model, None).filter(|_| grammar.is_none());
        let fill = wanted.fill.or_else(unbound);
        let choices = self.choices();
        // A prompt is the same in all its choices, and scored in the first, unless that is all that is asked for.
        let alone = self.asks_for_nothing();
        let scoring = wanted.scoring;
        let scoring =
            move |choice| Scoring { prompt: scoring.prompt.filter(|_| choice == 0 || alone), ..scoring };
        let rows =
            prompts.iter().flat_map(move |prompt| (0..choices as u64).map(move |choice| (prompt, choice)));
        Ok(rows.map(move |(prompt, choice)| Request {
            prompt: prompt.clone(),
            max_tokens: self.length(model, prompt.len(), state),
            sampling: Sampling { seed: sampling.seed.wrapping_add(choice), ..sampling.clone() },
            state: state.cloned(),
            scoring: scoring(choice),
            end_tokens: model.text.tokenizer.end_tokens().to_vec(),
            ignore_end: self.fields.ignore_eos.unwrap_or(false),
            text: model.text.answer_showing(&stops, wanted.shown.clone()),
            grammar: grammar.as_ref().map(Compiled::matcher),
            fill: fill.clone(),
        }))
    }

    /// How many tokens may follow a prompt: what was asked for within the context, or as many as could ever be cached.
    fn length(&self, model: &ServedModel, prompt: usize, state: Option<&StatePolicy>) -> usize {
        let room = |tokens: Option<usize>| tokens.unwrap_or(usize::MAX).saturating_sub(prompt).max(1);
        let bound = model.defaults.max_tokens.unwrap_or(usize::MAX);
        match self.fields.max_completion_tokens.or(self.fields.max_tokens) {
            Some(asked) => {
                let context = model.engine.capabilities().map(|facts| facts.context);
                bound.min(room(context)).min(usize::try_from(asked).unwrap_or(usize::MAX))
            }
            None => bound.min(room(model.engine.longest(state))),
        }
    }

    /// How keys and values are to be kept; none is the engine's own way.
    fn state<'m>(&self, model: &'m ServedModel) -> Result<Option<&'m StatePolicy>, ApiError> {
        let Some(wanted) = &self.fields.kv_quant else { return Ok(None) };
        let wanted = match wanted {
            KvQuant::Name(name) => name.clone(),
            KvQuant::Bits(bits) => bits.to_string(),
        };
        if let Some((_, state)) = model.states.iter().find(|(name, _)| *name == wanted) {
            return Ok(Some(state));
        }
        let names: Vec<&str> = model.states.iter().map(|(name, _)| name.as_str()).collect();
        let message = format!("kv_quant must be one of {}, got: {wanted}", names.join(", "));
        Err(ApiError::field("kv_quant", message))
    }

    fn sampling(&self, model: &ServedModel) -> Result<Sampling, ApiError> {
        let tokenizer = &model.text.tokenizer;
        let refused = |error: SamplingError| ApiError::field(error.field, error.to_string());
        let sampling = Sampling {
            seed: match self.fields.seed {
                Some(Seed::Unsigned(seed)) => seed,
                Some(Seed::Signed(seed)) => seed.cast_unsigned(),
                // Each state of the standard library's hasher has fresh keys.
                None => RandomState::new().hash_one(0),
            },
            logit_bias: self.logit_bias(tokenizer.len())?,
            ..self.sampling.over(&model.defaults.sampling, tokenizer).map_err(refused)?
        };
        sampling.validate().map_err(refused)?;
        Ok(sampling)
    }

    fn logit_bias(&self, vocabulary: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let bias =
            self.fields.logit_bias.iter().flatten().map(|(token, bias)| match token.parse::<TokenId>() {
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
        let stops = match &self.fields.stop {
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
        // Each row of a request searches for them with a table of its own.
        if let Some(long) = stops.iter().find(|stop| stop.len() > STOP_BYTES) {
            let message = format!("stop: at most {STOP_BYTES} bytes in a string, got: {}", long.len());
            return Err(ApiError::field("stop", message));
        }
        Ok(stops)
    }
}

/// Refuses a number outside its range.
pub(crate) fn in_range(field: &str, value: Option<f64>, range: RangeInclusive<f64>) -> Result<(), ApiError> {
    let Some(value) = value.filter(|value| !range.contains(value)) else { return Ok(()) };
    let (low, high) = (range.start(), range.end());
    let expected = match (*low, *high) {
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
        let json = serde_json::from_str(body).expect(body);
        let checked = Generation::read(&json).and_then(|generation| generation.check(1));
        checked.err().map(|error| (error.status.as_u16(), error.param))
    }

    #[test]
    fn values_out_of_range_are_400_by_name() {
        for (field, value) in [
            ("temperature", "2.5"),
            ("temperature", "-0.1"),
            ("top_p", "1.5"),
            ("min_p", "-1"),
            ("typical_p", "1.1"),
            ("xtc_probability", "2"),
            ("xtc_threshold", "0.6"),
            ("presence_penalty", "9"),
            ("presence_context_size", "-1"),
            ("frequency_penalty", "-9"),
            ("frequency_context_size", "1.5"),
            ("repetition_penalty", "0"),
            ("repetition_penalty", "-1"),
            ("repetition_context_size", "\"all\""),
            ("dry_multiplier", "-0.5"),
            ("dry_base", "0.5"),
            ("dry_allowed_length", "0"),
            ("dry_penalty_last_n", "1.5"),
            ("dry_sequence_breakers", "\"\\n\""),
            ("dry_sequence_breakers", "[\"\"]"),
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
            (r#"{"adapter": "a+b"}"#, Some(501)),
            (r#"{"kv_quant": 8}"#, None),
            (r#"{"kv_quant": "k8v3"}"#, None),
            (r#"{"kv_quant": [8]}"#, Some(400)),
            (r#"{"n": 2, "presence_penalty": 0.5, "repetition_penalty": 1.3, "adapter": "none"}"#, None),
            (r#"{"typical_p": 0.9, "xtc_probability": 0.1, "dry_multiplier": 0.8}"#, None),
            (r#"{"n": null, "guided_regex": null, "stop": null, "logit_bias": null, "seed": null}"#, None),
            (r#"{"unknown": [1], "user": "u", "metadata": {"a": 1}, "session_id": "s"}"#, None),
            (r#"{"user": 7}"#, Some(400)),
            (r#"{"metadata": null, "user": null}"#, None),
        ] {
            assert_eq!(check(body).map(|(status, _)| status), status, "{body}");
        }
    }
}
