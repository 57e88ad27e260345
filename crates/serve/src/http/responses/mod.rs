//! `POST /v1/responses`, and `GET` and `DELETE /v1/responses/{id}`: OpenAI's newer protocol over the same chats.
//!
//! | module | what it does |
//! |---|---|
//! | `request`, `field`, `item` | a body as the fields of a chat; what comes back of it; its items as messages |
//! | `making`, `output`, `event` | an answer as output items, whole and as events |
//! | `object` | the response itself |
//! | `lost` | what is left of one on which work panicked |
//! | `store` | responses that others continue |
//!
//! Invariants: what a request means is what the chat means that it becomes; one that continues another means what one
//! with all their items means.
//! Source: <https://platform.openai.com/docs/api-reference/responses>.

mod event;
mod field;
mod item;
mod lost;
mod making;
mod object;
mod output;
mod request;
mod store;

use super::{
    body::{Generating, typed},
    chat::{self, ChatRequest},
    document::{Finds, Generates},
    error::ApiError,
    path::Name,
    state::App,
};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use event::Event;
use item::Item;
use making::{Making, PREFIX};
use object::ResponseObject;
use request::ResponsesRequest;
use serde::Serialize;
use std::time::Instant;
use store::Kept;
pub(crate) use store::Store;
use utoipa::ToSchema;

/// Fields of chats by their names here.
const NAMES: [(&str, &str); 3] =
    [("messages", "input"), ("response_format", "text.format"), ("reasoning_effort", "reasoning.effort")];

/// A request with the fields that all generating endpoints share.
pub(crate) type ResponsesBody = Generating<ResponsesRequest>;

/// Makes a response.
#[utoipa::path(
    post, path = "/v1/responses", operation_id = "create_response", request_body = ResponsesBody,
    responses(
        (status = 200, description = "The response, or its events.",
            content((ResponseObject = "application/json"), (Event = "text/event-stream"))),
        Generates,
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    Generating { own, mut generation, place }: Generating<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let submitted = place.finish(move || {
        own.check(&generation)?;
        generation.check(1)?;
        generation.bound(own.length());
        let model = app.model(own.model())?;
        let kept = own.previous().map(|id| find(&app, id, "previous_response_id")).transpose()?;
        let before: Vec<Item> = kept.map(|kept| kept.read()).transpose()?.unwrap_or_default();
        let chat: ChatRequest = typed(&own.chat(&before)?)?;
        chat.check()?;
        let (mut answer, _) = chat::submit(PREFIX, (&chat, &generation), &model)?;
        app.running().know(&mut answer, &model.engine);
        let keeping = own.keeps().then(|| [before, own.items()].concat());
        let streamed = own.streams();
        Ok((Making::new(answer, (own.echo(&model), keeping), app, streamed), streamed))
    });
    let renamed =
        |error: ApiError| NAMES.iter().fold(error.at("input"), |error, (from, to)| error.renamed(from, to));
    let (making, streamed) = submitted.await.map_err(renamed)?;
    if streamed { Ok(making.stream()) } else { making.whole().await }
}

/// Shows a response that is kept.
#[utoipa::path(
    get, path = "/v1/responses/{id}", operation_id = "show_response",
    params(("id" = String, Path, description = "Its id.")),
    responses((status = 200, description = "The response.", body = ResponseObject), Finds)
)]
pub(crate) async fn show(State(app): State<App>, Name(id): Name) -> Result<Response, ApiError> {
    let object = find(&app, &id, "response_id")?.object;
    Ok(([(header::CONTENT_TYPE, "application/json")], object).into_response())
}

/// A response that is kept no more.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseForgotten)]
pub(crate) struct Forgotten {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Forgets a response that is kept.
#[utoipa::path(
    delete, path = "/v1/responses/{id}", operation_id = "forget_response",
    params(("id" = String, Path, description = "Its id.")),
    responses((status = 200, description = "It is gone.", body = Forgotten), Finds)
)]
pub(crate) async fn forget(State(app): State<App>, Name(id): Name) -> Result<Json<Forgotten>, ApiError> {
    if !app.responses().forget(&id, Instant::now()) {
        return Err(missing(&id, "response_id"));
    }
    Ok(Json(Forgotten { id, object: "response", deleted: true }))
}

fn find(app: &App, id: &str, field: &str) -> Result<Kept, ApiError> {
    app.responses().find(id, Instant::now()).ok_or_else(|| missing(id, field))
}

fn missing(id: &str, field: &str) -> ApiError {
    let message = format!("{field}: no response of this id is kept: {id:?}");
    let error = ApiError::new(StatusCode::NOT_FOUND, message).code("response_not_found");
    ApiError { param: Some(field.to_owned()), ..error }
}

impl Kept {
    /// Its items.
    fn read(&self) -> Result<Vec<Item>, ApiError> {
        let unreadable = |error| {
            tracing::error!(%error, id = self.id, "a kept response cannot be read");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the previous response cannot be read")
        };
        serde_json::from_str(&self.items).map_err(unreadable)
    }
}
