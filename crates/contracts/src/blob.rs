//! Named byte blobs: how core crates keep bytes without knowing files.
//!
//! Invariant: a reader sees a blob whole or not at all, whatever happens to the process that writes it.

use std::fmt;

/// A name made of ASCII letters, digits, `-`, `_` and `.`, not starting with a dot: safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobName(String);

/// The given text cannot name a blob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a blob name takes 1 to 200 of [A-Za-z0-9._-] and does not start with a dot: {0:?}")]
pub struct BadBlobName(String);

impl BlobName {
    /// Checks the name.
    ///
    /// # Errors
    /// Empty, longer than 200 bytes, a leading dot, or a byte outside the allowed set.
    pub fn new(name: impl Into<String>) -> Result<Self, BadBlobName> {
        let name = name.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.bytes().all(allowed) {
            return Err(BadBlobName(name));
        }
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failure of the store itself (full disk, no permission); an absent blob is not one.
#[derive(Debug, thiserror::Error)]
#[error("blob {name}: {source}")]
pub struct BlobError {
    /// The blob that was asked for.
    pub name: String,
    /// What the store met.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Bytes that stay readable while this value lives, mapped or owned.
pub type BlobBytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// Keeps blobs under names.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// The blob's bytes, or `None` when there is none of that name.
    ///
    /// # Errors
    /// The store could not be read.
    fn get(&self, name: &BlobName) -> Result<Option<BlobBytes>, BlobError>;

    /// Stores the parts, one after the other, as one blob; replaces an older one at once.
    ///
    /// # Errors
    /// The store could not be written; an older blob of that name is then still whole.
    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<(), BlobError>;

    /// Removes the blob if there is one.
    ///
    /// # Errors
    /// The store could not be written.
    fn remove(&self, name: &BlobName) -> Result<(), BlobError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", ".hidden", "é", &"x".repeat(201)] {
            assert!(BlobName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(BlobName::new("smollm2-q4_1.v1").map(|n| n.to_string()), Ok("smollm2-q4_1.v1".to_owned()));
    }
}
