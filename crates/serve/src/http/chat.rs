//! `POST /v1/chat/completions`.

use super::{
    answer::{Answer, Part, Piece},
    body::{Body, Generating},
    error::ApiError,
    generation::{in_range, refuse},
    message::{self, Message},
    score,
    state::{App, blocking},
    stream::{self, Chunks},
    structure::{Asked, ResponseFormat},
    wire::{ChatCompletion, ChatDelta},
};
use crate::{
    error::Error,
    model::ServedModel,
    text::template::{ChatTemplate, Conversation},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_contracts::request::Scoring;

/// Efforts that clients may ask for.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ChatRequest {
    model: Option<String>,
    messages: Vec<Message>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<String>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    response_format: Option<ResponseFormat>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
}

/// What else a stream carries.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Tool {
    #[serde(rename = "function")]
    _function: Function,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    #[serde(rename = "name")]
    _name: String,
}

/// Answers a conversation.
pub(crate) async fn complete(
    State(app): State<App>,
    Generating { own, generation }: Generating<ChatRequest>,
) -> Result<Response, ApiError> {
    own.check()?;
    generation.check(1)?;
    let format = own.format()?;
    let model = app.model(own.model.as_deref())?;
    let streamed = (own.stream == Some(true)).then_some(own.stream_options.unwrap_or_default());
    let submitted = blocking(move || {
        let prompt = [own.prompt(&model, |conversation| model.text.chat_prompt(conversation))?];
        let requests = generation.requests(&model, &prompt, own.scoring(), format)?;
        Answer::submit("chatcmpl", &model, requests, generation.choices())
    });
    let mut answer = submitted.await.map_err(|error| error.at("messages"))?;
    if let Some(options) = streamed {
        let chunks = ChatChunks { usage: options.include_usage == Some(true) };
        return Ok(stream::respond(answer, chunks, app.keep_alive()));
    }
    let wholes = answer.collect().await?;
    Ok(Json(ChatCompletion::new(&answer, wholes)).into_response())
}

/// `POST /apply-template`: the text that a conversation becomes.
pub(crate) async fn apply_template(
    State(app): State<App>,
    Body(request): Body<ChatRequest>,
) -> Result<Json<Value>, ApiError> {
    request.check()?;
    let model = app.model(request.model.as_deref())?;
    let rendered = blocking(move || request.prompt(&model, |conversation| model.text.render(conversation)));
    Ok(Json(json!({"prompt": rendered.await?})))
}

impl ChatRequest {
    fn check(&self) -> Result<(), ApiError> {
        in_range("top_logprobs", self.top_logprobs.map(f64::from), 0.0..=20.0)?;
        if self.top_logprobs.is_some_and(|count| count > 0) && self.logprobs != Some(true) {
            return Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"));
        }
        if let Some(effort) = self.reasoning_effort.as_deref().filter(|effort| !EFFORTS.contains(effort)) {
            let message = format!("reasoning_effort must be one of {}, got: {effort:?}", EFFORTS.join(", "));
            return Err(ApiError::field("reasoning_effort", message));
        }
        let no_choice = |choice: &Value| choice.is_null() || matches!(choice.as_str(), Some("none" | "auto"));
        refuse(
            StatusCode::NOT_IMPLEMENTED,
            &[
                ("tools", self.tools.as_ref().is_some_and(|tools| !tools.is_empty())),
                ("tool_choice", self.tool_choice.as_ref().is_some_and(|choice| !no_choice(choice))),
            ],
        )
    }

    /// What binds the answer to a form.
    fn format(&self) -> Result<Option<Asked>, ApiError> {
        self.response_format.as_ref().map_or(Ok(None), ResponseFormat::grammar)
    }

    fn scoring(&self) -> Scoring {
        let top = self.top_logprobs.unwrap_or(0) as usize;
        Scoring { answer: (self.logprobs == Some(true)).then_some(top), prompt: None }
    }

    /// Makes something of the conversation: its text or its tokens.
    fn prompt<T>(
        &self,
        model: &ServedModel,
        make: impl Fn(&Conversation) -> Result<T, Error>,
    ) -> Result<T, ApiError> {
        let template = model.text.template()?;
        let conversation = Conversation {
            messages: message::conversation(&self.messages, template.mentions("developer"))?,
            tools: None,
            add_generation_prompt: true,
            variables: self.variables(template)?,
        };
        Ok(make(&conversation)?)
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

impl ChatChunks {
    fn chunk(&self, answer: &Answer, choices: Value, usage: Value) -> Value {
        let mut chunk = json!({
            "id": answer.head.id, "object": "chat.completion.chunk", "created": answer.head.created,
            "model": answer.head.model, "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage;
        }
        chunk
    }

    fn choice(&self, answer: &Answer, choice: Value) -> Value {
        self.chunk(answer, json!([choice]), Value::Null)
    }
}

fn choice(index: usize, delta: &ChatDelta, logprobs: Option<Value>, reason: Option<&str>) -> Value {
    json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})
}

impl Chunks for ChatChunks {
    fn opening(&self, answer: &Answer) -> Vec<Value> {
        let delta = ChatDelta { role: Some("assistant"), content: Some(String::new()) };
        (0..answer.len()).map(|index| self.choice(answer, choice(index, &delta, None, None))).collect()
    }

    fn part(&self, answer: &Answer, index: usize, part: Part) -> Value {
        let choice = match part {
            Part::More(Piece { text, tokens }) => {
                let logprobs = (!tokens.is_empty()).then(|| score::chat(&answer.tokenizer, &tokens));
                choice(index, &ChatDelta { role: None, content: Some(text) }, logprobs, None)
            }
            Part::End(reason) => choice(index, &ChatDelta::default(), None, Some(reason)),
        };
        self.choice(answer, choice)
    }

    fn closing(&self, answer: &Answer) -> Option<Value> {
        self.usage.then(|| self.chunk(answer, json!([]), answer.usage()))
    }
}
