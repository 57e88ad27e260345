//! The lines that a person types: with editing and history at a terminal, else as they come on standard input.
//!
//! Invariants: a history that cannot be kept costs nobody their conversation; a line from a pipe is what stands before its
//! line break.

use crate::error::{Error, Result};
use rustyline::{
    Config, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use std::{
    fs,
    io::{self, IsTerminal},
    path::PathBuf,
};

/// What stands before a line.
const PROMPT: &str = "> ";

/// Where lines come from.
pub(crate) enum Lines {
    /// A terminal, and where its history is kept.
    Edited(Box<Editor<Continuation, FileHistory>>, Option<PathBuf>),
    /// A pipe or a file.
    Plain,
}

impl Lines {
    /// Those of this program's standard input; at a terminal with the history in this file.
    pub(crate) fn open(history: Option<PathBuf>) -> Self {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Self::Plain;
        }
        // A line that begins with a space is not kept, as in shells.
        let config = Config::builder().history_ignore_space(true).build();
        let Ok(mut editor) = Editor::with_config(config) else { return Self::Plain };
        editor.set_helper(Some(Continuation));
        if let Some(file) = &history {
            if let Some(folder) = file.parent() {
                // Without a folder there is no history, and the first line that is kept says so.
                let _ = fs::create_dir_all(folder);
            }
            // There is none before the first conversation.
            let _ = editor.load_history(file);
        }
        Self::Edited(Box::new(editor), history)
    }

    /// Whether a person sits there.
    pub(crate) fn are_edited(&self) -> bool {
        matches!(self, Self::Edited(..))
    }

    /// The next line; `None` at the end of the input, and on Ctrl-C and Ctrl-D.
    pub(crate) async fn next(&mut self) -> Result<Option<String>> {
        match self {
            // Nothing else runs meanwhile, so the runtime may wait here.
            Self::Edited(editor, history) => match editor.readline(PROMPT) {
                Ok(line) => {
                    keep(editor, &line, history);
                    Ok(Some(joined(&line)))
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(error) => Err(Error::new("the terminal").because(error)),
            },
            Self::Plain => plain().await,
        }
    }
}

/// Adds a line to the history. A file that cannot be written is told once, and then left alone.
fn keep(editor: &mut Editor<Continuation, FileHistory>, line: &str, history: &mut Option<PathBuf>) {
    if !editor.add_history_entry(line).unwrap_or(false) {
        return;
    }
    let Some(file) = history else { return };
    if let Err(error) = editor.append_history(file.as_path()) {
        eprintln!("note: the history is not kept: {}: {error}", file.display());
        *history = None;
    }
}

/// The next line of a pipe. Ctrl-C ends the waiting.
async fn plain() -> Result<Option<String>> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let bytes = io::stdin().read_line(&mut line)?;
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        io::Result::Ok((bytes > 0).then_some(line))
    });
    tokio::select! {
        line = read => match line {
            Ok(line) => line.map_err(|error| Error::new("standard input").because(error)),
            Err(error) => Err(Error::new("standard input").because(error)),
        },
        _ = tokio::signal::ctrl_c() => Ok(None),
    }
}

/// A line that ends with a backslash goes on with the next.
pub(crate) struct Continuation;

impl Validator for Continuation {
    fn validate(&self, line: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = line.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Continuation {
    type Candidate = String;
}

impl Hinter for Continuation {
    type Hint = String;
}

impl Highlighter for Continuation {}

impl Helper for Continuation {}

/// What was typed over several lines, without the backslashes that joined them.
fn joined(typed: &str) -> String {
    typed.replace("\\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_go_on_are_one() {
        assert_eq!(joined("one\\\ntwo\\\n\\n"), "one\ntwo\n\\n");
        assert_eq!(joined("plain"), "plain");
    }
}
