//! A vocabulary of 151,936 tokens as a model has it: Qwen's, from a file of ranks as `tiktoken` writes them.
//!
//! A line is a token's bytes in base64, a space, and its rank, which is its id. As ranks are the order in which byte-pair
//! encoding learnt its tokens, the first of them are a smaller vocabulary of the same kind. Behind them stand the mark that
//! ends a text, and ids without bytes up to the size of the model's table.

use base64::{Engine, prelude::BASE64_STANDARD};
use std::{collections::HashMap, fs, path::Path};
use tandem_contracts::text::{TokenId, Vocabulary};

/// The vocabulary.
#[derive(Debug)]
pub(crate) struct Ranks {
    words: Vec<Vec<u8>>,
    ranks: HashMap<Vec<u8>, TokenId>,
    size: usize,
    end: [TokenId; 1],
}

impl Ranks {
    /// The first `ranks` of a file, in a table of `size`.
    pub(crate) fn read(path: &Path, ranks: usize, size: usize) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let word = |line: &str| BASE64_STANDARD.decode(line.split_once(' ')?.0).ok();
        let words: Option<Vec<_>> = text.lines().take(ranks).map(word).collect();
        let mut words = words.ok_or_else(|| format!("{}: not a file of ranks", path.display()))?;
        let ranks = words.iter().cloned().zip(0..).collect();
        let end = words.len() as TokenId;
        words.push(b"<|endoftext|>".to_vec());
        Ok(Self { words, ranks, size, end: [end] })
    }
}

impl Vocabulary for Ranks {
    fn len(&self) -> usize {
        self.size
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.words.get(token as usize).map(Vec::as_slice)
    }

    fn is_special(&self, token: TokenId) -> bool {
        token >= self.end[0]
    }

    /// Joins, time and again, the two neighbours that make the token of the lowest rank.
    fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut parts: Vec<Vec<u8>> = text.bytes().map(|byte| vec![byte]).collect();
        let rank = |pair: &[Vec<u8>]| self.ranks.get(&pair.concat()).copied();
        while let Some((_, place)) =
            parts.windows(2).zip(0..).filter_map(|(pair, place)| Some((rank(pair)?, place))).min()
        {
            let joined: Vec<u8> = parts.remove(place + 1);
            let joined = [std::mem::take(&mut parts[place]), joined].concat();
            parts[place] = joined;
        }
        parts.iter().map(|part| self.ranks[part]).collect()
    }

    fn end_tokens(&self) -> &[TokenId] {
        &self.end
    }
}
