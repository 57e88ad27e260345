//! Answers as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Invariants: one chunk of each choice carries its finish reason; `[DONE]` is the last line of a stream that did not fail; a
//! failure is one event with an `error`, after which the stream closes; a client that leaves drops the
//! answer, which cancels its rows.

use super::{answer::Answer, part::Part, state::App, worker::Workers};
use axum::response::{
    IntoResponse, Response,
    sse::{self, KeepAlive, Sse},
};
use futures_util::stream;
use serde::Serialize;
use std::collections::VecDeque;

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

/// The response that streams an answer, with a comment line whenever nothing else was sent for some time.
pub(crate) fn respond(answer: Answer, chunks: impl Chunks, app: &App) -> Response {
    let waiting: VecDeque<Event> = chunks.opening(&answer).iter().map(event).collect();
    let state = Streaming { answer, chunks, waiting, writers: app.writers().clone(), ended: false };
    let events = stream::unfold(Some(state), |state| async move { state?.next().await });
    let alive = KeepAlive::new().interval(app.keep_alive()).text("keep-alive");
    Sse::new(events).keep_alive(alive).into_response()
}

fn event(data: &impl Serialize) -> Event {
    sse::Event::default().json_data(data)
}

struct Streaming<C> {
    answer: Answer,
    chunks: C,
    waiting: VecDeque<Event>,
    writers: Workers,
    ended: bool,
}

impl<C: Chunks> Streaming<C> {
    /// The next event and what comes after it, until there is none.
    async fn next(mut self) -> Option<(Event, Option<Self>)> {
        if let Some(event) = self.waiting.pop_front() {
            return Some((event, Some(self)));
        }
        if self.ended {
            return None;
        }
        let event = match self.answer.next().await {
            Some(Ok((choice, part))) if part.is_long() => return Some(self.write(choice, part).await),
            Some(Ok((choice, part))) => event(&self.chunks.part(&self.answer, choice, part)),
            Some(Err(error)) => {
                self.ended = true;
                event(&error.body())
            }
            None => {
                self.ended = true;
                self.waiting.extend(self.chunks.closing(&self.answer).iter().map(event));
                self.waiting.push_back(Ok(sse::Event::default().data("[DONE]")));
                self.waiting.pop_front()?
            }
        };
        Some((event, Some(self)))
    }

    /// The event of a part that takes time to write.
    async fn write(self, choice: usize, part: Part) -> (Event, Option<Self>) {
        let writers = self.writers.clone();
        let write = move || (event(&self.chunks.part(&self.answer, choice, part)), Some(self));
        writers.run(write).await.unwrap_or_else(|error| (event(&error.body()), None))
    }
}
