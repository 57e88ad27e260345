//! Events of a streamed response.
//!
//! Invariants: events are numbered from 0 without a gap; each has its type in its name and in its data.

use axum::response::sse;
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use utoipa::ToSchema;

/// An event of a stream: its type, its number, and what belongs to a type, such as `response`, `item` or `delta`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseEvent)]
pub(crate) struct Event {
    #[schema(value_type = String, pattern = "^response\\.")]
    r#type: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    #[schema(ignore)]
    fields: Value,
}

/// Events that have not gone out.
#[derive(Debug, Default)]
pub(super) struct Events {
    count: u64,
    waiting: VecDeque<Event>,
}

impl Events {
    /// Puts an event with these fields behind those that wait.
    pub(super) fn put(&mut self, kind: &'static str, fields: Value) {
        self.waiting.push_back(Event { r#type: kind, sequence_number: self.count, fields });
        self.count += 1;
    }

    /// The next event.
    pub(super) fn take(&mut self) -> Option<Result<sse::Event, axum::Error>> {
        self.waiting.pop_front().map(|event| sse::Event::default().event(event.r#type).json_data(event))
    }

    /// Forgets those that wait, for whoever does not stream.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}
