//! A response that is lost because work on it panicked: what is known of it beside, for its stream's last event.
//!
//! Invariants: its number follows on those that have gone out; there is an event, even if its writing panics as well.

use super::{
    event::{Events, Sent},
    object::ResponseObject,
    output::Status,
    request::Echo,
};
use crate::http::{answer::Head, error::ApiError, worker::Workers};
use axum::response::sse;
use serde_json::json;
use std::sync::Arc;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) error: ApiError,
    pub(super) head: Head,
    pub(super) asked: Arc<Echo>,
    /// None that wait.
    pub(super) events: Events,
    pub(super) writers: Workers,
}

impl Lost {
    /// The last event of its stream: `response.failed`, else the error alone.
    pub(super) async fn event(self) -> Sent {
        let Self { error, head, asked, mut events, writers } = self;
        let alone = sse::Event::default().json_data(error.body());
        let write = move || {
            let failed = ResponseObject::new(&head, Echo::clone(&asked), Status::Failed).failed(error);
            events.put("response.failed", json!({"response": failed}));
            events.take()
        };
        writers.run(write).await.ok().flatten().unwrap_or(alone)
    }
}
