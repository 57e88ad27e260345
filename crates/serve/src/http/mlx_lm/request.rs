//! Bodies as `mlx_lm.server` reads them: its defaults, its checks in their order, its words.
//!
//! Invariants: a value is of the type that Python has for it, so that `true` is the number 1 and a whole number no
//! float; a null is a value, but where the field may be absent.

use super::Shape;
use crate::http::error::ApiError;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Text,
}

/// A request that was checked.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its model's name as it was sent.
    pub(super) model: String,
    pub(super) streams: bool,
    usage: bool,
    scored: bool,
    /// Likely tokens beside each.
    top: usize,
    /// The fields of the endpoint of Tandem's own.
    pub(super) fields: Value,
}

/// Python's types of JSON's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bool,
    Int,
    Float,
    /// A float or an int.
    Number,
    Str,
    Dict,
}

/// A field: what it is called in errors and in bodies, and what it must be.
struct Rule {
    name: &'static str,
    field: &'static str,
    kind: Type,
    low: Option<f64>,
    high: Option<f64>,
    /// What it is where it is absent; none where it may also be null.
    default: Option<fn() -> Value>,
}

const fn rule(name: &'static str, kind: Type, low: Option<f64>, default: fn() -> Value) -> Rule {
    Rule { name, field: name, kind, low, high: None, default: Some(default) }
}

const fn share(name: &'static str, kind: Type, default: fn() -> Value) -> Rule {
    Rule { high: Some(1.0), ..rule(name, kind, Some(0.0), default) }
}

const fn optional(name: &'static str, field: &'static str, kind: Type) -> Rule {
    Rule { name, field, kind, low: None, high: None, default: None }
}

/// Every field that is checked, in the order of the checks.
static RULES: &[Rule] = &[
    rule("stream", Type::Bool, None, || json!(false)),
    rule("max_tokens", Type::Int, Some(1.0), || json!(512)),
    rule("temperature", Type::Number, Some(0.0), || json!(0.0)),
    share("top_p", Type::Number, || json!(1.0)),
    rule("top_k", Type::Int, Some(0.0), || json!(0)),
    share("min_p", Type::Number, || json!(0.0)),
    rule("num_draft_tokens", Type::Int, Some(0.0), || json!(3)),
    rule("repetition_penalty", Type::Number, Some(0.0), || json!(0.0)),
    rule("repetition_context_size", Type::Int, Some(0.0), || json!(20)),
    rule("presence_penalty", Type::Number, None, || json!(0.0)),
    rule("presence_context_size", Type::Int, Some(0.0), || json!(20)),
    rule("frequency_penalty", Type::Number, None, || json!(0.0)),
    rule("frequency_context_size", Type::Int, Some(0.0), || json!(20)),
    rule("logprobs", Type::Bool, None, || json!(false)),
    Rule { high: Some(11.0), ..rule("top_logprobs", Type::Int, Some(0.0), || json!(-1)) },
    share("xtc_probability", Type::Float, || json!(0.0)),
    share("xtc_threshold", Type::Float, || json!(0.1)),
    Rule { field: "model", ..rule("requested_model", Type::Str, None, || json!("default_model")) },
    optional("adapter", "adapters", Type::Str),
    optional("seed", "seed", Type::Int),
    optional("logit_bias", "logit_bias", Type::Dict),
];

/// Ranges of Tandem's own, beyond which values say no more than at their ends.
const RANGES: [(&str, f64, f64); 5] = [
    ("temperature", 0.0, 100.0),
    ("repetition_penalty", 0.01, 100.0),
    ("presence_penalty", -100.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("xtc_threshold", 0.0, 0.5),
];

impl Type {
    fn holds(self, value: &Value) -> bool {
        let whole = value.is_boolean() || value.is_i64() || value.is_u64();
        match self {
            Self::Bool => value.is_boolean(),
            Self::Int => whole,
            Self::Float => value.is_f64(),
            Self::Number => whole || value.is_f64(),
            Self::Str => value.is_string(),
            Self::Dict => value.is_object(),
        }
    }

    /// Its name in Python's words.
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Number => "('float', 'int')",
            Self::Str => "str",
            Self::Dict => "dict",
        }
    }
}

impl Rule {
    /// The value, if there is one.
    fn read(&self, body: &Map<String, Value>) -> Result<Option<Value>, ApiError> {
        let given = body.get(self.field).cloned();
        let value = match self.default {
            Some(default) => given.unwrap_or_else(default),
            None => match given {
                None | Some(Value::Null) => return Ok(None),
                Some(value) => value,
            },
        };
        let name = self.name;
        if !self.kind.holds(&value) {
            return Err(ApiError::invalid(format!("{name} must be of type {}", self.kind.name())));
        }
        let value = match (&value, self.kind) {
            (Value::Bool(yes), Type::Int | Type::Number) => json!(u8::from(*yes)),
            _ => value,
        };
        let off = name == "top_logprobs" && value == json!(-1);
        let number = value.as_f64().filter(|_| !off);
        if let Some(low) = self.low.filter(|low| number.is_some_and(|number| number < *low)) {
            return Err(ApiError::invalid(format!("{name} must be at least {low}")));
        }
        if let Some(high) = self.high.filter(|high| number.is_some_and(|number| number > *high)) {
            return Err(ApiError::invalid(format!("{name} must be at most {high}")));
        }
        Ok(Some(value))
    }
}

impl Asked {
    /// Reads a body.
    pub(super) fn read(bytes: &[u8], kind: Kind) -> Result<Self, ApiError> {
        let invalid = |error| ApiError::invalid(format!("Invalid JSON in request body: {error}"));
        let Value::Object(mut body) = serde_json::from_slice(bytes).map_err(invalid)? else {
            return Err(ApiError::invalid("Request should be a JSON dictionary"));
        };
        if let Some(length) = body.remove("max_completion_tokens").filter(|length| !length.is_null()) {
            body.insert("max_tokens".to_owned(), length);
        }
        let mut fields = body.clone();
        for rule in RULES {
            let value = rule.read(&body)?;
            fields.insert(rule.field.to_owned(), value.unwrap_or_default());
        }
        if let Some(Value::Object(bias)) = fields.get("logit_bias") {
            let bias =
                biases(bias).ok_or_else(|| ApiError::invalid("logit_bias must be a dict of int to float"))?;
            fields.insert("logit_bias".to_owned(), bias.into());
        }
        match kind {
            Kind::Chat if !body.contains_key("messages") => {
                return Err(ApiError::invalid("Request did not contain messages"));
            }
            Kind::Text if !body.contains_key("prompt") => {
                return Err(ApiError::invalid("Request did not contain a prompt"));
            }
            _ => {}
        }
        if !fields["adapters"].is_null() {
            return Err(ApiError::unsupported(StatusCode::NOT_IMPLEMENTED, "adapters"));
        }
        Ok(Self::checked(fields, kind))
    }

    /// The request of fields that have passed the checks, each named and meant as Tandem's own.
    fn checked(mut fields: Map<String, Value>, kind: Kind) -> Self {
        // There are no choices, and drafts are the server's business.
        for unread in ["n", "adapters", "adapter", "num_draft_tokens", "echo", "best_of", "suffix"] {
            fields.remove(unread);
        }
        let is_zero = |value: Option<&Value>| value.and_then(Value::as_f64) == Some(0.0);
        for off in ["repetition_penalty", "top_p"] {
            if is_zero(fields.get(off)) {
                fields.insert(off.to_owned(), json!(1.0));
            }
        }
        for (name, low, high) in RANGES {
            if let Some(number) = fields.get(name).and_then(Value::as_f64) {
                fields.insert(name.to_owned(), json!(number.clamp(low, high)));
            }
        }
        let scored = fields["logprobs"] == json!(true);
        let top = fields["top_logprobs"].as_u64().map_or(0, |count| count as usize);
        let wanted = scored || top > 0;
        fields.insert("top_logprobs".to_owned(), json!(top));
        let logprobs = match kind {
            Kind::Chat => json!(wanted),
            Kind::Text => json!(wanted.then_some(top)),
        };
        fields.insert("logprobs".to_owned(), logprobs);
        // What Python takes for nothing is no stop string.
        if matches!(fields.get("stop"), Some(Value::String(text)) if text.is_empty()) {
            fields.remove("stop");
        }
        let usage =
            fields.get("stream_options").is_some_and(|options| options["include_usage"] == json!(true));
        Self {
            model: fields["model"].as_str().unwrap_or_default().to_owned(),
            streams: fields["stream"] == json!(true),
            usage,
            scored,
            top,
            fields: fields.into(),
        }
    }

    /// The shape of its answer.
    pub(super) fn shape(&self, kind: Kind) -> Shape {
        Shape { kind, model: self.model.clone(), usage: self.usage, scored: self.scored, top: self.top }
    }
}

/// Biases whose keys Python takes for ints, and whose values for floats.
fn biases(bias: &Map<String, Value>) -> Option<Map<String, Value>> {
    let read = |(token, bias): (&String, &Value)| {
        let token: i64 = token.trim().parse().ok()?;
        let bias = match bias {
            Value::Bool(yes) => f64::from(u8::from(*yes)),
            Value::String(text) => text.trim().parse().ok()?,
            other => other.as_f64()?,
        };
        Some((token.to_string(), json!(bias.clamp(-100.0, 100.0))))
    };
    bias.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: Value, kind: Kind) -> Value {
        Asked::read(body.to_string().as_bytes(), kind).expect("a request").fields
    }

    #[test]
    fn what_is_absent_is_as_there_and_off_is_off_as_here() {
        let chat = fields(json!({"messages": []}), Kind::Chat);
        let want = json!({
            "messages": [], "stream": false, "max_tokens": 512, "temperature": 0.0, "top_p": 1.0, "top_k": 0,
            "min_p": 0.0, "repetition_penalty": 1.0, "repetition_context_size": 20, "presence_penalty": 0.0,
            "presence_context_size": 20, "frequency_penalty": 0.0, "frequency_context_size": 20, "logprobs": false,
            "top_logprobs": 0, "xtc_probability": 0.0, "xtc_threshold": 0.1, "model": "default_model",
            "seed": null, "logit_bias": null,
        });
        assert_eq!(chat, want);
        let said = json!({"prompt": "a", "top_p": 0, "top_logprobs": 11, "max_completion_tokens": true,
            "logit_bias": {" 5": "1.5", "6": true}, "n": 3, "adapters": null, "stop": ""});
        let text = fields(said, Kind::Text);
        let got = ["top_p", "logprobs", "max_tokens", "logit_bias", "n", "adapters", "stop"]
            .map(|field| text[field].clone());
        let want = [
            json!(1.0),
            json!(11),
            json!(1),
            json!({"5": 1.5, "6": 1.0}),
            json!(null),
            json!(null),
            json!(null),
        ];
        assert_eq!(got, want);
        assert_eq!(fields(json!({"prompt": "a"}), Kind::Text)["logprobs"], json!(null));
    }
}
