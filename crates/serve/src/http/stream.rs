//! Answers as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Invariants: one chunk carries the finish reason; `[DONE]` is the last line of a stream that did not fail; a
//! failure is one event with an `error`, after which the stream closes; a client that leaves drops the
//! subscription, which cancels the row.

use super::answer::{Answer, lost, reason};
use axum::response::{
    IntoResponse, Response,
    sse::{self, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::Value;
use std::{collections::VecDeque, convert::Infallible, time::Duration};
use tandem_contracts::request::{Event, Usage};

/// The objects of one kind of stream.
pub(crate) trait Chunks: Send + 'static {
    /// Before any text.
    fn opening(&self, answer: &Answer) -> Vec<Value>;

    /// For more text.
    fn text(&self, answer: &Answer, text: String) -> Value;

    /// At the end: the finish reason, then the usage if it was asked for.
    fn closing(&self, answer: &Answer, reason: &'static str, usage: Usage) -> Vec<Value>;
}

/// The response that streams an answer, with a comment line whenever nothing else was sent for `keep_alive`.
pub(crate) fn respond(answer: Answer, chunks: impl Chunks, keep_alive: Duration) -> Response {
    let waiting: VecDeque<String> = chunks.opening(&answer).iter().map(Value::to_string).collect();
    let state = Streaming { answer, chunks, waiting, ended: false };
    let events = stream::unfold(state, |mut state| async {
        let data = state.next().await?;
        Some((Ok::<_, Infallible>(sse::Event::default().data(data)), state))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive).text("keep-alive")).into_response()
}

struct Streaming<C> {
    answer: Answer,
    chunks: C,
    waiting: VecDeque<String>,
    ended: bool,
}

impl<C: Chunks> Streaming<C> {
    /// The data of the next event, until there is none.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.waiting.pop_front() {
                return Some(data);
            }
            if self.ended {
                return None;
            }
            match self.answer.subscription.next().await {
                Some(Event::Progress { .. }) => {}
                // Characters or stop strings are open: there is nothing to say yet.
                Some(Event::Delta { text, .. }) if text.is_empty() => {}
                Some(Event::Delta { text, .. }) => {
                    return Some(self.chunks.text(&self.answer, text).to_string());
                }
                Some(Event::Finished { outcome, usage }) => self.end(reason(&outcome), usage),
                None => self.end(Err(lost()), Usage::default()),
            }
        }
    }

    fn end(&mut self, reason: Result<&'static str, super::error::ApiError>, usage: Usage) {
        self.ended = true;
        match reason {
            Err(error) => self.waiting.push_back(error.body().to_string()),
            Ok(reason) => {
                let closing = self.chunks.closing(&self.answer, reason, usage);
                self.waiting.extend(closing.iter().map(Value::to_string));
                self.waiting.push_back("[DONE]".to_owned());
            }
        }
    }
}
