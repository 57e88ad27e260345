//! Answers in the shapes of `mlx_lm.server`.
//!
//! Invariants: each delta carries the role; a call goes out whole; a stream scores no tokens, and tells how far the
//! prompt has been read in comments. The end token, which scores there too, has none here.

use super::{Kind, envelope};
use crate::http::{
    answer::{Answer, Step},
    error::ApiError,
    part::{Call, Part, Piece, Whole},
    score::{Scored, number},
    state::App,
};
use axum::{
    Json,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, convert::Infallible, time::Duration};
use tandem_contracts::text::TokenId;

/// What made the answer.
const FINGERPRINT: &str = concat!("tandem-", env!("CARGO_PKG_VERSION"));

/// What an answer looks like.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// The model's name as the request has it.
    pub(super) model: String,
    /// Whether a stream tells what it took.
    pub(super) usage: bool,
    /// Whether tokens come with their scores,
    pub(super) scored: bool,
    /// and with how many likely ones beside them.
    pub(super) top: usize,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Reply {
    answer: Answer,
    shape: Shape,
    /// Calls that have not gone out, and how many have.
    calls: Vec<Call>,
    called: usize,
    waiting: VecDeque<Event>,
    ended: bool,
}

impl Reply {
    pub(super) fn new(answer: Answer, shape: Shape) -> Self {
        Self { answer, shape, calls: Vec::new(), called: 0, waiting: VecDeque::new(), ended: false }
    }

    /// The response that streams it, with a comment line whenever nothing else was sent for `keep_alive`.
    pub(super) fn stream(self, keep_alive: Duration) -> Response {
        let events = stream::unfold(self, |mut reply| async {
            loop {
                if let Some(event) = reply.waiting.pop_front() {
                    return Some((Ok::<_, Infallible>(event), reply));
                }
                if reply.ended {
                    return None;
                }
                reply.advance().await;
            }
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive).text("keep-alive")).into_response()
    }

    async fn advance(&mut self) {
        match self.answer.advance().await {
            Some(Ok(Step::Read { done, total })) => {
                self.waiting.push_back(Event::default().comment(format!("keepalive {done}/{total}")));
            }
            Some(Ok(Step::Part(_, Part::More(piece)))) => self.add(piece),
            Some(Ok(Step::Part(_, Part::End(reason)))) => {
                let last = self.delta(String::new(), String::new());
                self.put(last, Some(reason));
            }
            Some(Err(error)) => {
                self.ended = true;
                self.send(&envelope(&error));
            }
            None => {
                self.ended = true;
                if self.shape.usage {
                    let mut object = self.object("chat.completion", &[]);
                    object["object"] = json!("chat.completion");
                    object["usage"] = usage(&self.answer);
                    self.send(&object);
                }
                self.waiting.push_back(Event::default().data("[DONE]"));
            }
        }
    }

    fn add(&mut self, Piece { text, reasoning, call, .. }: Piece) {
        if let Some(piece) = call {
            if let Some((id, name)) = piece.head {
                self.calls.push(Call { id, name, arguments: String::new() });
            }
            if let Some(call) = self.calls.last_mut() {
                call.arguments.push_str(&piece.arguments);
            }
            return;
        }
        if !text.is_empty() || !reasoning.is_empty() {
            let delta = self.delta(text, reasoning);
            self.put(delta, None);
        }
    }

    /// The fields of a choice with more of it, calls that are whole included.
    fn delta(&mut self, text: String, reasoning: String) -> Value {
        if self.shape.kind == Kind::Text {
            return json!({"text": text});
        }
        let mut delta = json!({"role": "assistant"});
        for (name, text) in [("content", text), ("reasoning", reasoning)] {
            if !text.is_empty() {
                delta[name] = json!(text);
            }
        }
        if !self.calls.is_empty() {
            let calls = self.calls.drain(..).zip(self.called..).map(|(it, index)| {
                let mut call = call(&it);
                call["index"] = json!(index);
                call
            });
            let calls: Vec<Value> = calls.collect();
            self.called += calls.len();
            delta["tool_calls"] = json!(calls);
        }
        json!({"delta": delta})
    }

    fn put(&mut self, mut choice: Value, reason: Option<&str>) {
        choice["index"] = json!(0);
        choice["finish_reason"] = json!(reason);
        let object = self.object("chat.completion.chunk", &[choice]);
        self.send(&object);
    }

    fn send(&mut self, object: &Value) {
        self.waiting.push_back(Event::default().data(object.to_string()));
    }

    fn object(&self, chat: &str, choices: &[Value]) -> Value {
        self.shape.object(&self.answer, chat, choices)
    }
}

/// The response of a whole answer.
///
/// # Errors
/// The answer failed.
pub(super) async fn whole(mut answer: Answer, shape: Shape, app: &App) -> Result<Response, ApiError> {
    let whole = answer.collect().await?.into_iter().next().unwrap_or_default();
    app.write(answer, move |answer| Json(shape.whole(answer, whole)).into_response()).await
}

impl Shape {
    /// The whole object.
    fn whole(&self, answer: &Answer, whole: Whole) -> Value {
        let Whole { text, reasoning, calls, tokens, reason } = whole;
        let mut choice = json!({"index": 0, "finish_reason": reason});
        if (self.scored || self.top > 0) && !tokens.is_empty() {
            choice["logprobs"] = json!({"content": self.scores(answer, &tokens)});
        }
        match self.kind {
            Kind::Text => choice["text"] = json!(text),
            Kind::Chat => {
                let content = Some(text).filter(|text| !text.is_empty());
                let mut message = json!({"role": "assistant", "content": content});
                if !reasoning.is_empty() {
                    message["reasoning"] = json!(reasoning);
                }
                if !calls.is_empty() {
                    message["tool_calls"] = calls.iter().map(call).collect();
                }
                choice["message"] = message;
            }
        }
        let mut object = self.object(answer, "chat.completion", &[choice]);
        object["usage"] = usage(answer);
        object
    }

    /// The object around choices; `chat` is what it is called for a chat.
    fn object(&self, answer: &Answer, chat: &str, choices: &[Value]) -> Value {
        let kind = if self.kind == Kind::Chat { chat } else { "text_completion" };
        json!({
            "id": answer.head.id, "system_fingerprint": FINGERPRINT, "object": kind, "model": self.model,
            "created": answer.head.created, "choices": choices,
        })
    }

    fn scores(&self, answer: &Answer, tokens: &[Scored]) -> Vec<Value> {
        let entry = |token: TokenId, likely: f32| {
            let word = answer.tokenizer.word(token);
            json!({"id": token, "token": word, "logprob": number(likely)})
        };
        let scores = tokens.iter().filter_map(|Scored { token, score, .. }| {
            let score = score.as_ref()?;
            if self.top == 0 {
                return Some(json!({"id": token, "logprob": number(score.log_probability)}));
            }
            let mut value = entry(*token, score.log_probability);
            value["top_logprobs"] = score.top.iter().map(|&(token, likely)| entry(token, likely)).collect();
            Some(value)
        });
        scores.collect()
    }
}

fn usage(answer: &Answer) -> Value {
    let usage = answer.usage();
    json!({
        "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens, "prompt_tokens_details": usage.prompt_tokens_details,
    })
}

fn call(Call { id, name, arguments }: &Call) -> Value {
    json!({"function": {"name": name, "arguments": arguments}, "type": "function", "id": id})
}
