//! A vocabulary as large as those of byte-level tokenisers of many languages: all bytes, and words that are made up.
//!
//! Its tokens are as long, as alike, and as often with a space before them as those of such tokenisers.

use std::collections::HashSet;
use tandem_contracts::text::{TokenId, Vocabulary};

/// The end token.
const END: TokenId = 256;

/// The vocabulary.
#[derive(Debug)]
pub(crate) struct Synthetic(Vec<Vec<u8>>);

impl Synthetic {
    /// Of so many tokens; more than 1,000.
    pub(crate) fn new(tokens: usize) -> Self {
        let common = [
            "{\"", "\": ", "\": \"", "\", \"", "\"}", ", \"", "true", "false", "null", "}, {", "], \"",
            "[{\"",
        ];
        let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        words.push(b"<|end|>".to_vec());
        words.extend(common.map(|word| word.as_bytes().to_vec()));
        let mut known: HashSet<Vec<u8>> = words.iter().cloned().collect();
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let parts = [
            "a", "e", "i", "o", "u", "st", "er", "an", "on", "in", "re", "th", "le", "or", "al", "ch", "ing",
            "tion", "ver", "pro", "com", "x", "z", "k", "m", "qu", "é", "ß", "но", "ст", "な", "の", "中",
            "国", "ا", "ل", "_", "-", "(", ");", "->", "==", "\n", "\t", "0", "1", "2", "7", "get", "Set",
            "Id", ".", ":", "/", "\"", "'",
        ];
        while words.len() < tokens {
            let space = if next(3) > 0 { " " } else { "" };
            let word: String = (0..=next(5)).map(|_| parts[next(parts.len())]).collect();
            let word = format!("{space}{word}").into_bytes();
            if known.insert(word.clone()) {
                words.push(word);
            }
        }
        Self(words)
    }

    /// The token of these bytes.
    fn find(&self, word: &[u8]) -> Option<TokenId> {
        self.0.iter().position(|known| known == word).map(|id| id as TokenId)
    }
}

impl Vocabulary for Synthetic {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.get(token as usize).map(Vec::as_slice)
    }

    fn is_special(&self, token: TokenId) -> bool {
        token == END
    }

    /// Common pieces of JSON whole, everything else byte by byte.
    fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let longest =
                (1..=4.min(rest.len())).rev().find_map(|length| Some((self.find(&rest[..length])?, length)));
            let (token, length) = longest.unwrap_or((TokenId::from(rest[0]), 1));
            tokens.push(token);
            rest = &rest[length..];
        }
        tokens
    }

    fn end_tokens(&self) -> &[TokenId] {
        &[END]
    }
}
