//! Who may ask: holders of API keys, and pages of other origins in browsers.
//!
//! Invariants: a key is compared in a time that says nothing about it; where there are keys, only [`OPEN`] paths are answered
//! without one; keys are kept as hashes, and shown nowhere.

use super::error::ApiError;
use crate::error::{Error, ErrorKind};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};
use subtle::{Choice, ConstantTimeEq};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Paths that are open to everybody: the state of the server, and the page that asks for a key itself.
const OPEN: [&str; 2] = ["/health", "/"];

/// How long browsers need not ask again whether an origin may.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Keys of which a request has to bring one. None of them is none needed.
#[derive(Clone, Default)]
pub struct Keys(Arc<[[u8; 32]]>);

impl Keys {
    /// Keys as clients send them.
    pub fn new(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self(keys.into_iter().map(|key| hash(key.as_ref())).collect())
    }

    /// Whether no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key is one of them. All are looked at, whichever it is.
    fn hold(&self, key: &[u8]) -> bool {
        let key = hash(key);
        self.0.iter().fold(Choice::from(0), |known, own| known | own.ct_eq(&key)).into()
    }

    /// Whether headers bring one of them, as OpenAI's clients send it or as Anthropic's do.
    fn admit(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
        });
        let own = headers.get("x-api-key").map(HeaderValue::as_bytes);
        bearer.into_iter().chain(own).any(|key| self.hold(key))
    }
}

/// Equally long for every key.
fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

/// Routes that are answered to those who bring a key, if there are any.
pub(super) fn protect(routes: Router, keys: Keys) -> Router {
    match keys.is_empty() {
        true => routes,
        false => routes.layer(middleware::from_fn_with_state(keys, check)),
    }
}

async fn check(State(keys): State<Keys>, request: Request, next: Next) -> Response {
    if OPEN.contains(&request.uri().path()) || keys.admit(request.headers()) {
        return next.run(request).await;
    }
    let message = "an API key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`";
    let error = ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key");
    let mut response = error.into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// A place that pages in browsers come from, or `*` for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(
                ErrorKind::Origin,
                format!("expected * or an origin such as https://a.org:8000, got: {text}"),
            )
        };
        let host = text.split_once("://").map(|(_, host)| host);
        let plain = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
        if text != "*" && !host.is_some_and(plain) {
            return Err(wrong());
        }
        // Browsers send it in lower case.
        HeaderValue::from_str(&text.to_ascii_lowercase()).map(Self).map_err(|_| wrong())
    }
}

/// Routes that pages of these origins may ask, if there are any.
pub(super) fn open_to(routes: Router, origins: Vec<Origin>) -> Router {
    if origins.is_empty() {
        return routes;
    }
    let origins = match origins.iter().any(|Origin(origin)| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.into_iter().map(|Origin(origin)| origin)),
    };
    let cors = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER])
        .max_age(REMEMBERED);
    routes.layer(cors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))])
    }

    #[test]
    fn keys_come_in_two_headers_and_nothing_else_will_do() {
        let keys = Keys::new(["one", "another"]);
        for (name, value, admitted) in [
            ("authorization", "Bearer one", true),
            ("authorization", "bearer another", true),
            ("x-api-key", "one", true),
            ("authorization", "one", false),
            ("authorization", "Basic one", false),
            ("authorization", "Bearer ", false),
            ("authorization", "Bearer", false),
            ("authorization", "Bearer one another", false),
            ("authorization", "Bearer on", false),
            ("authorization", "Bearer onee", false),
            ("x-api-key", "", false),
            ("x-api-key", "ONE", false),
            ("cookie", "one", false),
        ] {
            assert_eq!(keys.admit(&headers(name, value)), admitted, "{name}: {value}");
        }
        assert!(!keys.admit(&HeaderMap::new()));
        assert!(Keys::default().is_empty() && !keys.is_empty());
        assert_eq!(format!("{keys:?}"), "Keys(2)");
    }

    #[test]
    fn origins_have_a_scheme_and_a_host_and_no_path() {
        for text in ["*", "https://a.org", "http://localhost:3000", "HTTP://A.org", "app://obsidian.md"] {
            assert!(text.parse::<Origin>().is_ok(), "{text}");
        }
        for text in ["", "a.org", "https://", "https://a.org/", "https://*.a.org", "null ", "http://a\n.org"]
        {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
