//! The one error of the application: a line for people, a hint, and the chain of causes behind it.

use std::{error, fmt, path::Path};

/// Result of everything that a command does.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in one line, and what to do about it.
#[derive(Debug)]
pub(crate) struct Error {
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of one lower-case line.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, source: None }
    }

    /// A failed access to a file.
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::new(path.display().to_string()).because(source)
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause, whose own line follows this one's after a colon.
    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The text for the terminal: `error: …` and `hint: …`, one line each, or with every cause on its own line.
    pub(crate) fn render(&self, verbose: bool) -> String {
        let mut text = format!("error: {}", self.message);
        let mut cause = self.source.as_deref().map(|source| source as &dyn error::Error);
        let mut last = self.message.clone();
        while let Some(source) = cause {
            let line = source.to_string();
            // Many errors repeat their cause in their own line.
            if verbose {
                text.push_str(&format!("\n  because: {line}"));
            } else if !last.contains(&line) {
                text.push_str(&format!(": {line}"));
            }
            last = line;
            cause = source.source();
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\nhint: {hint}"));
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_a_hint_or_the_whole_chain() {
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error =
            Error::file(Path::new("model.gguf"), cause).hint("`cargo xtask demo` fetches a small one");
        assert_eq!(
            error.render(false),
            "error: model.gguf: no such file\nhint: `cargo xtask demo` fetches a small one"
        );
        assert_eq!(
            error.render(true),
            "error: model.gguf\n  because: no such file\nhint: `cargo xtask demo` fetches a small one"
        );
    }
}
