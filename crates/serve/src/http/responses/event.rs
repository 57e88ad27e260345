//! Events of a streamed response.
//!
//! Invariants: events are numbered from 0 without a gap; each has its type in its name and in its data.

use axum::response::sse;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Events that have not gone out.
#[derive(Debug, Default)]
pub(super) struct Events {
    count: u64,
    waiting: VecDeque<(&'static str, String)>,
}

impl Events {
    /// Puts an event with these fields behind those that wait.
    pub(super) fn put(&mut self, kind: &'static str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.count});
        self.count += 1;
        if let (Some(event), Value::Object(mut fields)) = (event.as_object_mut(), fields) {
            event.append(&mut fields);
        }
        self.waiting.push_back((kind, event.to_string()));
    }

    /// The next event.
    pub(super) fn take(&mut self) -> Option<sse::Event> {
        self.waiting.pop_front().map(|(kind, data)| sse::Event::default().event(kind).data(data))
    }

    /// Forgets those that wait, for whoever does not stream.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}
