//! A vocabulary as the grammar engine wants it: a tree of token bytes, and a way to write bytes as tokens.

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;
use tandem_contracts::text::{TokenId, Vocabulary};

/// Texts from the middle of an answer that a tokeniser must give back, or it is not asked to write any.
const PROBES: [&str; 4] = ["\": ", "name\": \"", ", \"a\": [1, 2", " or not"];

pub(super) struct Environment {
    vocabulary: Arc<dyn Vocabulary>,
    trie: TokTrie,
    faithful: bool,
}

impl Environment {
    /// None where nothing ends an answer.
    pub(super) fn new(vocabulary: Arc<dyn Vocabulary>) -> Option<Self> {
        let count = u32::try_from(vocabulary.len()).ok()?;
        let ends: Vec<TokenId> = vocabulary.end_tokens().iter().copied().filter(|&end| end < count).collect();
        let words: Vec<Vec<u8>> = (0..count).map(|token| word(vocabulary.as_ref(), token)).collect();
        let info = TokRxInfo::new(count, *ends.first()?);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let faithful = PROBES.iter().all(|probe| writes(&trie, &vocabulary.encode(probe), probe.as_bytes()));
        Some(Self { vocabulary, trie, faithful })
    }
}

/// A token's bytes; special ones are marked with a byte that no text has.
fn word(vocabulary: &dyn Vocabulary, token: TokenId) -> Vec<u8> {
    let bytes = vocabulary.token_bytes(token).unwrap_or_default();
    match vocabulary.is_special(token) {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        false => bytes.to_vec(),
    }
}

/// Whether these tokens are these bytes.
fn writes(trie: &TokTrie, tokens: &[TokenId], bytes: &[u8]) -> bool {
    let inside = tokens.iter().all(|&token| (token as usize) < trie.vocab_size());
    inside && trie.decode(tokens) == bytes
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let encode = |text: &str| {
            let tokens = self.vocabulary.encode(text);
            match writes(&self.trie, &tokens, text.as_bytes()) {
                true => tokens,
                false => self.trie.greedy_tokenize(text.as_bytes()),
            }
        };
        self.trie.tokenize_with_greedy_fallback(bytes, encode)
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.faithful
    }
}
