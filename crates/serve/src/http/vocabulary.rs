//! `POST /tokenize` and `/detokenize`, as llama.cpp's server has them.

use super::{body::Body, document::Reads, error::ApiError, generation::refuse, state::App};
use crate::{model::ServedModel, text::Detokenizer};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
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

/// The tokens of a text, in order.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
}

/// A token, with its text where it is wanted.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Token {
    Id(u32),
    Piece {
        #[schema(value_type = u32)]
        id: TokenId,
        piece: Piece,
    },
}

/// The text of a token, or its bytes where these are no text.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = TokenPiece)]
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

/// The text of tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Content {
    content: String,
}

/// The tokens of a text.
#[utoipa::path(
    post, path = "/tokenize", operation_id = "tokenize", request_body = TokenizeRequest,
    responses((status = 200, description = "The tokens.", body = Tokens), Reads)
)]
pub(crate) async fn tokenize(
    State(app): State<App>,
    Body(request, place): Body<TokenizeRequest>,
) -> Result<Response, ApiError> {
    let work = move || {
        refuse(StatusCode::BAD_REQUEST, &[("parse_special", request.parse_special == Some(false))])?;
        let model = app.model(request.model.as_deref())?;
        let tokenizer = &model.text.tokenizer;
        let content = bounded(&model, &request.content)?;
        let encoded = match request.add_special {
            Some(true) => tokenizer.encode_prompt(content),
            _ => tokenizer.encode_chat(content),
        };
        let token = |id: TokenId| {
            if request.with_pieces != Some(true) {
                return Token::Id(id);
            }
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            let piece = str::from_utf8(bytes)
                .map_or_else(|_| Piece::Bytes(bytes.to_vec()), |text| Piece::Text(text.to_owned()));
            Token::Piece { id, piece }
        };
        Ok(Json(Tokens { tokens: encoded?.into_iter().map(token).collect() }).into_response())
    };
    place.finish(work).await
}

/// The text of tokens, special ones by their names.
#[utoipa::path(
    post, path = "/detokenize", operation_id = "detokenize", request_body = DetokenizeRequest,
    responses((status = 200, description = "The text.", body = Content), Reads)
)]
pub(crate) async fn detokenize(
    State(app): State<App>,
    Body(request, place): Body<DetokenizeRequest>,
) -> Result<Response, ApiError> {
    let work = move || {
        let model = app.model(request.model.as_deref())?;
        let tokenizer = &model.text.tokenizer;
        // As many as the longest text that is taken could have.
        if let Some(context) = model.exceeds(request.tokens.len()) {
            let count = request.tokens.len();
            let message = format!("this model's context is {context} tokens, the tokens are: {count}");
            return Err(ApiError {
                code: Some("context_length_exceeded"),
                ..ApiError::field("tokens", message)
            });
        }
        if let Some(token) = request.tokens.iter().find(|&&token| tokenizer.token_bytes(token).is_none()) {
            return Err(ApiError::field("tokens", format!("tokens: there is no token of this id: {token}")));
        }
        let mut detokenizer = Detokenizer::with_special(Arc::clone(tokenizer));
        let mut content = String::new();
        request.tokens.iter().for_each(|&token| detokenizer.push(token, &mut content));
        detokenizer.finish(&mut content);
        Ok(Json(Content { content }).into_response())
    };
    place.finish(work).await
}
