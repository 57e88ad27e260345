//! Output items as they grow, and the events that tell of it.
//!
//! Invariants: items are numbered from 0 and open one at a time; each has one part of content at most; what the events
//! build is what the items are; there is at least one item, if only a message of no text.

use super::event::Events;
use crate::{
    http::{
        part::Piece,
        reply::CallPiece,
        score::{self, Scored, ScoredToken},
    },
    text::Tokenizer,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// Something that the model made.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseOutputItem)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item {
    /// What it thought.
    Reasoning {
        id: String,
        status: Status,
        /// Always empty: the reasoning itself is given.
        #[schema(value_type = Vec<String>)]
        summary: [String; 0],
        content: Vec<Text>,
    },
    /// What it said.
    Message { id: String, status: Status, role: &'static str, content: Vec<Text> },
    /// What it calls.
    FunctionCall { id: String, status: Status, call_id: String, name: String, arguments: String },
}

/// How far an item or a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseStatus)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    InProgress,
    Completed,
    /// It was cut.
    Incomplete,
    Failed,
}

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseOutputContent)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Text {
    /// Of reasoning.
    ReasoningText { text: String },
    /// Of a message.
    OutputText {
        text: String,
        /// Always empty: nothing is cited.
        #[schema(value_type = Vec<String>)]
        annotations: [String; 0],
        logprobs: Vec<ScoredToken>,
    },
}

/// The items so far.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) items: Vec<Item>,
    /// Whether the last one may grow.
    open: bool,
    /// What ids end with, so that they are the response's own.
    name: String,
    tokenizer: Arc<Tokenizer>,
}

/// What a piece adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

impl Output {
    /// No items yet, of a response with this name.
    pub(super) fn new(name: &str, tokenizer: &Arc<Tokenizer>) -> Self {
        Self { items: Vec::new(), open: false, name: name.to_owned(), tokenizer: Arc::clone(tokenizer) }
    }

    /// Takes more of the answer.
    pub(super) fn add(&mut self, piece: Piece, events: &mut Events) {
        let Piece { text, reasoning, call, tokens } = piece;
        if !reasoning.is_empty() {
            self.begin(Kind::Reasoning, events);
            self.say(&reasoning, &[], events);
        }
        if let Some(CallPiece { head, arguments, .. }) = call {
            if let Some((id, name)) = head {
                self.begin_call(id, name, events);
            }
            self.argue(&arguments, events);
        }
        let speaks = self.open && matches!(self.items.last(), Some(Item::Message { .. }));
        // Tokens of what is no message's text have no place.
        if !text.is_empty() || (speaks && !tokens.is_empty()) {
            self.begin(Kind::Message, events);
            self.say(&text, &tokens, events);
        }
    }

    /// Closes what is open; the last item is cut where the answer was.
    pub(super) fn finish(&mut self, status: Status, events: &mut Events) {
        if self.items.is_empty() {
            self.begin(Kind::Message, events);
        }
        self.close(status, events);
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.name, self.items.len())
    }

    /// Opens an item with its part, unless one of its kind is open.
    fn begin(&mut self, kind: Kind, events: &mut Events) {
        let same = match self.items.last() {
            Some(Item::Reasoning { .. }) => kind == Kind::Reasoning,
            Some(Item::Message { .. }) => kind == Kind::Message,
            Some(Item::FunctionCall { .. }) | None => false,
        };
        if self.open && same {
            return;
        }
        self.close(Status::Completed, events);
        let (status, content) = (Status::InProgress, Vec::new());
        let (item, part) = match kind {
            Kind::Reasoning => (
                Item::Reasoning { id: self.id("rs"), status, summary: [], content },
                Text::ReasoningText { text: String::new() },
            ),
            Kind::Message => (
                Item::Message { id: self.id("msg"), status, role: "assistant", content },
                Text::OutputText { text: String::new(), annotations: [], logprobs: Vec::new() },
            ),
        };
        self.put(item, events);
        let index = self.items.len() - 1;
        let Some(item) = self.items.last_mut() else { return };
        let fields = json!({"item_id": item.id(), "output_index": index, "content_index": 0, "part": part});
        events.put("response.content_part.added", fields);
        if let Some(content) = item.content() {
            content.push(part);
        }
    }

    fn begin_call(&mut self, call_id: String, name: String, events: &mut Events) {
        self.close(Status::Completed, events);
        let (id, arguments) = (self.id("fc"), String::new());
        self.put(Item::FunctionCall { id, status: Status::InProgress, call_id, name, arguments }, events);
    }

    fn put(&mut self, item: Item, events: &mut Events) {
        let fields = json!({"output_index": self.items.len(), "item": item});
        events.put("response.output_item.added", fields);
        self.items.push(item);
        self.open = true;
    }

    fn say(&mut self, more: &str, tokens: &[Scored], events: &mut Events) {
        let index = self.items.len() - 1;
        let Some(item) = self.items.last_mut() else { return };
        let mut fields = json!({
            "item_id": item.id(), "output_index": index, "content_index": 0, "delta": more,
        });
        match item.content().and_then(|content| content.last_mut()) {
            Some(Text::ReasoningText { text }) => {
                text.push_str(more);
                events.put("response.reasoning_text.delta", fields);
            }
            Some(Text::OutputText { text, logprobs, .. }) => {
                text.push_str(more);
                let scores = score::entries(&self.tokenizer, tokens);
                fields["logprobs"] = json!(scores);
                logprobs.extend(scores);
                events.put("response.output_text.delta", fields);
            }
            None => {}
        }
    }

    fn argue(&mut self, more: &str, events: &mut Events) {
        let index = self.items.len().saturating_sub(1);
        let Some(Item::FunctionCall { id, arguments, .. }) = self.items.last_mut() else { return };
        if !more.is_empty() {
            arguments.push_str(more);
            let fields = json!({"item_id": id, "output_index": index, "delta": more});
            events.put("response.function_call_arguments.delta", fields);
        }
    }

    fn close(&mut self, end: Status, events: &mut Events) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let index = self.items.len() - 1;
        let Some(item) = self.items.last_mut() else { return };
        let place = json!({"item_id": item.id(), "output_index": index});
        let with = |more: Value| {
            let mut fields = place.clone();
            for (name, value) in more.as_object().into_iter().flatten() {
                fields[name] = value.clone();
            }
            fields
        };
        if let Item::FunctionCall { name, arguments, .. } = item {
            let fields = with(json!({"name": name, "arguments": arguments}));
            events.put("response.function_call_arguments.done", fields);
        }
        if let Some(part) = item.content().and_then(|content| content.last()) {
            let (kind, more) = match part {
                Text::ReasoningText { text } => ("response.reasoning_text.done", json!({"text": text})),
                Text::OutputText { text, logprobs, .. } => {
                    ("response.output_text.done", json!({"text": text, "logprobs": logprobs}))
                }
            };
            let mut fields = with(more);
            fields["content_index"] = json!(0);
            events.put(kind, fields);
            events.put("response.content_part.done", with(json!({"content_index": 0, "part": part})));
        }
        item.end(end);
        events.put("response.output_item.done", json!({"output_index": index, "item": item}));
    }
}

impl Item {
    fn id(&self) -> &str {
        let (Self::Reasoning { id, .. } | Self::Message { id, .. } | Self::FunctionCall { id, .. }) = self;
        id
    }

    fn content(&mut self) -> Option<&mut Vec<Text>> {
        match self {
            Self::Reasoning { content, .. } | Self::Message { content, .. } => Some(content),
            Self::FunctionCall { .. } => None,
        }
    }

    fn end(&mut self, end: Status) {
        let (Self::Reasoning { status, .. }
        | Self::Message { status, .. }
        | Self::FunctionCall { status, .. }) = self;
        *status = end;
    }
}
