//! `POST /v1/requests/{id}/cancel`: ends a request by the id that its answer carries; and the list of those that run.
//!
//! Invariants: an id is known from the moment at which its request was taken until its answer has ended; its rows
//! leave within one step.

use super::{
    answer::Answer, document::Finds, error::ApiError, meter::Meter, metrics::Recorder, path::Name, state::App,
};
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tandem_contracts::request::{Event, RequestId};
use tandem_engine::EngineHandle;
use utoipa::ToSchema;

/// The requests that run, and where they are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    rows: Arc<Mutex<HashMap<String, Rows>>>,
    recorder: Recorder,
}

/// The rows of one request.
#[derive(Clone, Debug)]
struct Rows {
    engine: EngineHandle,
    ids: Vec<RequestId>,
}

/// Keeps a request known and measures it; dropped with its answer.
#[derive(Debug)]
pub(crate) struct Known {
    running: Running,
    id: String,
    meter: Meter,
}

impl Running {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { rows: Arc::default(), recorder }
    }

    /// Where requests are recorded.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<String, Rows>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an answer's id known for as long as the answer lasts, and measures it.
    pub(crate) fn know(&self, answer: &mut Answer, engine: &EngineHandle) {
        let id = answer.head.id.clone();
        let rows = (answer.len(), answer.choices());
        let meter = Meter::new(&self.recorder, (&id, &answer.head.model), rows);
        self.rows().insert(id.clone(), Rows { engine: engine.clone(), ids: answer.ids() });
        answer.known = Some(Known { running: self.clone(), id, meter });
    }
}

impl Known {
    /// Notes what has come of a row.
    pub(super) fn see(&mut self, row: usize, event: &Event) {
        self.meter.see(row, event);
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.running.rows().remove(&self.id);
    }
}

/// A request that ends within one step.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Cancelled {
    id: String,
    cancelled: bool,
}

/// Cancels a request.
#[utoipa::path(
    post, path = "/v1/requests/{id}/cancel", operation_id = "cancel",
    params(("id" = String, Path, description = "The id that the answer carries.")),
    responses((status = 200, description = "Its rows leave within one step.", body = Cancelled), Finds)
)]
pub(crate) async fn cancel(State(app): State<App>, Name(id): Name) -> Result<Json<Cancelled>, ApiError> {
    let rows = app.running().rows().get(&id).cloned();
    let Some(rows) = rows else {
        return Err(ApiError::new(StatusCode::NOT_FOUND, format!("no request of this id is running: {id}")));
    };
    rows.ids.iter().for_each(|&id| rows.engine.cancel(id));
    Ok(Json(Cancelled { id, cancelled: true }))
}
