//! Messages with headers, as GPT-OSS writes them: reasoning, calls and text are channels.
//!
//! ```text
//!   <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…
//!   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
//! ```
//!
//! The recipient may also stand before the channel. Source: <https://github.com/openai/harmony>.

use super::{function::Functions, object, tape::Tape};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const END: &str = "<|end|>";
const RETURN: &str = "<|return|>";
const CALL: &str = "<|call|>";

/// Marks that show in the text.
pub(super) const MARKS: [&str; 7] = [START, CHANNEL, MESSAGE, END, RETURN, CALL, "<|constrain|>"];

/// What ends a message.
const ENDS: [&str; 5] = [END, RETURN, CALL, START, CHANNEL];

/// Longest header.
const HEADER: usize = 512;

/// Reads messages to the text's end.
pub(super) async fn read(tape: &Tape, functions: &Functions) {
    let mut start = tape.position();
    // The prompt has opened the first header, behind its role; a model that writes none says its text at once.
    let mut headed = matches!(tape.peek().await, Some('<' | ' '));
    loop {
        let header = if headed { header(tape).await } else { Some(String::new()) };
        let Some(header) = header else {
            tape.release();
            headed = false;
            continue;
        };
        let found = body(tape, functions, &header, start).await;
        start = tape.position();
        match found {
            None => return,
            Some(mark) => {
                headed = mark == START || mark == CHANNEL;
                if !headed {
                    tape.space().await;
                    headed = tape.peek().await == Some('<');
                }
            }
        }
        if tape.peek().await.is_none() {
            return;
        }
    }
}

/// A message's header, up to its text. `None`: it is none, and what is held is text.
async fn header(tape: &Tape) -> Option<String> {
    tape.hold(String::new());
    let mut header = String::new();
    while !header.ends_with(MESSAGE) {
        header.push(tape.next().await?);
        if header.len() > HEADER {
            return None;
        }
    }
    tape.forget();
    header.truncate(header.len() - MESSAGE.len());
    Some(header)
}

/// Reads a message's text. Returns the mark that ended it.
async fn body(tape: &Tape, functions: &Functions, header: &str, start: usize) -> Option<&'static str> {
    let recipient = header.split_once("to=functions.").map(|(_, rest)| rest);
    let name = recipient.map(|rest| rest.split([' ', '<']).next().unwrap_or_default());
    if let Some(name) = name.filter(|name| functions.has(name)) {
        tape.space().await;
        if tape.peek().await == Some('{') && object::arguments(tape, name, CALL).await == Some(true) {
            return Some(CALL);
        }
        tape.forget();
    }
    let thinks = header.trim_start_matches(START).trim_start_matches("assistant").trim();
    let thinks = thinks.strip_prefix(CHANNEL).unwrap_or(thinks).trim_start().starts_with("analysis");
    let give = |piece: &str| if thinks { tape.think(piece) } else { tape.text(piece) };
    let (blank, found) = tape.until(&ENDS, give).await;
    if thinks {
        tape.reasoned(start);
    } else if found.is_none() {
        tape.text(&blank);
    }
    found.map(|index| ENDS[index])
}
