//! An answer on its way to the terminal: words to standard output, reasoning dimmed beside them.
//!
//! Invariants: standard output gets the words alone, as they are unless it is a terminal, whose controls are not the
//! model's; what was said before an answer was stopped or failed is not lost.

use super::Prompt;
use crate::{
    error::{Error, Result},
    terminal::{Progress, dimmed, harmless},
};
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};
use tandem_contracts::request::{Event, Outcome, Usage};
use tandem_serve::{
    model::ModelText,
    text::reply::{Expected, Functions, Part, Reply},
};

/// Prints one answer.
pub(crate) struct Printer {
    /// Tells reasoning from words; none for text that continues a raw prompt.
    reply: Option<Reply>,
    reading: Option<Progress>,
    said: String,
    thought: bool,
    begun: Instant,
    first: Option<Duration>,
}

/// How an answer ended.
#[derive(Debug)]
pub(crate) struct Ended {
    usage: Usage,
    first: Duration,
    whole: Duration,
}

impl Printer {
    /// Of the answer to this prompt.
    pub(crate) fn new(text: &ModelText, prompt: &Prompt) -> Self {
        let reply = prompt.rendered.as_ref().map(|rendered| {
            let (style, opened) = (text.style, text.style.opened(rendered));
            Reply::new(Expected { style, functions: Arc::new(Functions::default()), calls: 0, opened })
        });
        let begun = Instant::now();
        Self { reply, reading: None, said: String::new(), thought: false, begun, first: None }
    }

    /// The words so far, without reasoning.
    pub(crate) fn said(self) -> String {
        self.said
    }

    /// Takes an event, and says when it was the last.
    ///
    /// # Errors
    /// The answer failed, the engine is gone, or standard output is.
    pub(crate) fn take(&mut self, event: Option<Event>) -> Result<Option<Ended>> {
        match event {
            Some(Event::Progress { done, total }) => self.read(done, total),
            Some(Event::Prompt { .. }) => {}
            Some(Event::Delta { text, .. }) => {
                self.reading = None;
                self.first.get_or_insert_with(|| self.begun.elapsed());
                match &mut self.reply {
                    None => self.say(&text)?,
                    Some(reply) => {
                        let parts = reply.push(&text);
                        self.say_parts(parts)?;
                    }
                }
            }
            Some(Event::Finished { outcome, usage }) => return self.end(outcome, usage).map(Some),
            None => return Err(Error::new("the engine is gone")),
        }
        Ok(None)
    }

    fn read(&mut self, done: usize, total: usize) {
        let progress = || Progress::of_tokens("reading the prompt", total as u64);
        self.reading.get_or_insert_with(progress).reach(done as u64);
    }

    fn end(&mut self, outcome: Outcome, usage: Usage) -> Result<Ended> {
        self.reading = None;
        let rest = self.reply.as_mut().map(Reply::finish).unwrap_or_default();
        self.say_parts(rest)?;
        if let Outcome::Failed(failure) = outcome {
            return Err(Error::new("the answer failed").because(failure));
        }
        self.line()?;
        let whole = self.begun.elapsed();
        Ok(Ended { usage, first: self.first.unwrap_or(whole), whole })
    }

    /// Ends the line that the answer stands on.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn line(&mut self) -> Result<()> {
        self.reading = None;
        print("\n")
    }

    fn say_parts(&mut self, parts: Vec<Part>) -> Result<()> {
        for part in parts {
            match part {
                Part::Reasoning(text) => {
                    self.thought = true;
                    dimmed(&text);
                }
                Part::Text(text) => self.say(&text)?,
                // There are no functions.
                Part::Call { .. } | Part::Arguments { .. } => {}
            }
        }
        Ok(())
    }

    fn say(&mut self, text: &str) -> Result<()> {
        if std::mem::take(&mut self.thought) {
            dimmed("\n\n");
        }
        self.said.push_str(text);
        print(text)
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout();
    let text = shown(text, out.is_terminal());
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Error::new("standard output").because(error))
}

/// A program that reads gets every letter, a terminal those that do it no harm.
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    if terminal { harmless(text) } else { text.into() }
}

impl Ended {
    /// Token counts and speed, for people.
    pub(crate) fn summary(&self) -> String {
        let rest = self.whole.saturating_sub(self.first).as_secs_f64();
        let decoded = self.usage.completion_tokens.saturating_sub(1);
        let speed = if decoded > 0 && rest > 0.0 { decoded as f64 / rest } else { 0.0 };
        format!(
            "{} prompt tokens, first token after {:.0} ms; {} tokens at {speed:.1} per second",
            self.usage.prompt_tokens,
            self.first.as_secs_f64() * 1e3,
            self.usage.completion_tokens
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_reach_programs_but_no_terminal() {
        let text = "\x1b[31mred\x1b[0m\r\n\tend";
        assert_eq!(shown(text, false), text);
        assert_eq!(shown(text, true), "\u{fffd}[31mred\u{fffd}[0m\u{fffd}\n\tend");
    }

    #[test]
    fn the_pace_is_that_from_the_first_token_to_the_last() {
        let usage = Usage { prompt_tokens: 12, completion_tokens: 21, ..Usage::default() };
        let (first, whole) = (Duration::from_millis(500), Duration::from_millis(2500));
        assert_eq!(
            Ended { usage, first, whole }.summary(),
            "12 prompt tokens, first token after 500 ms; 21 tokens at 10.0 per second"
        );
    }
}
