//! `POST /v1/chat/completions`.

use super::{
    answer::Answer,
    body::{Body, Generating},
    document::{Generates, Reads},
    error::ApiError,
    fill,
    generation::{Generation, Wanted, in_range},
    message::{self, Message},
    part::Part,
    reply::Plan,
    state::App,
    stream::{self, Chunks},
    structure::{Asked, ResponseFormat},
    tool::{self, Choice},
    vocabulary::bounded,
    wire::{ChatChunk, ChatCompletion, ChunkChoice},
};
use crate::{
    model::ServedModel,
    text::{
        Shown,
        fill::Calls,
        reply::{Expected, Functions, Style},
        template::{ChatTemplate, Conversation},
    },
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tandem_contracts::{fill::Fill, request::Scoring, text::TokenId};
use utoipa::ToSchema;

/// Efforts that clients may ask for.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    model: Option<String>,
    #[schema(min_items = 1)]
    messages: Vec<Message>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
    #[schema(pattern = "^(none|minimal|low|medium|high|xhigh)$")]
    reasoning_effort: Option<String>,
    #[schema(schema_with = tool::list_schema)]
    tools: Option<Vec<Value>>,
    #[schema(schema_with = tool::choice_schema)]
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<ResponseFormat>,
    logprobs: Option<bool>,
    #[schema(maximum = 20)]
    top_logprobs: Option<u32>,
    /// Text with which the answer begins, as part of the prompt.
    #[serde(skip)]
    continued: String,
}

/// What a chat may call.
#[derive(Debug)]
struct Tools {
    functions: Functions,
    choice: Choice,
}

impl Tools {
    fn callable(&self) -> bool {
        !self.functions.is_empty() && self.choice != Choice::None
    }

    /// Refuses a form that would leave no room for calls which may come.
    fn check(&self, form: Option<&Asked>) -> Result<(), ApiError> {
        let Some(form) = form.filter(|_| self.callable() && self.choice == Choice::Auto) else {
            return Ok(());
        };
        let field = form.field;
        let message = format!(
            "{field} binds the whole answer, so that no tool could be called; leave one of them away"
        );
        Err(ApiError::field(field, message))
    }

    /// What binds the answer to a call that must come.
    fn form(&self) -> Option<Asked> {
        self.choice.grammar(&self.functions).map(|grammar| Asked { field: "tool_choice", grammar })
    }
}

/// What else a stream carries.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: Option<bool>,
}

/// A chat with the fields that all generating endpoints share.
pub(crate) type ChatBody = Generating<ChatRequest>;

/// Answers a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", operation_id = "chat", request_body = ChatBody,
    responses(
        (status = 200, description = "The answer, or its chunks.",
            content((ChatCompletion = "application/json"), (ChatChunk = "text/event-stream"))),
        Generates,
    )
)]
pub(crate) async fn complete(
    State(app): State<App>,
    Generating { own, generation, place }: Generating<ChatRequest>,
) -> Result<Response, ApiError> {
    let reached = app.clone();
    let submitted = place.finish(move || {
        own.check()?;
        generation.check(1)?;
        let model = reached.model(own.model.as_deref())?;
        let (mut answer, _) = submit("chatcmpl-", (&own, &generation), &model)?;
        reached.running().know(&mut answer, &model.engine);
        Ok((answer, (own.stream == Some(true)).then_some(own.stream_options.unwrap_or_default())))
    });
    let (mut answer, streamed) = submitted.await.map_err(|error| error.at("messages"))?;
    if let Some(options) = streamed {
        let chunks = ChatChunks { usage: options.include_usage == Some(true) };
        return Ok(stream::respond(answer, chunks, &app));
    }
    let wholes = answer.collect().await?;
    app.write(answer, |answer| Json(ChatCompletion::new(answer, wholes)).into_response()).await
}

/// Submits a chat that was checked. Returns its answer, and how many tokens its prompt has.
pub(crate) fn submit(
    prefix: &str,
    (own, generation): (&ChatRequest, &Generation),
    model: &ServedModel,
) -> Result<(Answer, usize), ApiError> {
    let tools = own.tools()?;
    let text = own.render(model, &tools)?;
    let form = generation.form([own.format()?, tools.form()].into_iter().flatten())?;
    tools.check(form.as_ref())?;
    // Rules are cut from what fits, and not from whatever a body holds.
    let prompt = [model.text.tokenizer.encode_chat(bounded(model, &text)?)?];
    let fill = own.fill(model, &tools).filter(|_| form.is_none());
    let plan = own.plan(model, (tools, form.is_some()), &text);
    let wanted = Wanted { scoring: own.scoring(), shown: plan.shown.clone(), form, fill };
    let requests = generation.requests(model, &prompt, wanted)?;
    let mut answer = Answer::submit(prefix, model, requests, generation.choices())?;
    answer.plan(model, &plan);
    Ok((answer, prompt[0].len()))
}

/// What a conversation becomes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Rendered {
    prompt: String,
}

/// The text that a conversation becomes.
#[utoipa::path(
    post, path = "/apply-template", operation_id = "apply_template", request_body = ChatRequest,
    responses((status = 200, description = "The prompt.", body = Rendered), Reads)
)]
pub(crate) async fn apply_template(
    State(app): State<App>,
    Body(request, place): Body<ChatRequest>,
) -> Result<Response, ApiError> {
    let rendered = place.finish(move || {
        request.check()?;
        let model = app.model(request.model.as_deref())?;
        let prompt = request.render(&model, &request.tools()?)?;
        Ok(Json(Rendered { prompt }).into_response())
    });
    rendered.await
}

impl ChatRequest {
    /// Lets the answer continue a text.
    pub(crate) fn continues(&mut self, text: String) {
        self.continued = text;
    }

    /// The tokens of the prompt.
    pub(crate) fn tokens(&self, model: &ServedModel) -> Result<Vec<TokenId>, ApiError> {
        let text = self.render(model, &self.tools()?)?;
        Ok(model.text.tokenizer.encode_chat(bounded(model, &text)?)?)
    }

    /// Refuses what is out of range.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        in_range("top_logprobs", self.top_logprobs.map(f64::from), 0.0..=20.0)?;
        if self.top_logprobs.is_some_and(|count| count > 0) && self.logprobs != Some(true) {
            return Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"));
        }
        if let Some(effort) = self.reasoning_effort.as_deref().filter(|effort| !EFFORTS.contains(effort)) {
            let message = format!("reasoning_effort must be one of {}, got: {effort:?}", EFFORTS.join(", "));
            return Err(ApiError::field("reasoning_effort", message));
        }
        self.format()?;
        self.tools().map(|_| ())
    }

    /// What binds the answer to a form.
    fn format(&self) -> Result<Option<Asked>, ApiError> {
        self.response_format.as_ref().map_or(Ok(None), ResponseFormat::grammar)
    }

    fn scoring(&self) -> Scoring {
        let top = self.top_logprobs.unwrap_or(0) as usize;
        Scoring { answer: (self.logprobs == Some(true)).then_some(top), prompt: None }
    }

    /// What may be called, and what must.
    fn tools(&self) -> Result<Tools, ApiError> {
        let functions = tool::declared(self.tools.as_deref().unwrap_or_default())?;
        let choice = Choice::read(self.tool_choice.as_ref(), &functions)?;
        Ok(Tools { functions, choice })
    }

    /// The text of the conversation. Tools that may not be called are not told.
    fn render(&self, model: &ServedModel, tools: &Tools) -> Result<String, ApiError> {
        let template = model.text.template()?;
        let mut messages = message::conversation(&self.messages, template.mentions("developer"))?;
        let declared = self.tools.as_ref().filter(|_| tools.callable());
        let (_, untold) = tool::style(&model.text);
        match declared {
            Some(declared) if untold => tool::tell(&mut messages, declared),
            None if untold && !tools.functions.is_empty() => tool::spell(&mut messages),
            _ => {}
        }
        let tools = declared.filter(|_| !untold).cloned();
        let variables = self.variables(template)?;
        let conversation = Conversation { messages, tools, add_generation_prompt: true, variables };
        let text = model.text.render(&conversation)?;
        if self.continued.is_empty() {
            return Ok(text);
        }
        Ok(model.text.style.thought(text) + &self.continued)
    }

    /// What the calls that may come determine of the answer.
    fn fill(&self, model: &ServedModel, tools: &Tools) -> Option<Fill> {
        let (style, untold) = tool::style(&model.text);
        let several = self.parallel_tool_calls != Some(false);
        let free = tools.callable() && tools.choice == Choice::Auto;
        fill::plan(model, free.then_some((Calls { functions: &tools.functions, style, several }, untold)))
    }

    /// What the reply to a prompt may hold. One that is bound to a form holds only that.
    fn plan(&self, model: &ServedModel, (tools, bound): (Tools, bool), prompt: &str) -> Plan {
        let callable = tools.callable();
        let style = match tools.choice {
            Choice::Required | Choice::Named(_) => Style::object(),
            _ if bound => Style::default(),
            _ if callable => tool::style(&model.text).0,
            _ => model.text.style,
        };
        let functions = if callable { tools.functions } else { Functions::default() };
        let calls = if self.parallel_tool_calls == Some(false) { 1 } else { usize::MAX };
        let opened = style.opened(prompt);
        let expected = Expected { style, functions: Arc::new(functions), calls, opened };
        Plan { expected, shown: if bound { Shown::None } else { model.text.shown(callable) } }
    }

    /// The variables that the request sets.
    fn variables(&self, template: &ChatTemplate) -> Result<Map<String, Value>, ApiError> {
        let mut variables = self.chat_template_kwargs.clone().unwrap_or_default();
        match self.reasoning_effort.as_deref() {
            None => {}
            Some(effort) if template.reads("reasoning_effort") => {
                variables.insert("reasoning_effort".to_owned(), json!(effort));
            }
            Some("none") if template.reads("enable_thinking") => {
                variables.insert("enable_thinking".to_owned(), json!(false));
            }
            Some("none") => {}
            Some(_) => {
                let message = "reasoning_effort: this model's template does not read it";
                return Err(ApiError::field("reasoning_effort", message));
            }
        }
        Ok(variables)
    }
}

/// How a chat is streamed.
#[derive(Debug)]
struct ChatChunks {
    usage: bool,
}

impl Chunks for ChatChunks {
    type Chunk = ChatChunk;

    fn opening(&self, answer: &Answer) -> Vec<ChatChunk> {
        (0..answer.len()).map(|index| self.chunk(answer, ChunkChoice::opening(index))).collect()
    }

    fn part(&self, answer: &Answer, index: usize, part: Part) -> ChatChunk {
        self.chunk(answer, ChunkChoice::part(answer, index, part))
    }

    fn closing(&self, answer: &Answer) -> Option<ChatChunk> {
        self.usage.then(|| ChatChunk::new(answer, Vec::new(), Some(Some(answer.usage()))))
    }
}

impl ChatChunks {
    fn chunk(&self, answer: &Answer, choice: ChunkChoice) -> ChatChunk {
        ChatChunk::new(answer, vec![choice], self.usage.then_some(None))
    }
}
