//! Calls as expressions: Python's `[f(a='x', b=1)]` of Llama 3.2, Llama 4 and LFM2, and Gemma 4's `call:f{a:1}`.
//!
//! A call is one once a declared function's name and its opening bracket have come; each argument is handed on when
//! it is whole.

use super::{
    function::Functions,
    literal::{self, QUOTE},
    tape::Tape,
};
use serde_json::Value;

/// Reads Python's calls in a list, up to `close`. `None`: what is held is text.
pub(super) async fn python(tape: &Tape, functions: &Functions, close: &str) -> Option<()> {
    tape.space().await;
    tape.literal("[").await?;
    loop {
        tape.space().await;
        let name = tape.name().await.filter(|name| functions.has(name))?;
        tape.literal("(").await?;
        arguments(tape, &name, '=', ')').await?;
        tape.space().await;
        if tape.choice(&[",", "]"]).await? == 1 {
            break;
        }
    }
    tape.space().await;
    tape.literal(close).await
}

/// Reads one of Gemma's calls after its opening tag. `None`: what is held is text.
pub(super) async fn gemma(tape: &Tape, functions: &Functions) -> Option<()> {
    tape.literal("call:").await?;
    let name = tape.name().await.filter(|name| functions.has(name))?;
    tape.literal("{").await?;
    arguments(tape, &name, ':', '}').await?;
    tape.space().await;
    tape.literal("<tool_call|>").await
}

/// Reads the arguments of a call up to its closing bracket, and makes it one.
async fn arguments(tape: &Tape, name: &str, sign: char, close: char) -> Option<()> {
    tape.call(name);
    let mut lead = "{";
    loop {
        tape.hold(String::new());
        tape.space().await;
        if tape.peek().await? == close {
            tape.next().await;
            break;
        }
        let Some((key, value)) = argument(tape, sign, close).await else {
            // What is neither an argument nor the end closes the call and is text; a text that ends here was cut off.
            let cut = tape.peek().await.is_none();
            tape.arguments(if cut {
                ""
            } else if lead == "{" {
                "{}"
            } else {
                "}"
            });
            return None;
        };
        tape.arguments(&format!("{lead}{}: {value}", Value::from(key)));
        lead = ", ";
        if tape.peek().await? == ',' {
            tape.next().await;
        }
    }
    tape.arguments(if lead == "{" { "{}" } else { "}" });
    tape.hold(String::new());
    Some(())
}

/// Reads a name and its value, which is its text where that is no value.
async fn argument(tape: &Tape, sign: char, close: char) -> Option<(String, Value)> {
    let key = literal::operand(tape, &[sign, ',', close]).await?;
    if tape.peek().await? != sign {
        return None;
    }
    tape.next().await;
    let key = key.trim();
    let key = key.strip_prefix(QUOTE).and_then(|key| key.strip_suffix(QUOTE)).unwrap_or(key);
    let key = key.trim_matches(['"', '\'']);
    if key.is_empty() {
        return None;
    }
    let text = literal::operand(tape, &[',', close]).await?;
    Some((key.to_owned(), literal::read(&text).unwrap_or_else(|| Value::from(text.trim()))))
}
