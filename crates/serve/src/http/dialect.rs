//! The form of refusals: that of the path's protocol, or of another server that this one is to be taken for.
//!
//! Invariant: whoever refuses, an endpoint, the routes or a guard before them, says what is wrong once and in one way; its
//! form, and nothing else of it, depends on the path and on the mode.

use super::{Compat, anthropic, error::ApiError, mlx_lm};
use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use serde_json::Value;

/// Routes whose refusals have the form that their clients know.
pub(super) fn spoken(routes: Router, compat: Option<Compat>) -> Router {
    routes.layer(middleware::from_fn_with_state(compat, speak))
}

async fn speak(State(compat): State<Option<Compat>>, request: Request, next: Next) -> Response {
    let form = form(request.uri().path(), compat);
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>()
        && let Some(form) = form
    {
        *response.body_mut() = Json(form(&error)).into_response().into_body();
    }
    response
}

/// How an error is written at a path; none is as it is written everywhere else.
fn form(path: &str, compat: Option<Compat>) -> Option<fn(&ApiError) -> Value> {
    match compat {
        _ if path.starts_with("/v1/messages") => Some(anthropic::envelope),
        Some(Compat::MlxLm) => Some(mlx_lm::envelope),
        None => None,
    }
}
