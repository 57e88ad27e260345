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
use serde::Serialize;
use std::{collections::VecDeque, time::Duration};

/// The objects of one kind of stream.
pub(crate) trait Chunks: Send + 'static {
    /// One of them.
    type Chunk: Serialize + Send;

    /// Before any text.
    fn opening(&self, answer: &Answer) -> Vec<Self::Chunk>;

    /// For more of a choice.
    fn part(&self, answer: &Answer, choice: usize, part: Part) -> Self::Chunk;

    /// After the last choice has ended: the usage, if it was asked for.
    fn closing(&self, answer: &Answer) -> Option<Self::Chunk>;
}

/// An event, unless its data is none; nothing that is sent here is.
type Event = Result<sse::Event, axum::Error>;

/// The response that streams an answer, with a comment line whenever nothing else was sent for `keep_alive`.
pub(crate) fn respond(answer: Answer, chunks: impl Chunks, keep_alive: Duration) -> Response {
    let waiting: VecDeque<Event> = chunks.opening(&answer).iter().map(event).collect();
    let state = Streaming { answer, chunks, waiting, ended: false };
    let events = stream::unfold(state, |mut state| async { Some((state.next().await?, state)) });
    Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive).text("keep-alive")).into_response()
}

fn event(data: &impl Serialize) -> Event {
    sse::Event::default().json_data(data)
}

struct Streaming<C> {
    answer: Answer,
    chunks: C,
    waiting: VecDeque<Event>,
    ended: bool,
}

impl<C: Chunks> Streaming<C> {
    /// The next event, until there is none.
    async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.waiting.pop_front() {
            return Some(event);
        }
        if self.ended {
            return None;
        }
        match self.answer.next().await {
            Some(Ok((choice, part))) => Some(event(&self.chunks.part(&self.answer, choice, part))),
            Some(Err(error)) => {
                self.ended = true;
                Some(event(&error.body()))
            }
            None => {
                self.ended = true;
                self.waiting.extend(self.chunks.closing(&self.answer).iter().map(event));
                self.waiting.push_back(Ok(sse::Event::default().data("[DONE]")));
                self.waiting.pop_front()
            }
        }
    }
}
