//! Calls as JSON objects, `{"name": …, "arguments": {…}}`, one, several or a list of them.
//!
//! A call is one once its name is a declared function's and its arguments have begun; until then what was read may
//! still be text. What breaks after that stays in the arguments, as it came.

use super::{function::Functions, json, tape::Tape};
use serde_json::Value;

/// Keys of the name.
const NAMES: [&str; 2] = ["name", "tool_name"];

/// Keys of the arguments.
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];

/// Keys that may stand beside them; an object that has others is no call.
const OTHERS: [&str; 4] = ["id", "type", "tool_call_id", "index"];

/// Reads calls up to `close`, which is empty where the text's end closes them. `None`: what is held is text.
pub(super) async fn calls(tape: &Tape, functions: &Functions, close: &str) -> Option<()> {
    tape.space().await;
    let listed = tape.option("[").await?;
    loop {
        tape.space().await;
        if object(tape, functions, close).await? {
            return Some(());
        }
        tape.space().await;
        match tape.peek().await {
            Some(',' | ';') => tape.next().await,
            Some('{') => continue,
            _ => break,
        };
    }
    if listed {
        tape.literal("]").await?;
        tape.space().await;
    }
    tape.literal(close).await
}

/// Reads one call. Returns whether it was broken, and taken with everything up to `close`.
async fn object(tape: &Tape, functions: &Functions, close: &str) -> Option<bool> {
    tape.literal("{").await?;
    let (mut name, mut early, mut called) = (None, None, false);
    loop {
        tape.space().await;
        let key = json::string(tape).await?;
        tape.space().await;
        tape.literal(":").await?;
        tape.space().await;
        match key.as_str() {
            key if NAMES.contains(&key) => {
                name = Some(json::string(tape).await?).filter(|name| called || functions.has(name));
                name.as_ref()?;
            }
            key if ARGUMENTS.contains(&key) && !called => match &name {
                Some(name) => {
                    called = true;
                    if arguments(tape, name, close).await? {
                        return Some(true);
                    }
                }
                None => early = Some(json::whole(tape).await?),
            },
            key if called || OTHERS.contains(&key) => json::value(tape, |_| ()).await?,
            _ => return None,
        }
        tape.space().await;
        if tape.choice(&[",", "}"]).await? == 1 {
            break;
        }
    }
    if !called {
        tape.call(name.as_ref()?);
        tape.arguments(&early.map_or_else(|| "{}".to_owned(), |early| spelt(&early)));
        tape.hold(String::new());
    }
    Some(false)
}

/// Reads a call's arguments, with which the call begins: an object, which is handed on as it comes, or a string that
/// spells one. Returns whether they were broken, and taken with everything up to `close`. `None`: there are none.
pub(super) async fn arguments(tape: &Tape, name: &str, close: &str) -> Option<bool> {
    let first = tape.peek().await?;
    if !matches!(first, '{' | '"' | 'n') {
        return None;
    }
    if first != '{' {
        let text = json::whole(tape).await?;
        tape.call(name);
        tape.arguments(&spelt(&text));
        tape.hold(String::new());
        return Some(false);
    }
    tape.call(name);
    let broken = json::value(tape, |piece| tape.arguments(piece)).await.is_none();
    if broken {
        let markers: &[&str] = if close.is_empty() { &[] } else { &[close] };
        tape.until(markers, |piece| tape.arguments(piece)).await;
    }
    tape.hold(String::new());
    Some(broken)
}

/// Arguments that came whole: the object itself, or the text that a string holds; nothing is an empty object.
fn spelt(arguments: &str) -> String {
    match serde_json::from_str(arguments) {
        Ok(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Ok(Value::String(text)) => text,
        Ok(Value::Null) => "{}".to_owned(),
        _ => arguments.to_owned(),
    }
}
