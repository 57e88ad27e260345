//! A rendered text, and where its tokens stand in it.

use crate::text::Tokenizer;
use tandem_contracts::text::{TokenId, Vocabulary};

/// A text and its tokens.
#[derive(Clone, Debug)]
pub(super) struct Rendering {
    pub(super) text: String,
    pub(super) tokens: Vec<TokenId>,
    /// The byte at which each token begins, and the text's end.
    starts: Vec<usize>,
}

impl Rendering {
    /// The tokens of a whole text; nothing where they spell another one.
    pub(super) fn new(tokenizer: &Tokenizer, text: String) -> Option<Self> {
        let tokens = tokenizer.encode_chat(&text).ok()?;
        let mut spelt = Vec::with_capacity(text.len());
        let mut starts = Vec::with_capacity(tokens.len() + 1);
        for &token in &tokens {
            starts.push(spelt.len());
            spelt.extend_from_slice(tokenizer.token_bytes(token)?);
        }
        starts.push(spelt.len());
        // Some vocabularies put a space before a text.
        let added =
            spelt.len().checked_sub(text.len()).filter(|added| spelt[*added..] == *text.as_bytes())?;
        starts.iter_mut().for_each(|start| *start = start.saturating_sub(added));
        Some(Self { text, tokens, starts })
    }

    /// The index of the token that begins at a byte, if one does.
    pub(super) fn boundary(&self, byte: usize) -> Option<usize> {
        let index = self.index_from(byte);
        (self.starts.get(index) == Some(&byte)).then_some(index)
    }

    /// The index of the first token that begins at a byte or behind it.
    pub(super) fn index_from(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start < byte).min(self.tokens.len())
    }

    /// How many tokens end at a byte or before it.
    pub(super) fn index_to(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte).saturating_sub(1)
    }
}
