//! Answers as Anthropic's blocks of content: one message, or events that build it.
//!
//! Invariants: blocks are numbered from 0 and open one at a time; a message has at least one block, if only of no text;
//! a stream ends with `message_delta` and `message_stop`, or with one `error`.

use super::{
    because,
    object::{Block, Delta, End, Event, Message, OutputUsage, Usage},
};
use crate::http::{
    answer::Answer,
    part::{Part, Piece, Whole},
    reply::CallPiece,
};
use axum::response::{
    IntoResponse, Response,
    sse::{self, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, mem, time::Duration};

/// The strings that end an answer.
#[derive(Debug)]
pub(super) struct Stops(pub(super) Vec<String>);

impl Stops {
    /// How the only choice has ended.
    fn end(&self, answer: &Answer, reason: &str) -> End {
        let sequence = answer.stop(0).and_then(|index| self.0.get(index));
        let (reason, stop_sequence) = match reason {
            "tool_calls" => ("tool_use", None),
            "length" => ("max_tokens", None),
            _ if sequence.is_some() => ("stop_sequence", sequence.cloned()),
            _ => ("end_turn", None),
        };
        End { stop_reason: Some(reason), stop_sequence }
    }
}

fn thinking(thinking: String) -> Block {
    Block::Thinking { thinking, signature: "" }
}

/// A message of this content.
fn message_of(answer: &Answer, content: Vec<Block>, end: End, usage: Usage) -> Message {
    let (id, model) = (answer.head.id.clone(), answer.head.model.clone());
    Message { id, r#type: "message", role: "assistant", model, content, end, usage }
}

/// A whole message.
pub(super) fn message(answer: &Answer, wholes: Vec<Whole>, stops: &Stops) -> Message {
    let whole = wholes.into_iter().next().unwrap_or_default();
    let end = stops.end(answer, whole.reason);
    let mut content = Vec::new();
    if !whole.reasoning.is_empty() {
        content.push(thinking(whole.reasoning));
    }
    if !whole.text.is_empty() || (whole.calls.is_empty() && content.is_empty()) {
        content.push(Block::Text { text: whole.text });
    }
    for call in whole.calls {
        let input: Option<Value> = serde_json::from_str(&call.arguments).ok();
        // What the model broke stays readable.
        let input = input.filter(Value::is_object).unwrap_or_else(|| json!({"arguments": call.arguments}));
        content.push(Block::ToolUse { id: call.id, name: call.name, input });
    }
    let usage = answer.usage();
    let usage = Usage { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens };
    message_of(answer, content, end, usage)
}

/// The response that streams an answer to a prompt of so many tokens, with a `ping` whenever nothing else was sent for
/// `keep_alive`.
pub(super) fn stream(answer: Answer, stops: Stops, prompt: usize, keep_alive: Duration) -> Response {
    let usage = Usage { input_tokens: prompt, output_tokens: 0 };
    let message = message_of(&answer, Vec::new(), End::default(), usage);
    let waiting = VecDeque::from([Event::MessageStart { message }]);
    let state = Streaming { answer, stops, blocks: Blocks::default(), waiting, ended: false };
    let events = stream::unfold(state, |mut state| async { Some((sent(&state.next().await?), state)) });
    let alive = KeepAlive::new().interval(keep_alive);
    // What cannot be written is not sent.
    let alive = sent(&Event::Ping).map_or_else(|_| KeepAlive::new(), |ping| alive.event(ping));
    Sse::new(events).keep_alive(alive).into_response()
}

fn sent(event: &Event) -> Result<sse::Event, axum::Error> {
    sse::Event::default().event(event.kind()).json_data(event)
}

struct Streaming {
    answer: Answer,
    stops: Stops,
    blocks: Blocks,
    waiting: VecDeque<Event>,
    ended: bool,
}

impl Streaming {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.answer.next().await {
                Some(Ok((_, Part::More(piece)))) => self.blocks.add(piece, &mut self.waiting),
                Some(Ok((_, Part::End(reason)))) => self.end(reason),
                Some(Err(error)) => {
                    self.ended = true;
                    self.waiting.push_back(Event::Error { error: because(&error) });
                }
                None => self.ended = true,
            }
        }
    }

    fn end(&mut self, reason: &str) {
        self.blocks.finish(&mut self.waiting);
        let delta = self.stops.end(&self.answer, reason);
        let usage = OutputUsage { output_tokens: self.answer.usage().completion_tokens };
        self.waiting.extend([Event::MessageDelta { delta, usage }, Event::MessageStop]);
        self.ended = true;
    }
}

/// The block that is open, without its content, and how many there were.
#[derive(Debug, Default)]
struct Blocks {
    open: Option<Block>,
    count: usize,
}

impl Blocks {
    fn add(&mut self, piece: Piece, events: &mut VecDeque<Event>) {
        if let Some(CallPiece { head, arguments, .. }) = piece.call {
            if let Some((id, name)) = head {
                self.close(events);
                self.begin(Block::ToolUse { id, name, input: json!({}) }, events);
            }
            self.delta(Delta::Input { partial_json: arguments }, events);
        }
        if !piece.reasoning.is_empty() {
            self.begin(thinking(String::new()), events);
            self.delta(Delta::Thinking { thinking: piece.reasoning }, events);
        }
        if !piece.text.is_empty() {
            self.begin(Block::Text { text: String::new() }, events);
            self.delta(Delta::Text { text: piece.text }, events);
        }
    }

    /// Opens a block, unless one of its kind is open.
    fn begin(&mut self, block: Block, events: &mut VecDeque<Event>) {
        let kind = mem::discriminant(&block);
        if self.open.as_ref().is_some_and(|open| mem::discriminant(open) == kind) {
            return;
        }
        self.close(events);
        self.open = Some(block.clone());
        self.count += 1;
        events.push_back(Event::ContentBlockStart { index: self.count - 1, content_block: block });
    }

    fn delta(&self, delta: Delta, events: &mut VecDeque<Event>) {
        if !delta.is_empty() {
            events.push_back(Event::ContentBlockDelta { index: self.count.saturating_sub(1), delta });
        }
    }

    fn close(&mut self, events: &mut VecDeque<Event>) {
        if self.open.take().is_some() {
            events.push_back(Event::ContentBlockStop { index: self.count - 1 });
        }
    }

    fn finish(&mut self, events: &mut VecDeque<Event>) {
        if self.count == 0 {
            self.begin(Block::Text { text: String::new() }, events);
        }
        self.close(events);
    }
}
