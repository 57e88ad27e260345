//! Errors on the wire: a status and OpenAI's envelope.

use crate::error::{Error, ErrorKind};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use tandem_contracts::{execution::Reason, request::Rejection};
use utoipa::ToSchema;

/// Bytes of a message or a name, which may repeat what a request says.
const LONGEST: usize = 2 << 10;

/// OpenAI's envelope.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorObject,
}

/// What is wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ErrorObject {
    message: String,
    r#type: &'static str,
    /// The field that is wrong.
    param: Option<String>,
    code: Option<&'static str>,
    /// Why the model cannot run the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<&'static str>,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
    /// Why the model cannot run the request.
    pub(super) reasons: Vec<Reason>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: cut(message.into()), param: None, code: None, reasons: Vec::new() }
    }

    /// 400: the request itself is wrong.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400: this field is wrong.
    pub(crate) fn field(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(cut(param.to_owned())), ..Self::invalid(message) }
    }

    /// A known field or value that is not served.
    pub(crate) fn unsupported(status: StatusCode, param: &str) -> Self {
        let error = Self::new(status, format!("this server does not support {param} as asked for"));
        Self { param: Some(param.to_owned()), code: Some("unsupported_execution"), ..error }
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Names the field that holds the prompt, if no field is named yet and the request itself is wrong.
    pub(crate) fn at(mut self, param: &str) -> Self {
        if self.status == StatusCode::BAD_REQUEST {
            self.param.get_or_insert_with(|| param.to_owned());
        }
        self
    }

    /// Names a field as the endpoint's clients know it, if it is this one or inside it.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        let inside = |text: &str| {
            let rest = text.strip_prefix(from)?;
            rest.starts_with(|next: char| next != '_' && !next.is_alphanumeric())
                .then(|| format!("{to}{rest}"))
        };
        if let Some(param) = self.param.take() {
            self.param = Some(if param == from { to.to_owned() } else { inside(&param).unwrap_or(param) });
            self.message = inside(&self.message).unwrap_or(self.message);
        }
        self
    }

    /// The envelope.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            501 => "unsupported_execution",
            status if status >= 500 => "server_error",
            _ => "invalid_request_error",
        };
        let error = ErrorObject {
            message: self.message.clone(),
            r#type: kind,
            param: self.param.clone(),
            code: self.code,
            reasons: self.reasons.iter().map(|reason| reason.as_str()).collect(),
        };
        json!(ErrorBody { error })
    }
}

/// A text without what would make it long.
fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

/// OpenAI's envelope; the response carries the error itself, from which other protocols make theirs.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let message = rejection.to_string();
        match rejection {
            Rejection::EmptyPrompt | Rejection::TooMany { .. } => Self::invalid(message),
            Rejection::NoTokens => Self::field("max_tokens", message),
            Rejection::ContextExceeded { .. } => Self::invalid(message).code("context_length_exceeded"),
            Rejection::CacheExceeded { .. } => Self::field("max_tokens", message),
            Rejection::Unsupported { reasons } => Self {
                reasons,
                ..Self::new(StatusCode::NOT_IMPLEMENTED, message).code("unsupported_execution")
            },
            Rejection::UnknownToken { .. } => Self::invalid(message),
            Rejection::UnknownState => Self::field("kv_quant", message),
            Rejection::Sampling(error) => Self::field(error.field, message),
            Rejection::QueueFull { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            Rejection::Closed(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Refused => Self::field("messages", error.message()),
            ErrorKind::Encode => Self::invalid(error.message()),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlong_prompt_is_named_with_both_numbers() {
        let error = ApiError::from(Rejection::ContextExceeded { prompt: 9000, context: 8192 });
        insta::assert_snapshot!(error.body(), @r#"{"error":{"message":"this model's context is 8192 tokens, the prompt has: 9000","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#);
        assert_eq!(error.into_response().status(), 400);
    }

    #[test]
    fn fields_have_the_names_that_clients_know() {
        let renamed = |param: &str, message: &str| {
            let error = ApiError::field(param, message).renamed("messages", "input");
            (error.param.expect("a name"), error.message)
        };
        for (param, message, want) in [
            ("messages", "messages must hold", ("input", "input must hold")),
            ("messages", "No tools, please!", ("input", "No tools, please!")),
            ("messages[0].role", "messages[0].role: x", ("input[0].role", "input[0].role: x")),
            ("messages_more", "messages_more: x", ("messages_more", "messages_more: x")),
        ] {
            assert_eq!(renamed(param, message), (want.0.to_owned(), want.1.to_owned()));
        }
    }

    #[test]
    fn what_would_repeat_a_whole_request_is_cut_between_characters() {
        let long = "é".repeat(LONGEST);
        let error = ApiError::field(&long, format!("a{long}"));
        assert_eq!(error.message, format!("a{}…", "é".repeat(LONGEST / 2 - 1)));
        assert_eq!(error.param, Some(format!("{}…", "é".repeat(LONGEST / 2))));
        let whole = "a".repeat(LONGEST);
        assert_eq!(ApiError::invalid(whole.clone()).message, whole);
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let response = ApiError::from(Rejection::QueueFull { limit: 64 }).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
