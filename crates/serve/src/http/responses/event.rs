//! Events of a streamed response.
//!
//! Invariants: events are numbered from 0 without a gap; each has its type in its name and in its data.

use axum::{Error, response::sse};
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

/// An event as it goes out, unless its data is none; nothing that is put here is.
pub(super) type Sent = Result<sse::Event, Error>;

/// Events that have not gone out. They are written when they are put, as that may take long, and sent elsewhere.
#[derive(Debug)]
pub(super) struct Events {
    wanted: bool,
    count: u64,
    waiting: VecDeque<Sent>,
}

impl Events {
    /// None yet; and none ever, if they are not wanted.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, count: 0, waiting: VecDeque::new() }
    }

    /// None yet that come after these, all of which have gone out.
    pub(super) fn after(&self) -> Self {
        Self { waiting: VecDeque::new(), ..*self }
    }

    /// Puts an event with these fields behind those that wait.
    pub(super) fn put(&mut self, kind: &'static str, fields: Value) {
        if self.wanted {
            let event = Event { r#type: kind, sequence_number: self.count, fields };
            self.waiting.push_back(sse::Event::default().event(kind).json_data(event));
            self.count += 1;
        }
    }

    /// The next event.
    pub(super) fn take(&mut self) -> Option<Sent> {
        self.waiting.pop_front()
    }
}
