//! Answers as Anthropic's blocks of content: one message, or events that build it.
//!
//! Invariants: blocks are numbered from 0 and open one at a time; a message has at least one block, if only of no text;
//! a stream ends with `message_delta` and `message_stop`, or with one `error`.

use super::envelope;
use crate::http::{
    answer::Answer,
    part::{Part, Piece, Whole},
    reply::CallPiece,
};
use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, convert::Infallible, time::Duration};

/// The strings that end an answer.
#[derive(Debug)]
pub(super) struct Stops(pub(super) Vec<String>);

impl Stops {
    /// `stop_reason` and `stop_sequence` of the only choice.
    fn reason(&self, answer: &Answer, reason: &str) -> (&'static str, Option<&str>) {
        let sequence = answer.stop(0).and_then(|index| self.0.get(index));
        match reason {
            "tool_calls" => ("tool_use", None),
            "length" => ("max_tokens", None),
            _ if sequence.is_some() => ("stop_sequence", sequence.map(String::as_str)),
            _ => ("end_turn", None),
        }
    }
}

/// A whole message.
pub(super) fn message(answer: &Answer, wholes: Vec<Whole>, stops: &Stops) -> Value {
    let whole = wholes.into_iter().next().unwrap_or_default();
    let (reason, sequence) = stops.reason(answer, whole.reason);
    let mut content = Vec::new();
    if !whole.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": whole.reasoning, "signature": ""}));
    }
    if !whole.text.is_empty() || (whole.calls.is_empty() && content.is_empty()) {
        content.push(json!({"type": "text", "text": whole.text}));
    }
    for call in &whole.calls {
        let input: Value = serde_json::from_str(&call.arguments)
            .ok()
            .filter(Value::is_object)
            // What the model broke stays readable.
            .unwrap_or_else(|| json!({"arguments": call.arguments}));
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    let usage = answer.usage();
    json!({
        "id": answer.head.id, "type": "message", "role": "assistant", "model": answer.head.model,
        "content": content, "stop_reason": reason, "stop_sequence": sequence,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    })
}

/// The response that streams an answer to a prompt of so many tokens, with a `ping` whenever nothing else was sent for
/// `keep_alive`.
pub(super) fn stream(answer: Answer, stops: Stops, prompt: usize, keep_alive: Duration) -> Response {
    let head = &answer.head;
    let message = json!({
        "id": head.id, "type": "message", "role": "assistant", "model": head.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": prompt, "output_tokens": 0},
    });
    let waiting = VecDeque::from([json!({"type": "message_start", "message": message})]);
    let state = Streaming { answer, stops, blocks: Blocks::default(), waiting, ended: false };
    let events = stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        Some((Ok::<_, Infallible>(Event::default().event(kind).data(event.to_string())), state))
    });
    let ping = Event::default().event("ping").data(json!({"type": "ping"}).to_string());
    Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive).event(ping)).into_response()
}

struct Streaming {
    answer: Answer,
    stops: Stops,
    blocks: Blocks,
    waiting: VecDeque<Value>,
    ended: bool,
}

impl Streaming {
    async fn next(&mut self) -> Option<Value> {
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
                    self.waiting.push_back(envelope(&error));
                }
                None => self.ended = true,
            }
        }
    }

    fn end(&mut self, reason: &str) {
        self.blocks.finish(&mut self.waiting);
        let (reason, sequence) = self.stops.reason(&self.answer, reason);
        let tokens = &self.answer.usage()["completion_tokens"];
        self.waiting.push_back(json!({
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": {"output_tokens": tokens},
        }));
        self.waiting.push_back(json!({"type": "message_stop"}));
        self.ended = true;
    }
}

/// The block that is open, and how many there were.
#[derive(Debug, Default)]
struct Blocks {
    open: Option<&'static str>,
    count: usize,
}

impl Blocks {
    fn add(&mut self, piece: Piece, events: &mut VecDeque<Value>) {
        if let Some(CallPiece { head, arguments, .. }) = piece.call {
            if let Some((id, name)) = head {
                self.close(events);
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin("tool_use", &block, events);
            }
            self.delta(&json!({"type": "input_json_delta", "partial_json": arguments}), &arguments, events);
        }
        if !piece.reasoning.is_empty() {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            self.begin("thinking", &block, events);
            let delta = json!({"type": "thinking_delta", "thinking": piece.reasoning});
            self.delta(&delta, &piece.reasoning, events);
        }
        if !piece.text.is_empty() {
            self.begin("text", &json!({"type": "text", "text": ""}), events);
            self.delta(&json!({"type": "text_delta", "text": piece.text}), &piece.text, events);
        }
    }

    /// Opens a block of a kind, unless one of it is open.
    fn begin(&mut self, kind: &'static str, block: &Value, events: &mut VecDeque<Value>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(events);
        self.open = Some(kind);
        self.count += 1;
        let index = self.count - 1;
        events.push_back(json!({"type": "content_block_start", "index": index, "content_block": block}));
    }

    fn delta(&self, delta: &Value, more: &str, events: &mut VecDeque<Value>) {
        if !more.is_empty() {
            let index = self.count.saturating_sub(1);
            events.push_back(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
    }

    fn close(&mut self, events: &mut VecDeque<Value>) {
        if self.open.take().is_some() {
            events.push_back(json!({"type": "content_block_stop", "index": self.count - 1}));
        }
    }

    fn finish(&mut self, events: &mut VecDeque<Value>) {
        if self.count == 0 {
            self.begin("text", &json!({"type": "text", "text": ""}), events);
        }
        self.close(events);
    }
}
