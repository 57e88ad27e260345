//! What chats determine of their answers: rules of the calls that may come, and whether spans may be copied.
//!
//! Invariant: which rules there are follows from the functions that a request declares, and from the model.

use super::tool;
use crate::{
    model::{Filling, ServedModel},
    text::{fill::Calls, template::Conversation},
};
use serde_json::{Map, Value, json};
use tandem_contracts::fill::Fill;

/// What a request determines whose turn may hold these calls, by functions that its template is told of, or by text.
pub(crate) fn plan(model: &ServedModel, calls: Option<(Calls<'_>, bool)>) -> Option<Fill> {
    let (text, tokenizer) = (&model.text, &model.text.tokenizer);
    let echo = match model.fill {
        Filling::Off => return None,
        Filling::Strict => None,
        Filling::Echo => Some(text.filled.delimiters(tokenizer)),
    };
    let rules = calls.map_or_else(Default::default, |(calls, untold)| {
        text.filled.rules(tokenizer, &calls, &|calls| render(model, calls, untold))
    });
    (echo.is_some() || !rules.is_empty()).then_some(Fill { rules, echo })
}

/// A turn that ends with these calls, or the conversation before it.
fn render(model: &ServedModel, calls: Option<Vec<Value>>, untold: bool) -> Option<String> {
    let opened = calls.is_none();
    let mut messages = vec![json!({"role": "user", "content": "Hello"})];
    messages.extend(calls.map(|calls| json!({"role": "assistant", "content": "", "tool_calls": calls})));
    if untold {
        tool::spell(&mut messages);
    }
    // Some templates read tools whether there are any or not.
    [None, Some(Vec::new())].into_iter().find_map(|tools| {
        let (messages, variables) = (messages.clone(), Map::new());
        let conversation = Conversation { messages, tools, add_generation_prompt: opened, variables };
        model.text.render(&conversation).ok()
    })
}
