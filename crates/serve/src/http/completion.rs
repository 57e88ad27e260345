//! `POST /v1/completions`: raw prompts, continued.

use super::{
    answer::{Answer, Head},
    body::Generating,
    chat::StreamOptions,
    document::Generates,
    error::ApiError,
    generation::{Generation, Wanted, in_range, refuse},
    part::{Part, Piece, Whole},
    score::{self, Echo, TextScores},
    state::App,
    stream::{self, Chunks},
    usage::UsageObject,
    vocabulary::bounded,
};
use crate::model::ServedModel;
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tandem_contracts::{request::Scoring, text::TokenId};
use utoipa::ToSchema;

/// Most prompts of a request.
const PROMPTS: usize = 128;

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    model: Option<String>,
    prompt: Prompt,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    echo: Option<bool>,
    #[schema(maximum = 5)]
    logprobs: Option<u32>,
    suffix: Option<String>,
    best_of: Option<u32>,
}

/// Text or tokens, one or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string, a list of token ids, or a list of either")]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    ManyTokens(Vec<Vec<u32>>),
}

/// A completion with the fields that all generating endpoints share.
pub(crate) type CompletionBody = Generating<CompletionRequest>;

/// Continues prompts.
#[utoipa::path(
    post, path = "/v1/completions", operation_id = "completion", request_body = CompletionBody,
    responses(
        (status = 200, description = "The answer, or its chunks.",
            content((Completion = "application/json"), (Completion = "text/event-stream"))),
        Generates,
    )
)]
pub(crate) async fn complete(
    State(app): State<App>,
    Generating { own, generation, place }: Generating<CompletionRequest>,
) -> Result<Response, ApiError> {
    let reached = app.clone();
    let submitted = place.finish(move || {
        own.check()?;
        // A prompt that is shown may be all that is asked for.
        generation.check(if own.echo == Some(true) { 0 } else { 1 })?;
        let model = reached.model(own.model.as_deref())?;
        let mut answer = submit("cmpl-", (&own, &generation), &model)?;
        reached.running().know(&mut answer, &model.engine);
        Ok((answer, (own.stream == Some(true)).then_some(own.stream_options.unwrap_or_default())))
    });
    let (mut answer, streamed) = submitted.await.map_err(|error| error.at("prompt"))?;
    if let Some(options) = streamed {
        let chunks = TextChunks { usage: options.include_usage == Some(true) };
        return Ok(stream::respond(answer, chunks, &app));
    }
    let wholes = answer.collect().await?;
    app.write(answer, |answer| Json(Completion::whole(answer, wholes)).into_response()).await
}

/// Continued prompts, or a piece of them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Completion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<TextChoice>,
    /// In a stream where it was asked for: null before the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageObject>)]
    usage: Option<Option<UsageObject>>,
}

/// A continued prompt, or more of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct TextChoice {
    index: usize,
    text: String,
    logprobs: Option<TextScores>,
    /// In a stream null but in the last of a choice.
    finish_reason: Option<&'static str>,
}

impl Completion {
    /// The object of an answer whose choices have ended.
    fn whole(answer: &Answer, wholes: Vec<Whole>) -> Self {
        let choice = |(index, whole): (usize, Whole)| TextChoice {
            index,
            text: whole.text,
            logprobs: answer.scored.then(|| score::completion(&answer.tokenizer, &whole.tokens)),
            finish_reason: Some(whole.reason),
        };
        let choices = wholes.into_iter().enumerate().map(choice).collect();
        Self::new(answer, choices, Some(Some(answer.usage())))
    }

    fn new(answer: &Answer, choices: Vec<TextChoice>, usage: Option<Option<UsageObject>>) -> Self {
        let Head { id, created, model } = answer.head.clone();
        Self { id, object: "text_completion", created, model, choices, usage }
    }
}

/// Submits a completion that was checked.
pub(crate) fn submit(
    prefix: &str,
    (own, generation): (&CompletionRequest, &Generation),
    model: &ServedModel,
) -> Result<Answer, ApiError> {
    let prompts = own.prompt.tokens(model)?;
    let form = generation.form([].into_iter())?;
    let wanted = Wanted { scoring: own.scoring(generation), form, ..Wanted::default() };
    let requests = generation.requests(model, &prompts, wanted)?;
    let mut answer = Answer::submit(prefix, model, requests, generation.choices())?;
    if own.echo == Some(true) {
        let echo = if answer.scored { Echo::placed } else { Echo::shown };
        let echoes = own.prompt.texts().zip(&prompts);
        let echoes = echoes.map(|(text, tokens)| Arc::new(echo(text, tokens, &model.text.tokenizer)));
        answer.echo(&echoes.collect::<Vec<_>>());
    }
    Ok(answer)
}

impl CompletionRequest {
    fn check(&self) -> Result<(), ApiError> {
        in_range("logprobs", self.logprobs.map(f64::from), 0.0..=5.0)?;
        let unserved = [
            ("suffix", self.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty())),
            ("best_of", self.best_of.is_some_and(|best_of| best_of > 1)),
        ];
        refuse(StatusCode::BAD_REQUEST, &unserved)
    }

    /// The prompt's tokens are scored where they are shown with log-probabilities, or are all there is.
    fn scoring(&self, generation: &Generation) -> Scoring {
        let answer = self.logprobs.map(|count| count as usize);
        let shown = self.echo == Some(true);
        let alone = generation.asks_for_nothing().then_some(0);
        Scoring { answer, prompt: if shown { answer.or(alone) } else { None } }
    }
}

impl Prompt {
    /// The tokens of each prompt.
    fn tokens(&self, model: &ServedModel) -> Result<Vec<Vec<TokenId>>, ApiError> {
        let encode = |text: &str| -> Result<_, ApiError> {
            Ok(model.text.tokenizer.encode_prompt(bounded(model, text)?)?)
        };
        let prompts: Vec<Vec<TokenId>> = match self {
            Self::Text(text) => vec![encode(text)?],
            Self::Texts(texts) => texts.iter().map(|text| encode(text)).collect::<Result<_, _>>()?,
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

    /// The text of each prompt, if it came as one; endless.
    fn texts(&self) -> impl Iterator<Item = Option<String>> {
        let texts: &[String] = match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Texts(texts) => texts,
            Self::Tokens(_) | Self::ManyTokens(_) => &[],
        };
        texts.iter().cloned().map(Some).chain(std::iter::repeat(None))
    }
}

/// How a completion is streamed.
#[derive(Debug)]
struct TextChunks {
    usage: bool,
}

impl Chunks for TextChunks {
    type Chunk = Completion;

    fn opening(&self, _answer: &Answer) -> Vec<Completion> {
        Vec::new()
    }

    fn part(&self, answer: &Answer, index: usize, part: Part) -> Completion {
        let (text, logprobs, finish_reason) = match part {
            Part::More(Piece { text, tokens, .. }) => {
                let logprobs = (!tokens.is_empty()).then(|| score::completion(&answer.tokenizer, &tokens));
                (text, logprobs, None)
            }
            Part::End(reason) => (String::new(), None, Some(reason)),
        };
        let choice = TextChoice { index, text, logprobs, finish_reason };
        Completion::new(answer, vec![choice], self.usage.then_some(None))
    }

    fn closing(&self, answer: &Answer) -> Option<Completion> {
        self.usage.then(|| Completion::new(answer, Vec::new(), Some(Some(answer.usage()))))
    }
}
