//! A response that is being made: whole, or as events.
//!
//! Invariants: a stream begins with `response.created` and ends with one of `response.completed`,
//! `response.incomplete` and `response.failed`; a response is kept once it has ended well, whether or not its client
//! still listens to the last event; what may be as long as the request is written by a worker.

use super::{
    event::Events,
    item::Item,
    object::{Failure, Incomplete, ResponseObject, Usage},
    output::{Output, Status},
    request::Echo,
    store::Kept,
};
use crate::{
    http::{answer::Answer, error::ApiError, part::Part, state::App, worker::Workers},
    model::unix_seconds,
};
use axum::{
    Json,
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde_json::{Value, json};
use std::time::Instant;

/// What ids of responses begin with.
pub(super) const PREFIX: &str = "resp_";

/// A response on its way.
#[derive(Debug)]
pub(super) struct Making {
    answer: Answer,
    asked: Echo,
    /// All items of its input, if it is kept with them.
    keeping: Option<Vec<Item>>,
    app: App,
    output: Output,
    events: Events,
    ended: bool,
}

/// What comes next of the answer.
type Next = Option<Result<(usize, Part), ApiError>>;

impl Making {
    /// The response that an answer becomes, with its first events if it is streamed. It is kept with `keeping`, if anything.
    pub(super) fn new(
        answer: Answer,
        (asked, keeping): (Echo, Option<Vec<Item>>),
        app: App,
        streamed: bool,
    ) -> Self {
        let name = answer.head.id.trim_start_matches(PREFIX);
        let output = Output::new(name, &answer.tokenizer);
        let events = Events::new(streamed);
        let mut making = Self { answer, asked, keeping, app, output, events, ended: false };
        if streamed {
            for kind in ["response.created", "response.in_progress"] {
                let begun = json!({"response": making.object(Status::InProgress)});
                making.events.put(kind, begun);
            }
        }
        making
    }

    /// The whole response.
    ///
    /// # Errors
    /// The answer failed.
    pub(super) async fn whole(mut self) -> Result<Response, ApiError> {
        let mut reason = "stop";
        while let Some(next) = self.answer.next().await {
            match next?.1 {
                Part::End(end) => reason = end,
                part @ Part::More(_) => self = self.take(Some(Ok((0, part)))).await?,
            }
        }
        let writers = self.writers();
        writers.run(move || Json(self.end(reason)).into_response()).await
    }

    /// The response that streams it, with a comment line whenever nothing else was sent for some time.
    pub(super) fn stream(self) -> Response {
        let alive = KeepAlive::new().interval(self.app.keep_alive()).text("keep-alive");
        let events = stream::unfold(Some(self), |making| async move {
            let mut making = making?;
            loop {
                if let Some(event) = making.events.take() {
                    return Some((event, Some(making)));
                }
                if making.ended {
                    return None;
                }
                let next = making.answer.next().await;
                making = making.take(next).await.ok()?;
            }
        });
        Sse::new(events).keep_alive(alive).into_response()
    }

    fn writers(&self) -> Workers {
        self.app.writers().clone()
    }

    /// Takes what comes next of the answer: at once, or by a worker where that may take long.
    async fn take(mut self, next: Next) -> Result<Self, ApiError> {
        match next {
            Some(Ok((_, Part::More(piece)))) if !piece.is_long() => {
                self.output.add(piece, &mut self.events);
                Ok(self)
            }
            next => {
                let writers = self.writers();
                let take = move || {
                    self.note(next);
                    self
                };
                writers.run(take).await
            }
        }
    }

    fn note(&mut self, next: Next) {
        match next {
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
        let Some(items) = self.keeping.take() else { return };
        let input = items.iter().map(|item| json!(item));
        let items: Value = input.chain(response.output.iter().map(|item| json!(item))).collect();
        let object = json!(response).to_string().into();
        let kept = Kept { id: response.id.clone(), object, items: items.to_string().into() };
        self.app.responses().keep(kept, Instant::now());
    }
}
