//! Answers as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Invariants: one chunk of each choice carries its finish reason; `[DONE]` is the last line of a stream that did not fail; a
//! failure is one event with an `error`, after which the stream closes; a client that leaves drops the
//! answer, which cancels its rows.

use super::{answer::Answer, part::Part};
use axum::response::{
    IntoResponse, Response,
    sse::{self, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::Value;
use std::{collections::VecDeque, convert::Infallible, time::Duration};

/// The objects of one kind of stream.
pub(crate) trait Chunks: Send + 'static {
    /// Before any text.
    fn opening(&self, answer: &Answer) -> Vec<Value>;

    /// For more of a choice.
    fn part(&self, answer: &Answer, choice: usize, part: Part) -> Value;

    /// After the last choice has ended: the usage, if it was asked for.
    fn closing(&self, answer: &Answer) -> Option<Value>;
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
        if let Some(data) = self.waiting.pop_front() {
            return Some(data);
        }
        if self.ended {
            return None;
        }
        match self.answer.next().await {
            Some(Ok((choice, part))) => Some(self.chunks.part(&self.answer, choice, part).to_string()),
            Some(Err(error)) => {
                self.ended = true;
                Some(error.body().to_string())
            }
            None => {
                self.ended = true;
                self.waiting.extend(self.chunks.closing(&self.answer).map(|chunk| chunk.to_string()));
                self.waiting.push_back("[DONE]".to_owned());
                self.waiting.pop_front()
            }
        }
    }
}
