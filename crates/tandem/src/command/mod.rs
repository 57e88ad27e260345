//! The commands.

mod answer;
pub(crate) mod chat;
pub(crate) mod generate;
pub(crate) mod serve;

use crate::{
    cli,
    error::{Error, Result},
};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use tandem_contracts::{
    request::{Request, Scoring},
    sampling::Sampling,
    text::{TokenId, Vocabulary},
};
use tandem_engine::Subscription;
use tandem_serve::{
    model::{Defaults, ServedModel},
    text::{Shown, template::Conversation},
};

/// What a model is asked with.
struct Prompt {
    tokens: Vec<TokenId>,
    /// The text that a conversation became; none of a prompt that was taken as it is.
    rendered: Option<String>,
}

impl Prompt {
    /// A conversation, with the head of the next answer.
    fn of_chat(model: &ServedModel, messages: &[Value]) -> Result<Self> {
        let conversation = Conversation {
            messages: messages.to_vec(),
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let refused = |error| Error::new("the conversation was refused").because(error);
        let rendered = model.text.render(&conversation).map_err(refused)?;
        let tokens = model.text.tokenizer.encode_chat(&rendered).map_err(refused)?;
        Ok(Self { tokens, rendered: Some(rendered) })
    }

    /// A text as it is.
    fn of_raw(model: &ServedModel, text: &str) -> Result<Self> {
        let encoded = model.text.tokenizer.encode_prompt(text);
        let tokens = encoded.map_err(|error| Error::new("the prompt was refused").because(error))?;
        Ok(Self { tokens, rendered: None })
    }
}

/// A request for an answer, with the command line's sampling over the model's own settings.
fn submit(
    model: &ServedModel,
    prompt: Prompt,
    typed: &cli::Sampling,
    stops: &[String],
) -> Result<Subscription> {
    let mut defaults = model.defaults.clone();
    choose(&mut defaults, &typed.choice, model)?;
    // Reasoning is told from words by its tags, so they have to show.
    let shown = if prompt.rendered.is_some() { model.text.shown(false) } else { Shown::None };
    let request = Request {
        prompt: prompt.tokens,
        max_tokens: typed.max_tokens,
        sampling: Sampling {
            seed: typed.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            ..defaults.sampling
        },
        state: None,
        scoring: Scoring::default(),
        end_tokens: model.text.tokenizer.end_tokens().to_vec(),
        ignore_end: false,
        text: model.text.answer_showing(stops, shown),
        grammar: None,
        fill: None,
    };
    model.engine.submit(request).map_err(|rejection| Error::new("the prompt was refused").because(rejection))
}

/// Puts what was typed in place of the model's own settings.
fn choose(defaults: &mut Defaults, typed: &cli::Choice, model: &ServedModel) -> Result<()> {
    let chosen = typed.settings().over(&defaults.sampling, &model.text.tokenizer);
    defaults.sampling = chosen.map_err(|error| Error::new("the sampling was refused").because(error))?;
    Ok(())
}

/// One message as templates take it.
fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}
