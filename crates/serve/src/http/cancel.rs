//! `POST /v1/requests/{id}/cancel`: ends a request by the id that its answer carries.
//!
//! Invariants: an id is known from the moment at which its request was taken until its answer has ended; its rows
//! leave within one step.

use super::{answer::Answer, error::ApiError, state::App};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tandem_contracts::request::RequestId;
use tandem_engine::EngineHandle;

/// The requests that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<String, Rows>>>);

/// The rows of one request.
#[derive(Clone, Debug)]
struct Rows {
    engine: EngineHandle,
    ids: Vec<RequestId>,
}

/// Keeps a request known; dropped with its answer.
#[derive(Debug)]
pub(crate) struct Known {
    running: Running,
    id: String,
}

impl Running {
    fn rows(&self) -> MutexGuard<'_, HashMap<String, Rows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an answer's id known for as long as the answer lasts.
    pub(crate) fn know(&self, answer: &mut Answer, engine: &EngineHandle) {
        let id = answer.head.id.clone();
        self.rows().insert(id.clone(), Rows { engine: engine.clone(), ids: answer.ids() });
        answer.known = Some(Known { running: self.clone(), id });
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.running.rows().remove(&self.id);
    }
}

/// Cancels a request.
pub(crate) async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let rows = app.running().rows().get(&id).cloned();
    let Some(rows) = rows else {
        return Err(ApiError::new(StatusCode::NOT_FOUND, format!("no request of this id is running: {id}")));
    };
    rows.ids.iter().for_each(|&id| rows.engine.cancel(id));
    Ok(Json(json!({"id": id, "cancelled": true})))
}
