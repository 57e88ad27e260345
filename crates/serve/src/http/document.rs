//! `GET /openapi.json`: the description of every endpoint, made of the types that it reads and answers with
//! (<https://spec.openapis.org/oas/v3.1.0>).
//!
//! Invariants: every path that is served is described, with every status that it answers with.

use super::{
    anthropic, cancel, catalogue, chat, completion, error::ErrorBody, metrics, page, responses, vocabulary,
};
use axum::Json;
use std::{collections::BTreeMap, marker::PhantomData, sync::LazyLock};
use utoipa::{
    IntoResponses, OpenApi, ToSchema,
    openapi::{self, ContentBuilder, PathItem, Ref, RefOr, Response, ResponseBuilder},
};

/// Statuses with which a kind of endpoint refuses.
pub(crate) trait Statuses {
    /// All of them.
    const ALL: &'static [u16];
}

/// Endpoints at which models generate.
pub(crate) enum Generating {}

/// Endpoints that read a body.
pub(crate) enum Reading {}

/// Endpoints at which something is found by its name.
pub(crate) enum Finding {}

/// All others.
pub(crate) enum Asking {}

impl Statuses for Generating {
    const ALL: &'static [u16] = &[400, 401, 403, 404, 408, 409, 413, 429, 500, 501, 503];
}

impl Statuses for Reading {
    const ALL: &'static [u16] = &[400, 401, 403, 404, 408, 413, 429, 500];
}

impl Statuses for Finding {
    const ALL: &'static [u16] = &[400, 401, 403, 404];
}

impl Statuses for Asking {
    const ALL: &'static [u16] = &[401, 403];
}

/// The refusals of a kind of endpoint, with bodies of one form.
pub(crate) struct Refusals<S, E = ErrorBody>(PhantomData<(S, E)>);

/// Those of endpoints at which models generate.
pub(crate) type Generates = Refusals<Generating>;

/// Those of endpoints that read a body.
pub(crate) type Reads = Refusals<Reading>;

/// Those of endpoints at which something is found by its name.
pub(crate) type Finds = Refusals<Finding>;

/// Those of all others.
pub(crate) type Asks = Refusals<Asking>;

impl<S: Statuses, E: ToSchema> IntoResponses for Refusals<S, E> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let response = |status: u16| {
            let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(E::name()))).build();
            let response = ResponseBuilder::new().description(meaning(status));
            (status.to_string(), response.content("application/json", body).build().into())
        };
        S::ALL.iter().copied().map(response).collect()
    }
}

/// What a status says.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong; `param` names the field.",
        401 => "A key is needed.",
        403 => "The server is not known under this name.",
        404 => "There is no such model, response or request.",
        408 => "The body came too slowly.",
        409 => "The request was cancelled.",
        413 => "The body is too large.",
        429 => "Too many requests wait or are read; `Retry-After` says when to come back.",
        501 => "The model cannot do this; the reasons are given.",
        503 => "No requests are taken now.",
        _ => "The server failed.",
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Tandem", description = "Language models over OpenAI's and Anthropic's protocols."),
    paths(
        page::page,
        chat::complete,
        completion::complete,
        responses::create,
        responses::show,
        responses::forget,
        anthropic::messages,
        anthropic::count_tokens,
        catalogue::list,
        catalogue::show,
        catalogue::embeddings,
        catalogue::adapters,
        catalogue::mount,
        catalogue::unmount,
        vocabulary::tokenize,
        vocabulary::detokenize,
        chat::apply_template,
        cancel::cancel,
        metrics::metrics,
        super::health,
        document,
    ),
    components(schemas(ErrorBody, anthropic::Refused))
)]
struct Document;

static DOCUMENT: LazyLock<openapi::OpenApi> = LazyLock::new(|| {
    let mut document = Document::openapi();
    let chat = document.paths.paths.get("/v1/chat/completions").and_then(|path| path.post.clone());
    if let Some(mut chat) = chat {
        // Ids are of one path each.
        chat.operation_id = Some("chat_without_version".to_owned());
        let mut path = PathItem::default();
        path.post = Some(chat);
        document.paths.paths.insert("/chat/completions".to_owned(), path);
    }
    document
});

/// The description of this server.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi",
    responses((status = 200, description = "It, as OpenAPI 3.1.", body = serde_json::Value), Asks)
)]
pub(crate) async fn document() -> Json<&'static openapi::OpenApi> {
    Json(LazyLock::force(&DOCUMENT))
}
