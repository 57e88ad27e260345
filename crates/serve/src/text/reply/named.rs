//! Calls as a name and a JSON object between marks of their own: Kimi K2, DeepSeek V3 and R1, Mistral, Solar,
//! Functionary.
//!
//! Sources: the chat templates of these families, which render calls in their history.

use super::{function::Functions, object, tape::Tape};

/// How the name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As it is.
    Plain,
    /// `functions.NAME:INDEX`.
    Kimi,
    /// `NAME`, or `function`, the mark, `NAME` and the object as a block of Markdown.
    DeepSeek,
    /// An id, a mark, and the name.
    Solar,
}

/// The marks of one family.
#[derive(Debug)]
pub(super) struct Named {
    /// Opens and closes all calls; empty where there are no such marks.
    pub(super) group: (&'static str, &'static str),
    /// Opens one.
    pub(super) open: &'static str,
    pub(super) spelling: Spelling,
    /// Stands between name and arguments.
    pub(super) middle: &'static str,
    pub(super) close: &'static str,
}

impl Named {
    /// What may begin a call in a text.
    pub(super) fn markers(&self) -> Vec<&'static str> {
        [self.group.0, self.open].into_iter().filter(|marker| !marker.is_empty()).collect()
    }

    /// Reads calls after the marker `found`. `None`: what is held is text.
    pub(super) async fn read(&self, tape: &Tape, functions: &Functions, found: &str) -> Option<()> {
        let grouped = !self.group.0.is_empty() && found == self.group.0;
        if grouped {
            tape.space().await;
            tape.literal(self.open).await?;
        }
        loop {
            self.call(tape, functions).await?;
            if !grouped {
                return Some(());
            }
            tape.space().await;
            if tape.choice(&[self.open, self.group.1]).await? == 1 {
                return Some(());
            }
        }
    }

    async fn call(&self, tape: &Tape, functions: &Functions) -> Option<()> {
        tape.space().await;
        let mut name = tape.name().await?;
        tape.literal(self.middle).await?;
        let mut fenced = false;
        match self.spelling {
            Spelling::Plain => {}
            Spelling::Kimi => {
                let bare = name.strip_prefix("functions.").unwrap_or(&name);
                name = bare.rsplit_once(':').map_or(bare, |(bare, _)| bare).to_owned();
            }
            Spelling::DeepSeek => {
                if tape.peek().await? != '{' {
                    name = tape.name().await?;
                    tape.space().await;
                    fenced = tape.option("```json").await?;
                }
            }
            Spelling::Solar => {
                name = tape.name().await?;
                tape.literal("<|tool_call:args|>").await?;
            }
        }
        if !functions.has(&name) {
            return None;
        }
        tape.space().await;
        if object::arguments(tape, &name, self.close).await? {
            return Some(());
        }
        tape.space().await;
        if fenced {
            tape.literal("```").await?;
            tape.space().await;
        }
        tape.literal(self.close).await
    }
}

/// Kimi K2.
pub(super) static KIMI: Named = Named {
    group: ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    open: "<|tool_call_begin|>",
    spelling: Spelling::Kimi,
    middle: "<|tool_call_argument_begin|>",
    close: "<|tool_call_end|>",
};

/// DeepSeek V3, V3.1 and R1.
pub(super) static DEEPSEEK: Named = Named {
    group: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    open: "<｜tool▁call▁begin｜>",
    spelling: Spelling::DeepSeek,
    middle: "<｜tool▁sep｜>",
    close: "<｜tool▁call▁end｜>",
};

/// Solar Open.
pub(super) static SOLAR: Named = Named {
    group: ("<|tool_calls|>", ""),
    open: "<|tool_call:begin|>",
    spelling: Spelling::Solar,
    middle: "<|tool_call:name|>",
    close: "<|tool_call:end|>",
};

/// Functionary 3.1.
pub(super) static FUNCTIONARY: Named = Named {
    group: ("", ""),
    open: "<function=",
    spelling: Spelling::Plain,
    middle: ">",
    close: "</function>",
};

/// Mistral after `[TOOL_CALLS]`: a list of objects, or names with arguments.
pub(super) async fn mistral(tape: &Tape, functions: &Functions) -> Option<()> {
    tape.space().await;
    if tape.peek().await? == '[' {
        return object::calls(tape, functions, "").await;
    }
    let name = tape.name().await?;
    if tape.choice(&["[ARGS]", "[CALL_ID]"]).await? == 1 {
        tape.name().await?;
        tape.literal("[ARGS]").await?;
    }
    if !functions.has(&name) {
        return None;
    }
    tape.space().await;
    object::arguments(tape, &name, "").await.map(|_| ())
}
