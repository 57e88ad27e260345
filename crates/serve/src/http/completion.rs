//! `POST /v1/completions`: a raw prompt, continued.

use super::{
    answer::{self, Answer},
    body::Body,
    chat::StreamOptions,
    error::ApiError,
    generation::refuse,
    state::App,
    stream::{self, Chunks},
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tandem_contracts::{request::Usage, text::TokenId};

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CompletionRequest {
    #[serde(default)]
    model: Option<String>,
    prompt: Prompt,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    echo: Option<bool>,
    #[serde(default)]
    logprobs: Option<u32>,
    #[serde(default)]
    suffix: Option<String>,
    #[serde(default)]
    best_of: Option<u32>,
}

/// Text, or tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of token ids")]
enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

/// Continues a prompt.
pub(crate) async fn complete(
    State(app): State<App>,
    Body { own, generation }: Body<CompletionRequest>,
) -> Result<Response, ApiError> {
    refuse(&[
        ("echo", own.echo == Some(true)),
        ("logprobs", own.logprobs.is_some()),
        ("suffix", own.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty())),
        ("best_of", own.best_of.is_some_and(|best_of| best_of > 1)),
    ])?;
    let model = app.model(own.model.as_deref())?;
    let prompt = match own.prompt {
        Prompt::Text(text) => model.text.tokenizer.encode_prompt(&text)?,
        Prompt::Tokens(tokens) => tokens,
    };
    let subscription = model.engine.submit(generation.request(&model, prompt)?)?;
    let answer = Answer::new("cmpl", &model, subscription);
    if own.stream == Some(true) {
        let usage = own.stream_options.unwrap_or_default().include_usage == Some(true);
        return Ok(stream::respond(answer, TextChunks { usage }));
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
