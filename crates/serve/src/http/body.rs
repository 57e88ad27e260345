//! Bodies of requests: from bytes to typed values, with the field named where a value does not fit.
//!
//! The bytes become JSON first, whose depth is bounded, also inside fields that nobody reads.

use super::{error::ApiError, generation::Generation};
use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::StatusCode,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// Most bytes of a body.
pub(crate) const LIMIT: usize = 32 << 20;

/// A JSON body: an endpoint's own fields, and those that all generating endpoints share. Each is read for itself,
/// as fields of a flattened structure would lose their names in errors.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) own: T,
    pub(crate) generation: Generation,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        let json = json(&bytes)?;
        Ok(Self { own: typed(&json)?, generation: typed(&json)? })
    }
}

fn unread(rejection: BytesRejection) -> ApiError {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {LIMIT} bytes"))
        }
        _ => ApiError::invalid("the body could not be read to its end"),
    }
}

fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    let json: Value = serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid(format!("the body is not valid JSON: {error}")))?;
    if json.is_object() {
        return Ok(json);
    }
    Err(ApiError::invalid("the body must be a JSON object"))
}

fn typed<'a, T: Deserialize<'a>>(json: &'a Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner();
        if path == "." {
            return ApiError::invalid(format!("the body does not fit: {reason}"));
        }
        ApiError::field(&path, format!("{path}: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chat::ChatRequest;

    fn refusal(body: &str) -> String {
        let read = json(body.as_bytes())
            .and_then(|json| Ok((typed::<ChatRequest>(&json)?, typed::<Generation>(&json)?)));
        match read {
            Ok(request) => panic!("accepted: {request:?}"),
            Err(error) => error.body()["error"]["message"].as_str().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn the_field_that_does_not_fit_is_named() {
        insta::assert_snapshot!(refusal(r#"{"messages": "hi"}"#), @r#"messages: invalid type: string "hi", expected a sequence"#);
        insta::assert_snapshot!(refusal(r#"{"messages": [{"role": 3}]}"#), @"messages[0].role: invalid type: integer `3`, expected a string");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "temperature": "hot"}"#), @r#"temperature: invalid type: string "hot", expected f32"#);
        insta::assert_snapshot!(refusal("{}"), @"the body does not fit: missing field `messages`");
        insta::assert_snapshot!(refusal("[1"), @"the body is not valid JSON: EOF while parsing a list at line 1 column 2");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "temperature": 1e999}"#), @"the body is not valid JSON: number out of range at line 1 column 37");
    }

    #[test]
    fn depth_is_bounded_also_where_nobody_reads() {
        let deep = format!(r#"{{"messages": [], "ignored": {}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
        assert!(refusal(&deep).contains("recursion limit"));
    }
}
