//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's protocol over the same chats.
//!
//! | module | what it does |
//! |---|---|
//! | `request`, `turn` | a body as the fields of a chat; its turns as messages |
//! | `reply`, `object` | answers as blocks of content, whole and as events; how these stand on the wire |
//!
//! Invariants: what a request means is what the chat means that it becomes; errors have Anthropic's envelope; the tokens
//! that are counted are those that the same request reports.
//! Source: <https://docs.anthropic.com/en/api/messages>.

mod object;
mod reply;
mod request;
mod turn;

use super::{
    body::{Body, typed},
    chat::{self, ChatRequest},
    document::{Generating, Reading, Refusals},
    error::ApiError,
    generation::Generation,
    state::App,
};
use crate::model::ServedModel;
use axum::{
    Json,
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Response},
};
use object::{Event, Message};
use reply::Stops;
use request::MessagesRequest;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Anthropic's envelope.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Refused {
    r#type: &'static str,
    error: RefusedBecause,
}

/// What is wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct RefusedBecause {
    r#type: &'static str,
    message: String,
}

/// Tokens of messages.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = MessageCount)]
pub(crate) struct Count {
    input_tokens: usize,
}

/// What these endpoints refuse with.
type MessageGenerates = Refusals<Generating, Refused>;
type MessageReads = Refusals<Reading, Refused>;

/// The body of an error.
pub(super) fn envelope(error: &ApiError) -> Value {
    json!(Refused { r#type: "error", error: because(error) })
}

fn because(error: &ApiError) -> RefusedBecause {
    let kind = match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        status if status >= 500 => "api_error",
        _ => "invalid_request_error",
    };
    RefusedBecause { r#type: kind, message: error.message.clone() }
}

/// Answers messages.
#[utoipa::path(
    post, path = "/v1/messages", operation_id = "messages", request_body = MessagesRequest,
    responses(
        (status = 200, description = "The message, or its events.",
            content((Message = "application/json"), (Event = "text/event-stream"))),
        MessageGenerates,
    )
)]
pub(crate) async fn messages(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let Body(asked, place) = Body::<MessagesRequest>::from_request(request, &()).await?;
    let reached = app.clone();
    let submitted = place.finish(move || {
        asked.check()?;
        asked.check_length()?;
        let model = reached.model(asked.model())?;
        let (own, generation) = chat_of(&asked, &model)?;
        let (mut answer, prompt) = chat::submit("msg_", (&own, &generation), &model)?;
        reached.running().know(&mut answer, &model.engine);
        Ok((answer, prompt, Stops(asked.stops()), asked.streams()))
    });
    let submitted = submitted.await.map_err(|error| error.renamed("stop", "stop_sequences"));
    let (mut answer, prompt, stops, streamed) = submitted?;
    if streamed {
        return Ok(reply::stream(answer, stops, prompt, app.keep_alive()));
    }
    let wholes = answer.collect().await?;
    app.write(answer, move |answer| Json(reply::message(answer, wholes, &stops)).into_response()).await
}

/// Counts the tokens of messages.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", operation_id = "count_tokens", request_body = MessagesRequest,
    responses((status = 200, description = "The count.", body = Count), MessageReads)
)]
pub(crate) async fn count_tokens(State(app): State<App>, request: Request) -> Result<Json<Count>, ApiError> {
    let Body(asked, place) = Body::<MessagesRequest>::from_request(request, &()).await?;
    let counted = place.finish(move || {
        asked.check()?;
        let model = app.model(asked.model())?;
        let (own, _) = chat_of(&asked, &model)?;
        Ok(own.tokens(&model)?.len())
    });
    Ok(Json(Count { input_tokens: counted.await? }))
}

/// The chat that a request becomes.
fn chat_of(asked: &MessagesRequest, model: &ServedModel) -> Result<(ChatRequest, Generation), ApiError> {
    let (fields, continued) = asked.chat(&model.text)?;
    let (mut own, generation) = (typed::<ChatRequest>(&fields)?, Generation::read(&fields)?);
    own.check()?;
    generation.check(1)?;
    own.continues(continued);
    Ok((own, generation))
}
