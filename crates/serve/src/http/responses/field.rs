//! Fields of a request that come back in its response: what may be called, how text is to be, how much is thought.

use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A function that may be called.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseTool)]
pub(super) struct Tool {
    #[schema(pattern = "^function$")]
    pub(super) r#type: String,
    #[schema(value_type = String, required = true)]
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub(super) parameters: Option<Value>,
    pub(super) strict: Option<bool>,
}

/// How text is to be.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseText)]
pub(super) struct Text {
    #[serde(default)]
    pub(super) format: Format,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verbosity: Option<String>,
}

/// Its form.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseTextFormat)]
pub(super) struct Format {
    #[schema(pattern = "^(text|json_object|json_schema)$")]
    pub(super) r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
}

impl Default for Format {
    fn default() -> Self {
        Self { r#type: "text".to_owned(), name: None, description: None, schema: None, strict: None }
    }
}

/// How much is thought before.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub(super) struct Reasoning {
    pub(super) effort: Option<String>,
    pub(super) summary: Option<String>,
}

impl Tool {
    /// The declaration as chats have it.
    pub(super) fn declared(&self) -> Value {
        let mut function = json!({"name": self.name});
        let fields = [
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("parameters", self.parameters.clone()),
            ("strict", self.strict.map(Value::Bool)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                function[name] = value;
            }
        }
        json!({"type": "function", "function": function})
    }
}

impl Format {
    /// The form as chats have it.
    pub(super) fn chat(&self) -> Result<Value, ApiError> {
        if self.r#type != "json_schema" {
            return Ok(json!({"type": self.r#type}));
        }
        let missing = |field: &str| ApiError::field(field, format!("{field}: this field is required"));
        self.name.as_ref().ok_or_else(|| missing("text.format.name"))?;
        let schema = self.schema.as_ref().ok_or_else(|| missing("text.format.schema"))?;
        Ok(json!({"type": "json_schema", "json_schema": {"schema": schema, "strict": self.strict}}))
    }
}
