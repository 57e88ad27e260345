//! `POST /v1/completions`: a raw prompt, continued.

use super::{
    answer::{self, Answer},
    body::Generating,
    chat::StreamOptions,
    error::ApiError,
    generation::{in_range, refuse},
    state::{App, blocking},
    stream::{self, Chunks},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tandem_contracts::{request::Usage, text::TokenId};

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CompletionRequest {
    model: Option<String>,
    prompt: Prompt,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    echo: Option<bool>,
    logprobs: Option<u32>,
    suffix: Option<String>,
    best_of: Option<u32>,
}

/// Text, or tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected one string or one list of token ids")]
enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

/// Continues a prompt.
pub(crate) async fn complete(
    State(app): State<App>,
    Generating { own, generation }: Generating<CompletionRequest>,
) -> Result<Response, ApiError> {
    own.check()?;
    generation.check()?;
    let model = app.model(own.model.as_deref())?;
    let streamed = (own.stream == Some(true)).then_some(own.stream_options.unwrap_or_default());
    let named = Arc::clone(&model);
    let submitted = blocking(move || {
        let prompt = match own.prompt {
            Prompt::Text(text) => named.text.tokenizer.encode_prompt(&text)?,
            Prompt::Tokens(tokens) => tokens,
        };
        Ok(named.engine.submit(generation.request(&named, prompt)?)?)
    });
    let subscription = submitted.await.map_err(|error| error.at("prompt"))?;
    let answer = Answer::new("cmpl", &model, subscription);
    if let Some(options) = streamed {
        let chunks = TextChunks { usage: options.include_usage == Some(true) };
        return Ok(stream::respond(answer, chunks, app.keep_alive()));
    }
    let head = answer.head.clone();
    let whole = answer::collect(answer).await?;
    let choice = json!({"index": 0, "text": whole.text, "logprobs": null, "finish_reason": whole.reason});
    Ok(Json(json!({
        "id": head.id, "object": "text_completion", "created": head.created, "model": head.model,
        "choices": [choice], "usage": answer::usage(whole.usage),
    }))
    .into_response())
}

impl CompletionRequest {
    fn check(&self) -> Result<(), ApiError> {
        in_range("logprobs", self.logprobs.map(f64::from), 0.0..=5.0)?;
        let unserved = [
            ("echo", self.echo == Some(true)),
            ("suffix", self.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty())),
            ("best_of", self.best_of.is_some_and(|best_of| best_of > 1)),
        ];
        refuse(StatusCode::BAD_REQUEST, &unserved)?;
        refuse(StatusCode::NOT_IMPLEMENTED, &[("logprobs", self.logprobs.is_some())])
    }
}

/// How a completion is streamed.
#[derive(Debug)]
struct TextChunks {
    usage: bool,
}

impl TextChunks {
    fn chunk(&self, answer: &Answer, choices: Value, usage: Option<Usage>) -> Value {
        let mut chunk = json!({
            "id": answer.head.id, "object": "text_completion", "created": answer.head.created,
            "model": answer.head.model, "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage.map_or(Value::Null, answer::usage);
        }
        chunk
    }

    fn choice(text: &str, reason: Option<&'static str>) -> Value {
        json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}])
    }
}

impl Chunks for TextChunks {
    fn opening(&self, _answer: &Answer) -> Vec<Value> {
        Vec::new()
    }

    fn text(&self, answer: &Answer, text: String) -> Value {
        self.chunk(answer, Self::choice(&text, None), None)
    }

    fn closing(&self, answer: &Answer, reason: &'static str, usage: Usage) -> Vec<Value> {
        let mut chunks = vec![self.chunk(answer, Self::choice("", Some(reason)), None)];
        if self.usage {
            chunks.push(self.chunk(answer, json!([]), Some(usage)));
        }
        chunks
    }
}
