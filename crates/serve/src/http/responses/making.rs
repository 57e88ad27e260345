//! A response that is being made: whole, or as events.
//!
//! Invariants: a stream begins with `response.created` and ends with one of `response.completed`,
//! `response.incomplete` and `response.failed`; a response is kept once it has ended well, whether or not its client
//! still listens to the last event.

use super::{
    event::Events,
    item::Item,
    object::{Failure, Incomplete, ResponseObject, Usage},
    output::{Output, Status},
    request::Echo,
    store::{Kept, Store},
};
use crate::{
    http::{answer::Answer, error::ApiError, part::Part},
    model::unix_seconds,
};
use axum::response::{
    IntoResponse, Response,
    sse::{KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What ids of responses begin with.
pub(super) const PREFIX: &str = "resp_";

/// A response on its way.
#[derive(Debug)]
pub(super) struct Making {
    answer: Answer,
    asked: Echo,
    /// All items of its input, and where it is kept with them.
    keeping: Option<(Store, Vec<Item>)>,
    output: Output,
    events: Events,
    ended: bool,
}

impl Making {
    /// The response that an answer becomes. It is kept if `keeping` says where.
    pub(super) fn new(answer: Answer, asked: Echo, keeping: Option<(Store, Vec<Item>)>) -> Self {
        let name = answer.head.id.trim_start_matches(PREFIX);
        let output = Output::new(name, &answer.tokenizer);
        Self { answer, asked, keeping, output, events: Events::default(), ended: false }
    }

    /// The whole response.
    ///
    /// # Errors
    /// The answer failed.
    pub(super) async fn whole(mut self) -> Result<ResponseObject, ApiError> {
        let mut reason = "stop";
        while let Some(next) = self.answer.next().await {
            match next?.1 {
                Part::More(piece) => self.output.add(piece, &mut self.events),
                Part::End(end) => reason = end,
            }
            self.events.clear();
        }
        Ok(self.end(reason))
    }

    /// The response that streams it, with a comment line whenever nothing else was sent for `keep_alive`.
    pub(super) fn stream(mut self, keep_alive: Duration) -> Response {
        for kind in ["response.created", "response.in_progress"] {
            let begun = json!({"response": self.object(Status::InProgress)});
            self.events.put(kind, begun);
        }
        let events = stream::unfold(self, |mut making| async {
            loop {
                if let Some(event) = making.events.take() {
                    return Some((event, making));
                }
                if making.ended {
                    return None;
                }
                making.advance().await;
            }
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive).text("keep-alive")).into_response()
    }

    async fn advance(&mut self) {
        match self.answer.next().await {
            Some(Ok((_, Part::More(piece)))) => self.output.add(piece, &mut self.events),
            Some(Ok((_, Part::End(reason)))) => {
                let response = self.end(reason);
                let kind = match response.status {
                    Status::Incomplete => "response.incomplete",
                    _ => "response.completed",
                };
                self.events.put(kind, json!({"response": response}));
            }
            Some(Err(error)) => {
                let failure = Failure { code: "server_error", message: error.message };
                let failed = ResponseObject { error: Some(failure), ..self.object(Status::Failed) };
                self.events.put("response.failed", json!({"response": failed}));
                self.ended = true;
            }
            None => self.ended = true,
        }
    }

    /// The object at its end.
    fn end(&mut self, reason: &str) -> ResponseObject {
        self.ended = true;
        let cut = reason == "length";
        let status = if cut { Status::Incomplete } else { Status::Completed };
        self.output.finish(status, &mut self.events);
        let response = ResponseObject {
            completed_at: (!cut).then(unix_seconds),
            incomplete_details: cut.then_some(Incomplete { reason: "max_output_tokens" }),
            usage: Some(Usage::from(self.answer.usage())),
            ..self.object(status)
        };
        self.keep(&response);
        response
    }

    fn object(&self, status: Status) -> ResponseObject {
        let head = &self.answer.head;
        ResponseObject {
            id: head.id.clone(),
            object: "response",
            created_at: head.created,
            completed_at: None,
            status,
            background: false,
            error: None,
            incomplete_details: None,
            model: head.model.clone(),
            output: self.output.items.clone(),
            usage: None,
            asked: self.asked.clone(),
        }
    }

    fn keep(&mut self, response: &ResponseObject) {
        let Some((store, items)) = self.keeping.take() else { return };
        let input = items.iter().map(|item| json!(item));
        let items: Value = input.chain(response.output.iter().map(|item| json!(item))).collect();
        let object = json!(response).to_string().into();
        let kept = Kept { id: response.id.clone(), object, items: items.to_string().into() };
        store.keep(kept, Instant::now());
    }
}
