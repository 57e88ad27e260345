//! The HTTP server: its routes.
//!
//! | module | what it does |
//! |---|---|
//! | `chat`, `completion` | the generating endpoints |
//! | `responses` | OpenAI's newer protocol over the same chats, with a store of what was answered |
//! | `anthropic` | Anthropic's protocol over them |
//! | `mlx_lm` | the paths of `mlx_lm.server`, as it has them |
//! | `generation`, `message` | the fields that they share; messages as templates see them |
//! | `structure` | fields that bind answers to a form |
//! | `tool`, `reply` | functions that chats declare; replies taken apart into reasoning, text and calls |
//! | `vocabulary` | tokens of texts, texts of tokens |
//! | `page` | the chat page |
//! | `cancel` | the end of a request by its id |
//! | `metrics`, `meter` | counts and times for people who chart them, and what each answer took |
//! | `server`, `connection`, `guard` | the listening socket, those who connect, and who may ask |
//! | `body`, `error` | what comes in malformed, and how it is answered |
//! | `answer`, `part`, `score`, `stream`, `wire` | events of the engine, as one object or as a stream |
//! | `state` | the served models |

mod answer;
mod anthropic;
mod body;
mod cancel;
mod chat;
mod completion;
mod connection;
mod error;
mod generation;
mod guard;
mod message;
mod meter;
mod metrics;
mod mlx_lm;
mod page;
mod part;
mod reply;
mod responses;
mod score;
mod server;
mod state;
mod stream;
mod structure;
mod tool;
mod vocabulary;
mod wire;

use crate::model::ServedModel;
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::ApiError;
pub use guard::{Keys, Origin};
use serde_json::{Value, json};
pub use server::Server;
use state::App;

/// Another server, whose clients are to find nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// `mlx_lm.server` 0.32.2.
    MlxLm,
}

fn router(app: App, compat: Option<Compat>) -> Router {
    let common = Router::new()
        .route("/", get(page::page))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::show).delete(responses::forget))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/tokenize", post(vocabulary::tokenize))
        .route("/detokenize", post(vocabulary::detokenize))
        .route("/apply-template", post(chat::apply_template))
        .route("/v1/requests/{id}/cancel", post(cancel::cancel))
        .route("/metrics", get(metrics::metrics));
    let routes = match compat {
        None => common.merge(own_routes()),
        Some(Compat::MlxLm) => common.merge(mlx_lm::routes()),
    };
    routes.with_state(app)
}

/// The paths that another server answers in its own way, if it is to be taken for one.
fn own_routes() -> Router<App> {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completion::complete))
        .route("/v1/models", get(list))
        .route("/v1/models/{*id}", get(show))
        .route("/health", get(health))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
}

async fn list(State(app): State<App>) -> Json<Value> {
    Json(
        json!({"object": "list", "data": app.models().iter().map(|model| describe(model)).collect::<Vec<_>>()}),
    )
}

async fn show(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    app.model(Some(&id)).map(|model| Json(describe(&model)))
}

fn describe(model: &ServedModel) -> Value {
    json!({
        "id": model.name, "object": "model", "created": model.created, "owned_by": "tandem",
        "context_window": model.engine.capabilities().map(|facts| facts.context),
        "capabilities": {"chat": model.text.template.is_some()},
    })
}

async fn health(State(app): State<App>) -> Response {
    match app.trouble() {
        None => Json(json!({"status": "ok"})).into_response(),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": trouble}))).into_response(),
    }
}

async fn unknown(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at: {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("another method is needed at: {}", uri.path()))
}
