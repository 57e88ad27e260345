//! `GET /v1/models`: what is served and what it can do; and the endpoints of what none of it can.
//!
//! Invariants: what cannot be done is refused with the reason, never with an answer that means nothing.

use super::{
    document::{Asks, Finds},
    error::{ApiError, ErrorBody},
    path::Name,
    state::App,
};
use crate::model::ServedModel;
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// The models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
}

/// The adapters that are mounted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AdapterList {
    object: &'static str,
    data: Vec<String>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelObject {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// Tokens of a prompt with its answer; not known before the model is loaded.
    context_window: Option<usize>,
    capabilities: Capabilities,
}

/// What a model can be asked for.
#[derive(Debug, Serialize, ToSchema)]
struct Capabilities {
    /// Conversations, and in them functions.
    chat: bool,
    tools: bool,
    /// Reasoning that is told from words.
    reasoning: bool,
    completion: bool,
    /// Answers that are bound to a schema or a grammar.
    structured_output: bool,
    embeddings: bool,
    adapters: bool,
    vision: bool,
}

impl From<&ServedModel> for ModelObject {
    fn from(model: &ServedModel) -> Self {
        let chat = model.text.template.is_some();
        Self {
            id: model.name.clone(),
            object: "model",
            created: model.created,
            owned_by: "tandem",
            context_window: model.engine.capabilities().map(|facts| facts.context),
            capabilities: Capabilities {
                chat,
                tools: chat,
                reasoning: model.text.style.reasons(),
                completion: true,
                structured_output: true,
                embeddings: false,
                adapters: false,
                vision: false,
            },
        }
    }
}

/// The models that are served.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "models",
    responses((status = 200, description = "All of them.", body = ModelList), Asks)
)]
pub(crate) async fn list(State(app): State<App>) -> Json<ModelList> {
    let data = app.models().iter().map(|model| ModelObject::from(&**model)).collect();
    Json(ModelList { object: "list", data })
}

/// One model.
#[utoipa::path(
    get, path = "/v1/models/{id}", operation_id = "model",
    params(("id" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The model.", body = ModelObject), Finds)
)]
pub(crate) async fn show(State(app): State<App>, Name(id): Name) -> Result<Json<ModelObject>, ApiError> {
    app.model(Some(&id)).map(|model| Json(ModelObject::from(&*model)))
}

/// Embeds texts: no model that is served does.
#[utoipa::path(
    post, path = "/v1/embeddings", operation_id = "embeddings",
    responses((status = 501, description = "It cannot be done, for the reason given.", body = ErrorBody), Asks)
)]
pub(crate) async fn embeddings() -> ApiError {
    unserved("this server embeds no text: its models give tokens, not hidden states")
}

/// The adapters that are mounted: none.
#[utoipa::path(
    get, path = "/v1/adapters", operation_id = "adapters",
    responses((status = 200, description = "All of them.", body = AdapterList), Asks)
)]
pub(crate) async fn adapters() -> Json<AdapterList> {
    Json(AdapterList { object: "list", data: Vec::new() })
}

/// Mounts an adapter: not while the server runs.
#[utoipa::path(
    post, path = "/v1/adapters", operation_id = "mount_adapter",
    responses((status = 501, description = "It cannot be done, for the reason given.", body = ErrorBody), Asks)
)]
pub(crate) async fn mount() -> ApiError {
    unserved(ADAPTERS)
}

/// Unmounts an adapter: none is mounted.
#[utoipa::path(
    delete, path = "/v1/adapters", operation_id = "unmount_adapter",
    responses((status = 501, description = "It cannot be done, for the reason given.", body = ErrorBody), Asks)
)]
pub(crate) async fn unmount() -> ApiError {
    unserved(ADAPTERS)
}

const ADAPTERS: &str = "this server mounts no adapters: its models are served as they were loaded";

fn unserved(reason: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, reason).code("unsupported_execution")
}
