//! One served model: its engine, its text, and what an absent field of a request means.

use crate::{
    error::{Error, ErrorKind},
    text::{
        AnswerText, Tokenizer,
        template::{ChatTemplate, Conversation, Moment},
    },
};
use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tandem_contracts::{
    sampling::Sampling,
    text::{StopMatcher, TokenId},
};
use tandem_engine::EngineHandle;

/// The text side of a model.
#[derive(Debug)]
pub struct ModelText {
    /// The tokeniser.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template; a model without one takes raw prompts only.
    pub template: Option<ChatTemplate>,
}

impl ModelText {
    /// A model's tokeniser with its template, in Jinja.
    ///
    /// # Errors
    /// [`ErrorKind::Template`]: the template does not compile.
    pub fn new(tokenizer: Tokenizer, template: Option<&str>) -> Result<Self, Error> {
        let template = template.map(|source| ChatTemplate::new(source, tokenizer.template_variables()));
        Ok(Self { template: template.transpose()?, tokenizer: Arc::new(tokenizer) })
    }

    /// The text of one answer, which ends at any of these strings.
    pub fn answer(&self, stops: &[String]) -> Box<dyn StopMatcher> {
        Box::new(AnswerText::new(Arc::clone(&self.tokenizer), stops))
    }

    /// The template.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`]: there is none.
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        let none = || Error::new(ErrorKind::Refused, "this model has no chat template; use a raw prompt");
        self.template.as_ref().ok_or_else(none)
    }

    /// The text of a conversation, at this moment.
    ///
    /// # Errors
    /// The template refuses the conversation, or there is none.
    pub fn render(&self, conversation: &Conversation) -> Result<String, Error> {
        self.template()?.render(conversation, &Moment::now())
    }

    /// The tokens of a conversation, rendered by the template. No special token is added to what it renders.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn chat_prompt(&self, conversation: &Conversation) -> Result<Vec<TokenId>, Error> {
        self.tokenizer.encode_chat(&self.render(conversation)?)
    }
}

/// Sampling of requests that do not say otherwise: the model's `generation_config.json`, else OpenAI's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// Temperature.
    pub temperature: f32,
    /// Nucleus.
    pub top_p: f32,
    /// Candidates; 0 is all.
    pub top_k: u32,
    /// Fraction of the most likely token.
    pub min_p: f32,
    /// Most tokens of an answer, whatever is asked for.
    pub max_tokens: Option<usize>,
}

impl Default for Defaults {
    fn default() -> Self {
        let Sampling { temperature, top_p, top_k, min_p, .. } = Sampling::default();
        Self { temperature, top_p, top_k, min_p, max_tokens: None }
    }
}

impl Defaults {
    /// Those of a `generation_config.json`; fields that are absent or of another type keep OpenAI's defaults. A file
    /// that says `do_sample: false` is greedy.
    pub fn from_generation_config(bytes: &[u8]) -> Self {
        let mut defaults = Self::default();
        let Ok(config) = serde_json::from_slice::<serde_json::Value>(bytes) else { return defaults };
        let number = |key: &str| config[key].as_f64().map(|value| value as f32);
        if let Some(temperature) = number("temperature") {
            defaults.temperature = temperature;
        }
        if config["do_sample"].as_bool() == Some(false) {
            defaults.temperature = 0.0;
        }
        if let Some(top_p) = number("top_p") {
            defaults.top_p = top_p;
        }
        if let Some(min_p) = number("min_p") {
            defaults.min_p = min_p;
        }
        if let Some(top_k) = config["top_k"].as_u64().and_then(|top_k| u32::try_from(top_k).ok()) {
            defaults.top_k = top_k;
        }
        defaults
    }
}

/// A model as clients know it.
pub struct ServedModel {
    /// Name in requests.
    pub name: String,
    /// Its engine.
    pub engine: EngineHandle,
    /// Its text.
    pub text: ModelText,
    /// What absent fields mean.
    pub defaults: Defaults,
    /// Unix time in seconds at which it was put up.
    pub created: u64,
}

impl ServedModel {
    /// A model that is put up now.
    pub fn new(name: String, engine: EngineHandle, text: ModelText, defaults: Defaults) -> Self {
        Self { name, engine, text, defaults, created: unix_seconds() }
    }
}

impl fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedModel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_settings_win_over_openai_defaults() {
        let file =
            br#"{"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": "x", "eos_token_id": [1, 2]}"#;
        let defaults = Defaults::from_generation_config(file);
        assert_eq!(
            (defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p),
            (0.6, 0.95, 20, 0.0)
        );
        assert_eq!(Defaults::from_generation_config(b"{\"do_sample\": false}").temperature, 0.0);
        assert_eq!(Defaults::from_generation_config(b"not json"), Defaults::default());
    }
}
