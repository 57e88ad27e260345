//! `POST /v1/chat/completions`.

use super::{
    answer::{self, Answer},
    body::Body,
    error::ApiError,
    generation::refuse,
    state::App,
    stream::{self, Chunks},
    wire::{ChatCompletion, ChatDelta, ChatMessage},
};
use crate::text::template::Conversation;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_contracts::request::Usage;

/// Roles that messages may have.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// The endpoint's own fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ChatRequest {
    #[serde(default)]
    model: Option<String>,
    messages: Vec<Message>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    chat_template_kwargs: Option<Map<String, Value>>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    response_format: Option<ResponseFormat>,
    #[serde(default)]
    logprobs: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, null, or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Clone, Debug, Deserialize)]
struct Part {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct ResponseFormat {
    r#type: String,
}

/// Answers a conversation.
pub(crate) async fn complete(
    State(app): State<App>,
    Body { own, generation }: Body<ChatRequest>,
) -> Result<Response, ApiError> {
    own.refuse_unserved()?;
    let model = app.model(own.model.as_deref())?;
    let prompt = model.text.chat_prompt(&own.conversation()?)?;
    let subscription = model.engine.submit(generation.request(&model, prompt)?)?;
    let answer = Answer::new("chatcmpl", &model, subscription);
    if own.stream == Some(true) {
        let usage = own.stream_options.unwrap_or_default().include_usage == Some(true);
        return Ok(stream::respond(answer, ChatChunks { usage }));
    }
    let head = answer.head.clone();
    let whole = answer::collect(answer).await?;
    let message = ChatMessage { role: "assistant", content: whole.text };
    Ok(Json(ChatCompletion::new(head, message, whole.reason, whole.usage)).into_response())
}

impl ChatRequest {
    fn refuse_unserved(&self) -> Result<(), ApiError> {
        let no_choice = |choice: &Value| matches!(choice.as_str(), Some("none" | "auto"));
        refuse(&[
            ("tools", self.tools.as_ref().is_some_and(|tools| !tools.is_empty())),
            (
                "tool_choice",
                self.tool_choice.as_ref().is_some_and(|choice| !choice.is_null() && !no_choice(choice)),
            ),
            ("response_format", self.response_format.as_ref().is_some_and(|format| format.r#type != "text")),
            ("logprobs", self.logprobs == Some(true)),
        ])
    }

    fn conversation(&self) -> Result<Conversation, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "messages must hold at least one message"));
        }
        Ok(Conversation {
            messages: self
                .messages
                .iter()
                .enumerate()
                .map(|(i, message)| message.value(i))
                .collect::<Result<_, _>>()?,
            tools: None,
            add_generation_prompt: true,
            variables: self.chat_template_kwargs.clone().unwrap_or_default(),
        })
    }
}

impl Message {
    /// What the template sees: the message with its content as one string.
    fn value(&self, index: usize) -> Result<Value, ApiError> {
        if !ROLES.contains(&self.role.as_str()) {
            let field = format!("messages[{index}].role");
            return Err(ApiError::field(
                &field,
                format!("{field} must be one of {ROLES:?}, got: {:?}", self.role),
            ));
        }
        let mut fields = self.more.clone();
        fields.insert("role".to_owned(), json!(self.role));
        fields.insert("content".to_owned(), json!(self.text(index)?));
        Ok(Value::Object(fields))
    }

    fn text(&self, index: usize) -> Result<String, ApiError> {
        let parts = match &self.content {
            None => return Ok(String::new()),
            Some(Content::Text(text)) => return Ok(text.clone()),
            Some(Content::Parts(parts)) => parts,
        };
        parts
            .iter()
            .map(|part| match (part.r#type.as_str(), &part.text) {
                ("text", Some(text)) => Ok(text.as_str()),
                (kind, _) => {
                    let field = format!("messages[{index}].content");
                    Err(ApiError::field(
                        &field,
                        format!("{field}: this model takes text parts only, got: {kind:?}"),
                    ))
                }
            })
            .collect()
    }
}

/// How a chat is streamed.
#[derive(Debug)]
struct ChatChunks {
    usage: bool,
}

impl ChatChunks {
    fn choice(&self, delta: ChatDelta, reason: Option<&'static str>) -> Value {
        json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}])
    }

    fn chunk(&self, answer: &Answer, choices: Value, usage: Option<Usage>) -> Value {
        let mut chunk = json!({
            "id": answer.head.id, "object": "chat.completion.chunk", "created": answer.head.created,
            "model": answer.head.model, "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage.map_or(Value::Null, answer::usage);
        }
        chunk
    }
}

impl Chunks for ChatChunks {
    fn opening(&self, answer: &Answer) -> Vec<Value> {
        let delta = ChatDelta { role: Some("assistant"), content: Some(String::new()) };
        vec![self.chunk(answer, self.choice(delta, None), None)]
    }

    fn text(&self, answer: &Answer, text: String) -> Value {
        self.chunk(answer, self.choice(ChatDelta { role: None, content: Some(text) }, None), None)
    }

    fn closing(&self, answer: &Answer, reason: &'static str, usage: Usage) -> Vec<Value> {
        let mut chunks = vec![self.chunk(answer, self.choice(ChatDelta::default(), Some(reason)), None)];
        if self.usage {
            chunks.push(self.chunk(answer, json!([]), Some(usage)));
        }
        chunks
    }
}
