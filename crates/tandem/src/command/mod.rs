//! The commands.

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
    request::{Request, Scoring, Usage},
    sampling::Sampling,
    text::{TokenId, Vocabulary},
};
use tandem_engine::Subscription;
use tandem_serve::{
    model::{Defaults, ServedModel},
    text::template::Conversation,
};

/// A request for `prompt` with the command line's sampling over the model's own settings.
fn submit(
    model: &ServedModel,
    prompt: Vec<TokenId>,
    typed: &cli::Sampling,
    stops: &[String],
) -> Result<Subscription> {
    let mut defaults = model.defaults.clone();
    choose(&mut defaults, &typed.choice, model)?;
    let request = Request {
        prompt,
        max_tokens: typed.max_tokens,
        sampling: Sampling {
            seed: typed.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            ..defaults.sampling
        },
        state: None,
        scoring: Scoring::default(),
        end_tokens: model.text.tokenizer.end_tokens().to_vec(),
        ignore_end: false,
        text: model.text.answer(stops),
        grammar: None,
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

/// The tokens of a conversation, with the head of the next answer.
fn prompt(model: &ServedModel, messages: &[Value]) -> Result<Vec<TokenId>> {
    let conversation =
        Conversation { messages: messages.to_vec(), add_generation_prompt: true, ..Conversation::default() };
    model
        .text
        .chat_prompt(&conversation)
        .map_err(|error| Error::new("the conversation was refused").because(error))
}

/// Token counts and speed, for people.
fn summary(usage: Usage, first: std::time::Duration, whole: std::time::Duration) -> String {
    let rest = whole.saturating_sub(first).as_secs_f64();
    let decoded = usage.completion_tokens.saturating_sub(1);
    let speed = if decoded > 0 && rest > 0.0 { decoded as f64 / rest } else { 0.0 };
    format!(
        "{} prompt tokens, first token after {:.0} ms; {} tokens at {speed:.1} per second",
        usage.prompt_tokens,
        first.as_secs_f64() * 1e3,
        usage.completion_tokens
    )
}
