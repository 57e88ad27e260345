//! The bytes of every token, in one table.
//!
//! Invariant: an entry is looked up in constant time, and the table holds each token's bytes once.

use super::spelling::Spelling;
use tandem_contracts::text::TokenId;
use tokenizers::Model;

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: the vocabulary has a hole here.
    Hole,
    /// Part of a text.
    Text,
    /// Control text.
    Special,
}

/// All tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Kind of each token, and where its bytes end.
    ends: Vec<(Kind, usize)>,
}

impl Pieces {
    /// Spells every token of a tokeniser. Special ones keep their names.
    pub(super) fn new(library: &tokenizers::Tokenizer, spelling: &Spelling) -> Self {
        let mut texts: Vec<(Kind, String)> = Vec::new();
        let mut put = |id: TokenId, kind, text| {
            let id = id as usize;
            if texts.len() <= id {
                texts.resize(id + 1, (Kind::Hole, String::new()));
            }
            texts[id] = (kind, text);
        };
        // Looking up each id is several times faster than a copy of the whole map, which is left for vocabularies
        // with holes.
        let model = library.get_model();
        let dense = (0..model.get_vocab_size() as TokenId).map(|id| model.id_to_token(id)).collect();
        match dense {
            Some::<Vec<String>>(tokens) => (0..).zip(tokens).for_each(|(id, text)| put(id, Kind::Text, text)),
            None => library.get_vocab(false).into_iter().for_each(|(text, id)| put(id, Kind::Text, text)),
        }
        // What was added wins over the model's own token of the same id, as it does in the library.
        for (id, token) in library.get_added_tokens_decoder() {
            put(id, if token.special { Kind::Special } else { Kind::Text }, token.content);
        }
        let mut bytes = Vec::new();
        let ends = texts.into_iter().map(|(kind, text)| {
            match kind {
                Kind::Hole => {}
                Kind::Text => bytes.extend(spelling.bytes(&text)),
                Kind::Special => bytes.extend(text.as_bytes()),
            }
            (kind, bytes.len())
        });
        let ends = ends.collect();
        Self { bytes, ends }
    }

    /// Number of ids.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What an id stands for; `None` outside the vocabulary and in its holes.
    pub(super) fn get(&self, token: TokenId) -> Option<(Kind, &[u8])> {
        let index = token as usize;
        let &(kind, end) = self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        (kind != Kind::Hole).then(|| (kind, &self.bytes[start..end]))
    }
}
