//! `POST /tokenize` and `/detokenize`, as llama.cpp's server has them.

use super::{
    body::Body,
    document::Reads,
    error::ApiError,
    generation::refuse,
    state::{App, blocking},
};
use crate::{model::ServedModel, text::Detokenizer};
use axum::{Json, extract::State, http::StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{str, sync::Arc};
use tandem_contracts::text::{TokenId, Vocabulary};
use utoipa::ToSchema;

/// Refuses a text that no context could hold, before tokens are made of it.
pub(crate) fn bounded<'t>(model: &ServedModel, text: &'t str) -> Result<&'t str, ApiError> {
    let Some(context) = model.exceeded(text) else { return Ok(text) };
    let message =
        format!("this model's context is {context} tokens, the prompt's text has bytes: {}", text.len());
    Err(ApiError::invalid(message).code("context_length_exceeded"))
}

/// A text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    content: String,
    /// Whether the begin token is put before it.
    add_special: Option<bool>,
    /// Whether the names of special tokens in the text are those tokens.
    parse_special: Option<bool>,
    /// Whether each token comes with its text.
    with_pieces: Option<bool>,
}

/// Tokens.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    #[schema(value_type = Vec<u32>)]
    tokens: Vec<TokenId>,
}

/// The tokens of a text.
#[utoipa::path(
    post, path = "/tokenize", operation_id = "tokenize", request_body = TokenizeRequest,
    responses((status = 200, description = "The tokens.", body = Value), Reads)
)]
pub(crate) async fn tokenize(
    State(app): State<App>,
    Body(request): Body<TokenizeRequest>,
) -> Result<Json<Value>, ApiError> {
    refuse(StatusCode::BAD_REQUEST, &[("parse_special", request.parse_special == Some(false))])?;
    let model = app.model(request.model.as_deref())?;
    blocking(move || {
        let tokenizer = &model.text.tokenizer;
        let content = bounded(&model, &request.content)?;
        let encoded = match request.add_special {
            Some(true) => tokenizer.encode_prompt(content),
            _ => tokenizer.encode_chat(content),
        };
        let tokens = encoded?;
        if request.with_pieces != Some(true) {
            return Ok(Json(json!({"tokens": tokens})));
        }
        let pieces = tokens.iter().map(|&token| {
            let bytes = tokenizer.token_bytes(token).unwrap_or_default();
            json!({"id": token, "piece": str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))})
        });
        Ok(Json(json!({"tokens": pieces.collect::<Vec<_>>()})))
    })
    .await
}

/// The text of tokens, special ones by their names.
#[utoipa::path(
    post, path = "/detokenize", operation_id = "detokenize", request_body = DetokenizeRequest,
    responses((status = 200, description = "The text.", body = Value), Reads)
)]
pub(crate) async fn detokenize(
    State(app): State<App>,
    Body(request): Body<DetokenizeRequest>,
) -> Result<Json<Value>, ApiError> {
    let model = app.model(request.model.as_deref())?;
    blocking(move || {
        let tokenizer = &model.text.tokenizer;
        if let Some(token) = request.tokens.iter().find(|&&token| tokenizer.token_bytes(token).is_none()) {
            return Err(ApiError::field("tokens", format!("tokens: there is no token of this id: {token}")));
        }
        let mut detokenizer = Detokenizer::with_special(Arc::clone(tokenizer));
        let mut content = String::new();
        request.tokens.iter().for_each(|&token| detokenizer.push(token, &mut content));
        detokenizer.finish(&mut content);
        Ok(Json(json!({"content": content})))
    })
    .await
}
