//! `POST /v1/completions`: raw prompts, continued.

use super::{
    answer::{Answer, Part},
    body::Generating,
    chat::StreamOptions,
    error::ApiError,
    generation::{in_range, refuse},
    state::{App, blocking},
    stream::{self, Chunks},
};
use crate::text::{Detokenizer, Tokenizer};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tandem_contracts::text::TokenId;

/// Most prompts of a request.
const PROMPTS: usize = 128;

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

/// Text or tokens, one or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a list of token ids, or a list of either")]
enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
    Texts(Vec<String>),
    ManyTokens(Vec<Vec<TokenId>>),
}

/// Continues prompts.
pub(crate) async fn complete(
    State(app): State<App>,
    Generating { own, generation }: Generating<CompletionRequest>,
) -> Result<Response, ApiError> {
    own.check()?;
    generation.check()?;
    let model = app.model(own.model.as_deref())?;
    let streamed = (own.stream == Some(true)).then_some(own.stream_options.unwrap_or_default());
    let submitted = blocking(move || {
        let prompts = own.prompt.tokens(&model.text.tokenizer)?;
        let mut echoes = vec![String::new(); prompts.len() * generation.choices()];
        if own.echo == Some(true) {
            let texts = own.prompt.texts(&model.text.tokenizer);
            echoes = texts.into_iter().flat_map(|text| vec![text; generation.choices()]).collect();
        }
        let requests = generation.requests(&model, &prompts)?;
        Ok((Answer::submit("cmpl", &model, requests, generation.choices())?, echoes))
    });
    let (mut answer, echoes) = submitted.await.map_err(|error| error.at("prompt"))?;
    if let Some(options) = streamed {
        let chunks = TextChunks { usage: options.include_usage == Some(true), echoes };
        return Ok(stream::respond(answer, chunks, app.keep_alive()));
    }
    let wholes = answer.collect().await?.into_iter().zip(echoes).enumerate();
    let choices =
        wholes.map(|(index, (whole, echo))| choice(index, &(echo + &whole.text), Some(whole.reason)));
    let choices: Vec<Value> = choices.collect();
    Ok(Json(json!({
        "id": answer.head.id, "object": "text_completion", "created": answer.head.created,
        "model": answer.head.model, "choices": choices, "usage": answer.usage(),
    }))
    .into_response())
}

fn choice(index: usize, text: &str, reason: Option<&str>) -> Value {
    json!({"index": index, "text": text, "logprobs": null, "finish_reason": reason})
}

impl CompletionRequest {
    fn check(&self) -> Result<(), ApiError> {
        in_range("logprobs", self.logprobs.map(f64::from), 0.0..=5.0)?;
        let unserved = [
            ("suffix", self.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty())),
            ("best_of", self.best_of.is_some_and(|best_of| best_of > 1)),
        ];
        refuse(StatusCode::BAD_REQUEST, &unserved)?;
        refuse(StatusCode::NOT_IMPLEMENTED, &[("logprobs", self.logprobs.is_some())])
    }
}

impl Prompt {
    /// The tokens of each prompt.
    fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<Vec<TokenId>>, ApiError> {
        let prompts: Vec<Vec<TokenId>> = match self {
            Self::Text(text) => vec![tokenizer.encode_prompt(text)?],
            Self::Texts(texts) => {
                texts.iter().map(|text| tokenizer.encode_prompt(text)).collect::<Result<_, _>>()?
            }
            Self::Tokens(tokens) => vec![tokens.clone()],
            Self::ManyTokens(prompts) => prompts.clone(),
        };
        if prompts.len() > PROMPTS {
            return Err(ApiError::field(
                "prompt",
                format!("prompt: at most {PROMPTS}, got: {}", prompts.len()),
            ));
        }
        Ok(prompts)
    }

    /// The text of each prompt.
    fn texts(&self, tokenizer: &Arc<Tokenizer>) -> Vec<String> {
        let decode = |tokens: &Vec<TokenId>| {
            let mut detokenizer = Detokenizer::with_special(Arc::clone(tokenizer));
            let mut text = String::new();
            tokens.iter().for_each(|&token| detokenizer.push(token, &mut text));
            detokenizer.finish(&mut text);
            text
        };
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Texts(texts) => texts.clone(),
            Self::Tokens(tokens) => vec![decode(tokens)],
            Self::ManyTokens(prompts) => prompts.iter().map(decode).collect(),
        }
    }
}

/// How a completion is streamed.
#[derive(Debug)]
struct TextChunks {
    usage: bool,
    /// What each choice begins with.
    echoes: Vec<String>,
}

impl TextChunks {
    fn chunk(&self, answer: &Answer, choices: &[Value], usage: Value) -> Value {
        let mut chunk = json!({
            "id": answer.head.id, "object": "text_completion", "created": answer.head.created,
            "model": answer.head.model, "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage;
        }
        chunk
    }
}

impl Chunks for TextChunks {
    fn opening(&self, answer: &Answer) -> Vec<Value> {
        let echoes = self.echoes.iter().enumerate().filter(|(_, echo)| !echo.is_empty());
        echoes.map(|(index, echo)| self.chunk(answer, &[choice(index, echo, None)], Value::Null)).collect()
    }

    fn part(&self, answer: &Answer, index: usize, part: Part) -> Value {
        let choice = match part {
            Part::Text(text) => choice(index, &text, None),
            Part::End(reason) => choice(index, "", Some(reason)),
        };
        self.chunk(answer, &[choice], Value::Null)
    }

    fn closing(&self, answer: &Answer) -> Option<Value> {
        self.usage.then(|| self.chunk(answer, &[], answer.usage()))
    }
}
