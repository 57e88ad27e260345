//! `GET /`: the chat page, a client of this server like any other.
//!
//! Invariants: one response holds all of it, and nothing is fetched from elsewhere; what runs and what styles is known to
//! the browser by its hash ([Content Security Policy](https://www.w3.org/TR/CSP3/)), so that nothing that a model writes can
//! run; text becomes nodes, never markup, which the browser enforces too (Trusted Types). No answer depends on who asks, so
//! the page itself needs no key.
//!
//! | file | what it holds |
//! |---|---|
//! | `body.html`, `style.css` | what is there from the beginning, and how it looks |
//! | `element.js` | elements out of text |
//! | `inline.js`, `block.js` | Markdown as nodes |
//! | `store.js`, `request.js` | what the browser keeps; requests and streams |
//! | `transcript.js`, `panel.js`, `main.js` | the conversation, what stands around it, and the page at work |

use super::error::ErrorBody;
use axum::{
    http::{HeaderName, header},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const STYLE: &str = include_str!("style.css");

/// One module of all files. A macro, as only literals can be joined at compile time.
macro_rules! script {
    () => {
        concat!(
            include_str!("element.js"),
            include_str!("inline.js"),
            include_str!("block.js"),
            include_str!("store.js"),
            include_str!("request.js"),
            include_str!("transcript.js"),
            include_str!("panel.js"),
            include_str!("main.js"),
        )
    };
}

const SCRIPT: &str = script!();

const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Tandem</title>\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1, interactive-widget=resizes-content\">\n",
    "<link rel=\"icon\" href=\"data:,\">\n<style>",
    include_str!("style.css"),
    "</style>\n",
    include_str!("body.html"),
    "<script type=\"module\">",
    script!(),
    "</script>\n</html>\n",
);

/// What the page may do: run its own script, style itself, and ask its own server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// The page.
#[utoipa::path(
    get, path = "/", operation_id = "page",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 403, description = "The server is not known under this name.", body = ErrorBody),
    )
)]
pub(crate) async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        // A newer server brings a newer page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(PAGE)).into_response()
}
