//! Chat templates: from a conversation to the text that a model was trained on.
//!
//! Templates are Jinja with Python's semantics, as the `transformers` library renders them: whitespace trimming,
//! loop controls, `generation` blocks, `raise_exception`, `strftime_now`, `tojson` with its arguments, and methods
//! of Python's strings, lists and dictionaries.
//!
//! Invariants: rendering has no effect and reads no clock; equal arguments give equal text; a template that refuses
//! a conversation gives an error with the template's own message, never a text.

mod filter;
mod json;
mod message;
mod moment;
mod python;
mod source;

pub use moment::Moment;

use crate::error::{Error, ErrorKind};
use minijinja::{Environment, Value, syntax::SyntaxConfig};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;

/// The one template of an environment.
const NAME: &str = "chat";

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special: Vec<(String, String)>,
    variables: HashSet<String>,
}

/// What a template renders.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Messages in order, each an object with `role` and mostly `content`.
    pub messages: Vec<Json>,
    /// Function declarations; `None` and empty differ for some templates.
    pub tools: Option<Vec<Json>>,
    /// Whether the head of an assistant's turn is opened at the end.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`. They win over the special tokens of the same name.
    pub variables: Map<String, Json>,
}

impl ChatTemplate {
    /// Compiles a template. `special` gives the names and texts of the tokeniser's special tokens (`bos_token`,
    /// `eos_token` and so on), which templates read as variables.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] with the place of a syntax error.
    pub fn new(source: &str, special: Vec<(String, String)>) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax()?);
        // Errors then know the piece of the template that failed.
        environment.set_debug(true);
        python::install(&mut environment);
        filter::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", json::tojson);
        environment
            .add_template_owned(NAME, source::rewrite(source))
            .map_err(|error| Error::new(ErrorKind::Template, error.to_string()))?;
        let variables = match environment.get_template(NAME) {
            Ok(template) => template.undeclared_variables(false),
            Err(_) => HashSet::new(),
        };
        Ok(Self { environment, special, variables })
    }

    /// Whether the template's source holds this text: how to tell what it knows about roles and fields.
    pub fn mentions(&self, text: &str) -> bool {
        self.environment.get_template(NAME).is_ok_and(|template| template.source().contains(text))
    }

    /// Whether the template reads a variable of this name.
    pub fn reads(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] with the template's own message, or with the reference's where Python would refuse.
    pub fn render(&self, conversation: &Conversation, now: &Moment) -> Result<String, Error> {
        let failed = |error: minijinja::Error| Error::new(ErrorKind::Refused, message::message(&error));
        let template = self.environment.get_template(NAME).map_err(failed)?;
        template.render(self.context(conversation, now)).map_err(failed)
    }

    fn context(&self, conversation: &Conversation, now: &Moment) -> Value {
        let now = now.clone();
        let strftime_now = Value::from_function(move |format: &str| {
            now.format(format)
                .map_err(|message| minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
        });
        let tools = conversation.tools.as_ref().map(|tools| tools.iter().map(value).collect::<Vec<_>>());
        let fixed = [
            ("messages", conversation.messages.iter().map(value).collect()),
            ("tools", Value::from(tools)),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(conversation.add_generation_prompt)),
            ("strftime_now", strftime_now),
        ];
        let special = self.special.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str())));
        let variables = conversation.variables.iter().map(|(name, json)| (name.as_str(), value(json)));
        Value::from_pairs(special.chain(fixed).chain(variables))
    }
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
}

fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| Error::new(ErrorKind::Template, error.to_string()))
}

/// A JSON value as the engine's. Objects keep the order of their keys.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, json)| (key.as_str(), value(json))))
        }
    }
}
