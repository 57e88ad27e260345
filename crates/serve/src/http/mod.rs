//! The HTTP server: routes, and the life of the listening socket.
//!
//! | module | what it does |
//! |---|---|
//! | `chat`, `completion` | the generating endpoints |
//! | `generation` | the fields that they share |
//! | `body`, `error` | what comes in malformed, and how it is answered |
//! | `answer`, `stream`, `wire` | events of the engine, as one object or as a stream |
//! | `state` | the served models |

mod answer;
mod body;
mod chat;
mod completion;
mod error;
mod generation;
mod state;
mod stream;
mod wire;

use crate::{
    error::{Error, ErrorKind},
    model::ServedModel,
};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use error::ApiError;
use serde_json::{Value, json};
use state::App;
use std::{future::Future, time::Duration};
use tandem_engine::EngineHandle;
use tokio::{
    net::TcpListener,
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// Time that clients have to read the end of their answers once everything has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// The server of some models.
#[derive(Debug)]
pub struct Server {
    app: App,
    drain_timeout: Duration,
}

impl Server {
    /// A server of `models`. At shutdown running answers have `drain_timeout` to finish.
    pub fn new(models: Vec<ServedModel>, drain_timeout: Duration) -> Self {
        Self { app: App::new(models), drain_timeout }
    }

    /// Serves connections of `listener` until `shutdown` resolves, then drains: nothing new is taken, running
    /// answers finish or the time for that runs out.
    ///
    /// # Errors
    /// [`ErrorKind::Network`]: the listener failed.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let (told, tell) = tokio::sync::oneshot::channel();
        let app = self.app.clone();
        let until = async move {
            shutdown.await;
            app.begin_drain();
            // The receiver lives as long as the server below.
            let _ = told.send(());
        };
        let app = self.app.clone();
        let serving = axum::serve(listener, router(self.app)).with_graceful_shutdown(until).into_future();
        let drained = async {
            if tell.await.is_err() {
                // The server has ended by itself, which the other branch reports.
                std::future::pending::<()>().await;
            }
            // Whether in time or not, what is left ends then.
            let _ = timeout(self.drain_timeout, on_engines(&app, EngineHandle::drain)).await;
            on_engines(&app, EngineHandle::shutdown).await;
            sleep(FAREWELL).await;
        };
        let served = tokio::select! {
            served = serving => served,
            () = drained => Ok(()),
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
        .route("/v1/chat/completions", post(chat::complete))
        .route("/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completion::complete))
        .route("/v1/models", get(list))
        .route("/v1/models/{*id}", get(show))
        .route("/health", get(health))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(body::LIMIT))
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
    if app.is_ready() {
        return Json(json!({"status": "ok"})).into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "unavailable"}))).into_response()
}

async fn unknown(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at: {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("another method is needed at: {}", uri.path()))
}
