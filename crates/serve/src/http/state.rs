//! What every handler can reach.

use super::error::ApiError;
use crate::model::ServedModel;
use axum::http::StatusCode;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The served models, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct App {
    models: Arc<[Arc<ServedModel>]>,
    draining: Arc<AtomicBool>,
}

impl App {
    pub(crate) fn new(models: Vec<ServedModel>) -> Self {
        Self { models: models.into_iter().map(Arc::new).collect(), draining: Arc::default() }
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

    /// Whether requests are taken.
    pub(crate) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.models.iter().all(|model| model.engine.is_ready())
    }

    /// From now on health says that no new work is taken.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
