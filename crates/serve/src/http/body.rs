//! Bodies of requests: from bytes to typed values, with the field named where a value does not fit.
//!
//! The bytes become JSON first, whose depth is bounded, also inside fields that nobody reads.

use super::{
    connection::Patience,
    error::ApiError,
    generation::Generation,
    intake::{Coming, Intake, Place},
    weight::Weight,
};
use axum::{
    body::{BodyDataStream, HttpBody},
    extract::{FromRequest, Request},
    http::StatusCode,
};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{borrow::Cow, time::Duration};
use tokio::time::{Instant, timeout};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::AllOfBuilder},
};

/// Most bytes of a body.
const LIMIT: usize = 32 << 20;

/// How long the rest of a body that is too large is read, so that its sender gets to reading the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of a body that come in a second, at the least. Its sender has a few patiences more.
const RATE: u64 = 64 << 10;
const PATIENCES: u32 = 4;

/// A JSON body with an endpoint's own fields, and the place of its request.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T, pub(crate) Place);

/// A body as it came.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Vec<u8>, pub(crate) Place);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        whole(request).await.map(|(bytes, place)| Self(bytes, place))
    }
}

/// A JSON body with an endpoint's own fields and those that all generating endpoints share. Each is read for
/// itself, as fields of a flattened structure would lose their names in errors.
#[derive(Debug)]
pub(crate) struct Generating<T> {
    pub(crate) own: T,
    pub(crate) generation: Generation,
    pub(crate) place: Place,
}

impl<T: ToSchema> PartialSchema for Generating<T> {
    fn schema() -> RefOr<Schema> {
        AllOfBuilder::new().item(T::schema()).item(Generation::schema()).into()
    }
}

impl<T: ToSchema> ToSchema for Generating<T> {
    fn name() -> Cow<'static, str> {
        // The own fields alone are a schema too.
        Cow::Owned(format!("{}Body", T::name()))
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
        Generation::schemas(schemas);
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        read(request, typed).await.map(|(body, place)| Self(body, place))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for Generating<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let read = read(request, |json| Ok((typed(json)?, Generation::read(json)?)));
        read.await.map(|((own, generation), place)| Self { own, generation, place })
    }
}

async fn read<T: Send + 'static>(
    request: Request,
    convert: fn(&Value) -> Result<T, ApiError>,
) -> Result<(T, Place), ApiError> {
    let (bytes, place) = whole(request).await?;
    if place.is_light() {
        return Ok((convert(&json(&bytes)?)?, place));
    }
    place.work(move || convert(&json(&bytes)?)).await
}

/// The bytes of a request's body, and the place that it has taken.
async fn whole(request: Request) -> Result<(Vec<u8>, Place), ApiError> {
    let silence = request.extensions().get::<Patience>().map_or(Duration::MAX, |patience| patience.0);
    let intake = request.extensions().get::<Intake>().cloned().unwrap_or_default();
    let announced = request.body().size_hint().lower();
    let stream = request.into_body().into_data_stream();
    if announced > LIMIT as u64 {
        return Err(refused(stream, too_large()).await);
    }
    let (bytes, came) = bytes(stream, silence, intake.begin()).await?;
    Ok((bytes, came.enter()?))
}

/// A body's bytes. Its sender may pause for so much silence, and for a few times as much in all.
async fn bytes(
    mut stream: BodyDataStream,
    silence: Duration,
    mut coming: Coming,
) -> Result<(Vec<u8>, Coming), ApiError> {
    let begun = Instant::now();
    let (mut bytes, mut weight) = (Vec::new(), Weight::default());
    loop {
        let whole =
            silence.saturating_mul(PATIENCES).saturating_add(Duration::from_secs(bytes.len() as u64 / RATE));
        let left = silence.min(whole.saturating_sub(begun.elapsed()));
        let stopped = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body comes too slowly");
        let Some(chunk) = timeout(left, stream.next()).await.map_err(stopped)? else {
            return Ok((bytes, coming));
        };
        let chunk = chunk.map_err(|_| ApiError::invalid("the body could not be read to its end"))?;
        if bytes.len() + chunk.len() > LIMIT {
            return Err(refused(stream, too_large()).await);
        }
        weight.add(&chunk);
        if let Err(full) = coming.hold(weight.total()) {
            drop((bytes, coming));
            return Err(refused(stream, full).await);
        }
        bytes.extend_from_slice(&chunk);
    }
}

fn too_large() -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {LIMIT} bytes"))
}

/// Refuses a body, after its sender has had the time to send it.
async fn refused(stream: BodyDataStream, error: ApiError) -> ApiError {
    // Whether the rest has come or not, the answer is the same.
    let _ = timeout(PATIENCE, discard(stream)).await;
    error
}

/// Reads as much again as a body may have.
async fn discard(mut stream: BodyDataStream) {
    let mut left = LIMIT;
    while left > 0
        && let Some(Ok(chunk)) = stream.next().await
    {
        left = left.saturating_sub(chunk.len());
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

/// Reads fields from an object.
pub(crate) fn typed<T: DeserializeOwned>(json: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().to_string();
        let reason = plain(&error.into_inner().to_string());
        if path == "." {
            return ApiError::invalid(format!("the body does not fit: {reason}"));
        }
        ApiError::field(&path, format!("{path}: {reason}"))
    })
}

/// A reason in the words of JSON instead of Rust's.
fn plain(reason: &str) -> String {
    let Some((head, expected)) = reason.rsplit_once("expected ") else { return reason.to_owned() };
    let expected = match expected {
        "u32" | "u64" => "a whole number that is not negative",
        "i64" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{head}expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chat::ChatRequest;

    fn refusal(body: &str) -> String {
        let read = json(body.as_bytes())
            .and_then(|json| Ok((typed::<ChatRequest>(&json)?, Generation::read(&json)?)));
        match read {
            Ok(request) => panic!("accepted: {request:?}"),
            Err(error) => error.body()["error"]["message"].as_str().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn the_field_that_does_not_fit_is_named() {
        insta::assert_snapshot!(refusal(r#"{"messages": "hi"}"#), @r#"messages: invalid type: string "hi", expected a list"#);
        insta::assert_snapshot!(refusal(r#"{"messages": [{"role": 3}]}"#), @"messages[0].role: invalid type: integer `3`, expected a string");
        insta::assert_snapshot!(refusal(r#"{"messages": [{"role": "user", "content": 3}]}"#), @"messages[0].content: expected a string, null, or a list of parts");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "temperature": "hot"}"#), @r#"temperature: invalid type: string "hot", expected a number"#);
        insta::assert_snapshot!(refusal(r#"{"messages": [], "max_tokens": 1.5}"#), @"max_tokens: invalid type: floating point `1.5`, expected a whole number that is not negative");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "seed": 1180591620717411303424}"#), @"seed: expected a 64-bit integer");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "stop": 5}"#), @"stop: expected a string or a list of strings");
        insta::assert_snapshot!(refusal("{}"), @"the body does not fit: missing field `messages`");
        insta::assert_snapshot!(refusal("[1"), @"the body is not valid JSON: EOF while parsing a list at line 1 column 2");
        insta::assert_snapshot!(refusal("[]"), @"the body must be a JSON object");
        insta::assert_snapshot!(refusal(r#"{"messages": [], "temperature": 1e999}"#), @"the body is not valid JSON: number out of range at line 1 column 37");
    }

    #[test]
    fn depth_is_bounded_also_where_nobody_reads() {
        let deep = format!(r#"{{"messages": [], "ignored": {}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
        assert!(refusal(&deep).contains("recursion limit"));
    }

    #[test]
    fn bytes_that_are_no_text_are_no_json() {
        let wide: Vec<u8> = "{\"messages\": []}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [&wide[..], b"{\"messages\": \"\xff\"}", b"\xef\xbb\xbf{}"] {
            assert_eq!(json(bytes).map_err(|error| error.status), Err(StatusCode::BAD_REQUEST));
        }
    }
}
