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
//! | `metrics`, `count`, `meter` | counts and times for people who chart them, those of the engines, and what each answer took |
//! | `server`, `connection`, `guard`, `host` | the listening socket, those who connect, who may ask, and under which name |
//! | `intake`, `weight`, `body`, `path` | how much comes in at once; what comes in malformed |
//! | `error`, `dialect` | what is refused, and the form that clients know refusals in |
//! | `answer`, `row`, `part`, `score`, `usage`, `stream`, `wire` | events of the engine, as one object or as a stream |
//! | `worker` | work that takes long, outside the threads that answer |
//! | `state` | the served models |

mod answer;
mod anthropic;
mod body;
mod cancel;
mod catalogue;
mod chat;
mod completion;
mod connection;
mod count;
mod dialect;
mod document;
mod error;
mod fill;
mod generation;
mod guard;
mod host;
mod intake;
mod message;
mod meter;
mod metrics;
mod mlx_lm;
mod page;
mod part;
mod path;
mod reply;
mod responses;
mod row;
mod score;
mod server;
mod state;
mod stream;
mod structure;
mod tool;
mod usage;
mod vocabulary;
mod weight;
mod wire;
mod worker;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::ApiError;
pub use guard::{Keys, Origin};
pub use host::Host;
use serde::Serialize;
pub use server::{Server, runtime};
use state::App;
use utoipa::ToSchema;

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
        .route("/v1/embeddings", post(catalogue::embeddings))
        .route("/v1/adapters", get(catalogue::adapters).post(catalogue::mount).delete(catalogue::unmount))
        .route("/openapi.json", get(document::document))
        .route("/metrics", get(metrics::metrics));
    let routes = match compat {
        None => common.merge(own_routes()),
        Some(Compat::MlxLm) => common.merge(mlx_lm::routes()),
    };
    // What no route takes is answered alike on all of them.
    let routes = match compat {
        None => routes.fallback(unknown).method_not_allowed_fallback(wrong_method),
        Some(Compat::MlxLm) => routes.fallback(mlx_lm::unknown).method_not_allowed_fallback(mlx_lm::unknown),
    };
    routes.with_state(app)
}

/// The paths that another server answers in its own way, if it is to be taken for one.
fn own_routes() -> Router<App> {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completion::complete))
        .route("/v1/models", get(catalogue::list))
        .route("/v1/models/{*id}", get(catalogue::show))
        .route("/health", get(health))
}

/// `ok`, or why no requests are taken: `loading`, `draining`, `stopped` or `failed`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct Health {
    status: &'static str,
}

/// Whether requests are taken.
#[utoipa::path(
    get, path = "/health", operation_id = "health",
    responses(
        (status = 200, description = "They are.", body = Health),
        (status = 503, description = "They are not, and why.", body = Health),
        (status = 403, description = "The server is not known under this name.", body = error::ErrorBody),
    )
)]
async fn health(State(app): State<App>) -> Response {
    match app.trouble() {
        None => Json(Health { status: "ok" }).into_response(),
        Some(status) => (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status })).into_response(),
    }
}

async fn unknown(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at: {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("another method is needed at: {}", uri.path()))
}
