//! The HTTP server: routes, and the life of the listening socket.
//!
//! | module | what it does |
//! |---|---|
//! | `chat`, `completion` | the generating endpoints |
//! | `anthropic` | Anthropic's protocol over the same chats |
//! | `generation`, `message` | the fields that they share; messages as templates see them |
//! | `structure` | fields that bind answers to a form |
//! | `tool`, `reply` | functions that chats declare; replies taken apart into reasoning, text and calls |
//! | `vocabulary` | tokens of texts, texts of tokens |
//! | `cancel`, `metrics` | the end of a request by its id; counts for people who chart them |
//! | `page` | the chat page |
//! | `body`, `error` | what comes in malformed, and how it is answered |
//! | `answer`, `score`, `stream`, `wire` | events of the engine, as one object or as a stream |
//! | `state` | the served models |

mod answer;
mod anthropic;
mod body;
mod cancel;
mod chat;
mod completion;
mod error;
mod generation;
mod message;
mod metrics;
mod page;
mod reply;
mod score;
mod state;
mod stream;
mod structure;
mod tool;
mod vocabulary;
mod wire;

use crate::{
    error::{Error, ErrorKind},
    model::ServedModel,
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::ApiError;
use serde_json::{Value, json};
use state::App;
use std::{future::Future, pin::pin, time::Duration};
use tandem_engine::EngineHandle;
use tokio::{net::TcpListener, sync::oneshot, task::spawn_blocking, time::timeout};

/// Time that clients have to read the end of their answers once everything has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// The server of some models.
///
/// ```no_run
/// # async fn run(model: tandem_serve::model::ServedModel) -> Result<(), Box<dyn std::error::Error>> {
/// let server = tandem_serve::http::Server::new(vec![model], std::time::Duration::from_secs(30));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// server.run(listener, async { drop(tokio::signal::ctrl_c().await) }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    models: Vec<ServedModel>,
    drain_timeout: Duration,
    keep_alive: Duration,
}

impl Server {
    /// A server of `models`, which may still be loading: until they are loaded requests are answered with 503. At
    /// shutdown running answers have `drain_timeout` to finish.
    pub fn new(models: Vec<ServedModel>, drain_timeout: Duration) -> Self {
        Self { models, drain_timeout, keep_alive: Duration::from_secs(10) }
    }

    /// Changes after how much silence a stream sends a comment line; ten seconds otherwise.
    #[must_use]
    pub fn keep_alive(self, keep_alive: Duration) -> Self {
        Self { keep_alive, ..self }
    }

    /// Serves connections of `listener` until `shutdown` resolves, then drains: nothing new is taken, running
    /// answers finish or the time for that runs out, and `/health` says so meanwhile. The engines have ended when
    /// this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Network`]: the listener failed.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let app = App::new(self.models, self.keep_alive);
        let (close, closed) = oneshot::channel::<()>();
        let until = async {
            // An error would mean that the sender is gone, and then it is time too.
            let _ = closed.await;
        };
        let serving = axum::serve(listener, router(app.clone())).with_graceful_shutdown(until).into_future();
        let mut serving = pin!(serving);
        let ended = async {
            shutdown.await;
            app.begin_drain();
            // Whether in time or not, what is left ends then.
            let _ = timeout(self.drain_timeout, on_engines(&app, EngineHandle::drain)).await;
            on_engines(&app, EngineHandle::shutdown).await;
        };
        let served = tokio::select! {
            served = &mut serving => served,
            () = ended => {
                // A receiver that is gone has nothing to close.
                let _ = close.send(());
                timeout(FAREWELL, serving).await.unwrap_or(Ok(()))
            }
        };
        on_engines(&app, EngineHandle::shutdown).await;
        served.map_err(|error| Error::new(ErrorKind::Network, error.to_string()))
    }
}

/// Calls something that blocks on every engine, outside the runtime's own threads.
async fn on_engines(app: &App, act: fn(&EngineHandle)) {
    let app = app.clone();
    // A panic there has ended the engine too.
    let _ = spawn_blocking(move || app.models().iter().for_each(|model| act(&model.engine))).await;
}

fn router(app: App) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completion::complete))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/tokenize", post(vocabulary::tokenize))
        .route("/detokenize", post(vocabulary::detokenize))
        .route("/apply-template", post(chat::apply_template))
        .route("/v1/requests/{id}/cancel", post(cancel::cancel))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/models", get(list))
        .route("/v1/models/{*id}", get(show))
        .route("/health", get(health))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
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
