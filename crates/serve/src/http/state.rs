//! What every handler can reach.

use super::{
    answer::Answer, cancel::Running, error::ApiError, metrics::Recorder, responses::Store, worker::Workers,
};
use crate::model::ServedModel;
use axum::{http::StatusCode, response::Response};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tandem_engine::Phase;

/// The served models, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct App {
    models: Arc<[Arc<ServedModel>]>,
    draining: Arc<AtomicBool>,
    keep_alive: Duration,
    running: Running,
    responses: Store,
    /// They write answers; others read requests, so that neither waits for the other.
    writers: Workers,
}

impl App {
    pub(crate) fn new(models: Vec<ServedModel>, keep_alive: Duration) -> Self {
        Self {
            models: models.into_iter().map(Arc::new).collect(),
            draining: Arc::default(),
            keep_alive,
            running: Running::new(Recorder::new()),
            responses: Store::default(),
            writers: Workers::default(),
        }
    }

    /// Silence after which a stream sends a comment.
    pub(crate) fn keep_alive(&self) -> Duration {
        self.keep_alive
    }

    /// The requests that run, by their ids.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// What has happened to requests so far.
    pub(crate) fn recorder(&self) -> &Recorder {
        self.running.recorder()
    }

    /// The responses that are kept.
    pub(crate) fn responses(&self) -> &Store {
        &self.responses
    }

    /// What writes answers, or parts of them, that are long.
    pub(crate) fn writers(&self) -> &Workers {
        &self.writers
    }

    /// Writes an answer that has ended: at once, or by a writer where it is long.
    pub(crate) async fn write(
        &self,
        answer: Answer,
        write: impl FnOnce(&Answer) -> Response + Send + 'static,
    ) -> Result<Response, ApiError> {
        if answer.is_long() {
            return self.writers.run(move || write(&answer)).await;
        }
        Ok(write(&answer))
    }

    pub(crate) fn models(&self) -> &[Arc<ServedModel>] {
        &self.models
    }

    /// The model that a request names. The only one also answers to no name and to `default_model`.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        let name = name.unwrap_or_default();
        match &*self.models {
            [only] if matches!(name, "" | "default_model") => Ok(Arc::clone(only)),
            models => models.iter().find(|model| model.name == name).map(Arc::clone).ok_or_else(|| {
                let known: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
                let message = format!("there is no model {name:?}; known: {}", known.join(", "));
                ApiError { param: Some("model".to_owned()), ..ApiError::new(StatusCode::NOT_FOUND, message) }
                    .code("model_not_found")
            }),
        }
    }

    /// The worst that can be said of any model; nothing while requests are taken.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        let worst =
            self.models.iter().map(|model| model.engine.phase()).filter(|phase| *phase != Phase::Ready).max();
        match worst {
            Some(Phase::Failed) => Some("failed"),
            _ if self.draining.load(Ordering::Relaxed) => Some("draining"),
            Some(Phase::Loading) => Some("loading"),
            Some(Phase::Draining) => Some("draining"),
            Some(Phase::Stopped) => Some("stopped"),
            Some(Phase::Ready) | None => None,
        }
    }

    /// From now on health says that no new work is taken.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
