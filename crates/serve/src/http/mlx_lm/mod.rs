//! `--compat mlx-lm`: the paths of `mlx_lm.server` 0.32.2, answered as it answers them.
//!
//! | module | what it does |
//! |---|---|
//! | `request` | its defaults and checks; a body as the fields of Tandem's own endpoints |
//! | `reply` | its objects, whole and as a stream |
//!
//! Invariants: an error is one string; what is wrong with a body is 400, whatever keeps an answer from beginning after
//! that is 404, as there, unless it is no fault of the request; every other path is 404 in plain words.
//! Source: <https://github.com/ml-explore/mlx-lm/blob/v0.32.2/mlx_lm/server.py>; what it answers is recorded in
//! `tests/mlx_lm`.

mod reply;
mod request;

use super::{
    answer::Answer,
    body::{Raw, typed},
    chat, completion,
    error::ApiError,
    generation::Generation,
    state::App,
};
use crate::model::ServedModel;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use reply::{Reply, Shape};
use request::{Asked, Kind};
use serde_json::{Value, json};

/// The body of an error: one string.
pub(super) fn envelope(error: &ApiError) -> Value {
    json!({"error": error.message})
}

/// The paths that this server answers in another way than Tandem's own.
pub(super) fn routes() -> Router<App> {
    let generating = |kind| post(move |State(app), body: Result<Raw, ApiError>| generate(app, body, kind));
    Router::new()
        .route("/v1/chat/completions", generating(Kind::Chat))
        .route("/chat/completions", generating(Kind::Chat))
        .route("/v1/completions", generating(Kind::Text))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(models))
        .route("/health", get(health))
}

async fn generate(app: App, body: Result<Raw, ApiError>, kind: Kind) -> Result<Response, ApiError> {
    let Raw(bytes, place) = body?;
    let reached = app.clone();
    let submitted = place.finish(move || {
        let asked = Asked::read(&bytes, kind)?;
        let model = reached.model(Some(&asked.model))?;
        let mut answer = begin(kind, &asked.fields, &model).map_err(unbegun)?;
        reached.running().know(&mut answer, &model.engine);
        Ok((answer, asked.shape(kind), asked.streams))
    });
    let (answer, shape, streamed) = submitted.await?;
    match streamed {
        true => Ok(Reply::new(answer, shape).stream(app.keep_alive())),
        false => reply::whole(answer, shape, &app).await,
    }
}

fn begin(kind: Kind, fields: &Value, model: &ServedModel) -> Result<Answer, ApiError> {
    let generation = Generation::read(fields)?;
    generation.check_breakers()?;
    match kind {
        Kind::Chat => Ok(chat::submit("chatcmpl-", (&typed(fields)?, &generation), model)?.0),
        Kind::Text => completion::submit("cmpl-", (&typed(fields)?, &generation), model),
    }
}

/// What keeps an answer from beginning is 404 there.
fn unbegun(error: ApiError) -> ApiError {
    let status = if error.status == StatusCode::BAD_REQUEST { StatusCode::NOT_FOUND } else { error.status };
    ApiError { status, ..error }
}

async fn models(State(app): State<App>) -> Json<Value> {
    let model = |model: &ServedModel| json!({"id": model.name, "object": "model", "created": model.created});
    Json(json!({"object": "list", "data": app.models().iter().map(|it| model(it)).collect::<Vec<_>>()}))
}

async fn health(State(app): State<App>) -> Response {
    match app.trouble() {
        None => Json(json!({"status": "ok"})).into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "unavailable"}))).into_response(),
    }
}

/// What no route takes.
pub(super) async fn unknown() -> Response {
    // Words, though it says that they are JSON.
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "application/json")], "Not Found").into_response()
}
