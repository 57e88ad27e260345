//! The crate's one error type: opaque, with a kind to branch on, and the file and tensor that it is about.

use std::{error, fmt};
use tandem_contracts::tensor;

/// Result of reading or loading a model.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was; new kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is truncated, lies about its sizes, or breaks its format.
    Format,
    /// The configuration lacks a value, or one is out of range.
    Config,
    /// Well-formed, but not known here: a model type, a quantisation, an element type.
    Unsupported,
    /// A tensor that the model needs is not in the files, or one is there that it does not know.
    Tensor,
    /// The device refused or failed.
    Device,
}

/// A model that cannot be read or loaded.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    file: Option<String>,
    tensor: Option<String>,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of a kind. The message is lower case and puts the offending value after a colon.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, file: None, tensor: None, message: message.into(), source: None }))
    }

    pub(crate) fn format(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Format, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// A tensor whose name, or what it is translated to, another tensor has.
    pub(crate) fn twice(name: &str, translated: &str) -> Self {
        let message = format!("is there twice, also as: {}", printable(translated));
        Self::new(ErrorKind::Tensor, message).of_tensor(name)
    }

    /// Says which part of a tensor it is about.
    #[must_use]
    pub(crate) fn about(mut self, part: &str) -> Self {
        self.0.message = format!("{part}: {}", self.0.message);
        self
    }

    /// Names the file, unless one is named already.
    #[must_use]
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.0.file.get_or_insert_with(|| printable(file));
        self
    }

    /// Names the tensor, unless one is named already.
    #[must_use]
    pub(crate) fn of_tensor(mut self, tensor: &str) -> Self {
        self.0.tensor.get_or_insert_with(|| printable(tensor));
        self
    }

    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file that it is about, as the caller named it.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The tensor that it is about.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
}

/// A name from a file, fit for one line of a terminal.
pub(crate) fn printable(name: &str) -> String {
    const LONGEST: usize = 120;
    let mut text: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        text.push_str("..");
    }
    text
}

impl From<tensor::Error> for Error {
    fn from(source: tensor::Error) -> Self {
        Self::new(ErrorKind::Device, format!("the device refused: {source}")).because(source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = self.file() {
            write!(f, "{file}: ")?;
        }
        if let Some(tensor) = self.tensor() {
            write!(f, "tensor {tensor}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {self}", self.0.kind)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_and_tensor_and_survives_hostile_names() {
        let error = Error::format("ends early").of_tensor("a\n\u{1b}b").in_file("m.gguf").in_file("other");
        assert_eq!(error.to_string(), "m.gguf: tensor a\\n\\u{1b}b: ends early");
        assert_eq!(printable(&"x".repeat(1000)).len(), 122);
    }
}
