//! The fields that bind an answer to a form: `response_format` of chats, and `guided_*`, as vLLM has them, everywhere.
//!
//! Invariants: at most one of them counts, two are refused; what cannot be enforced as a whole is refused with the field, and in
//! a schema with the place, before anything is generated.

use super::error::ApiError;
use crate::model::ModelText;
use serde::Deserialize;
use serde_json::Value;
use tandem_spec::grammar::{Compiled, Error, Grammar};
use utoipa::ToSchema;

/// `response_format`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseFormat {
    #[schema(pattern = "^(text|json_object|json_schema)$")]
    r#type: String,
    json_schema: Option<JsonSchema>,
}

/// A schema with its name. It is enforced whether or not the client calls it strict.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct JsonSchema {
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

/// The fields that every generating endpoint has.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Guided {
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
}

/// A grammar, and the field that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) field: &'static str,
    pub(crate) grammar: Grammar,
}

impl ResponseFormat {
    /// What it asks for; none where any text will do.
    pub(crate) fn grammar(&self) -> Result<Option<Asked>, ApiError> {
        let field = "response_format";
        let grammar = match self.r#type.as_str() {
            "text" => return Ok(None),
            "json_object" => Grammar::Object,
            "json_schema" => {
                let schema = self.json_schema.as_ref().and_then(|it| it.schema.as_ref());
                let missing = || ApiError::field(field, "response_format.json_schema.schema is missing");
                Grammar::Schema(schema.ok_or_else(missing)?.clone())
            }
            other => {
                return Err(ApiError::field(field, format!("response_format.type is unknown: {other:?}")));
            }
        };
        Ok(Some(Asked { field, grammar }))
    }
}

impl Guided {
    fn grammars(&self) -> Result<Vec<Asked>, ApiError> {
        let schema = match &self.guided_json {
            // Clients send schemas as text too.
            Some(Value::String(text)) => Some(serde_json::from_str(text).map_err(|error| {
                ApiError::field("guided_json", format!("guided_json is not valid JSON: {error}"))
            })?),
            other => other.clone(),
        };
        let all = [
            ("guided_json", schema.map(Grammar::Schema)),
            ("guided_regex", self.guided_regex.clone().map(Grammar::Regex)),
            ("guided_choice", self.guided_choice.clone().map(Grammar::Choice)),
            ("guided_grammar", self.guided_grammar.clone().map(Grammar::Text)),
        ];
        Ok(all.into_iter().filter_map(|(field, grammar)| Some(Asked { field, grammar: grammar? })).collect())
    }

    /// The one thing that is asked for, here or by an endpoint's own fields.
    pub(crate) fn one(&self, own: impl Iterator<Item = Asked>) -> Result<Option<Asked>, ApiError> {
        let mut all: Vec<Asked> = own.chain(self.grammars()?).collect();
        match all.as_slice() {
            [] | [_] => Ok(all.pop()),
            [one, other, ..] => {
                let message = format!("{} and {} cannot be asked for together", one.field, other.field);
                Err(ApiError::field(other.field, message))
            }
        }
    }
}

impl Asked {
    /// Compiles it; takes a moment.
    pub(crate) fn compile(&self, text: &ModelText) -> Result<Compiled, ApiError> {
        let compiled = text.grammars().and_then(|grammars| grammars.compile(&self.grammar));
        compiled.map_err(|error| {
            let message = self.function(&error).unwrap_or_else(|| error.to_string());
            ApiError::field(self.field, format!("{}: {message}", self.field))
        })
    }

    /// What is wrong with the function that an error is in, where functions are asked for; the place is one of its own schema.
    fn function(&self, error: &Error) -> Option<String> {
        let Grammar::Schema(schema) = &self.grammar else { return None };
        let (index, place) = error.place.as_deref()?.strip_prefix("/anyOf/")?.split_once('/')?;
        let name = schema.pointer(&format!("/anyOf/{index}/properties/name/const"))?.as_str()?;
        let place = place.strip_prefix("properties/arguments")?.to_owned();
        let error = Error { place: Some(place), message: error.message.clone() };
        (self.field == "tool_choice").then(|| format!("the function {name:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(body: Value) -> Result<Option<Asked>, String> {
        let message =
            |error: ApiError| error.body()["error"]["message"].as_str().unwrap_or_default().to_owned();
        let format: Option<ResponseFormat> =
            serde_json::from_value(body["response_format"].clone()).expect("it fits");
        let own = format.map_or(Ok(None), |format| format.grammar());
        let guided: Guided = serde_json::from_value(body).expect("it fits");
        own.and_then(|own| guided.one(own.into_iter())).map_err(message)
    }

    fn grammar(body: Value) -> Option<Grammar> {
        asked(body).expect("it is fine").map(|asked| asked.grammar)
    }

    #[test]
    fn each_field_becomes_its_grammar() {
        let schema = json!({"type": "null"});
        let format = |format: Value| json!({"response_format": format});
        assert_eq!(grammar(json!({})), None);
        assert_eq!(grammar(format(json!({"type": "text"}))), None);
        assert_eq!(grammar(format(json!({"type": "json_object"}))), Some(Grammar::Object));
        let strict =
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
        assert_eq!(grammar(format(strict)), Some(Grammar::Schema(schema.clone())));
        assert_eq!(grammar(json!({"guided_json": schema})), Some(Grammar::Schema(schema.clone())));
        assert_eq!(grammar(json!({"guided_json": schema.to_string()})), Some(Grammar::Schema(schema)));
        assert_eq!(grammar(json!({"guided_regex": "a+"})), Some(Grammar::Regex("a+".to_owned())));
        assert_eq!(grammar(json!({"guided_choice": ["a"]})), Some(Grammar::Choice(vec!["a".to_owned()])));
        assert_eq!(
            grammar(json!({"guided_grammar": "start: \"a\""})),
            Some(Grammar::Text("start: \"a\"".to_owned()))
        );
        assert_eq!(grammar(json!({"guided_regex": null, "response_format": null})), None);
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let refusal = |body| asked(body).expect_err("it is refused");
        let xml = json!({"response_format": {"type": "xml"}});
        assert_eq!(refusal(xml), "response_format.type is unknown: \"xml\"");
        let bare = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}});
        assert_eq!(refusal(bare), "response_format.json_schema.schema is missing");
        let both = json!({"response_format": {"type": "json_object"}, "guided_regex": "a"});
        assert_eq!(refusal(both), "response_format and guided_regex cannot be asked for together");
        assert!(refusal(json!({"guided_json": "{"})).starts_with("guided_json is not valid JSON: "));
    }
}
