//! The text of one answer: tokens become characters, stop strings end it.
//!
//! Invariants are those of [`StopMatcher`].

use super::{
    detokenizer::{Detokenizer, Shown},
    stop::StopFinder,
    tokenizer::Tokenizer,
};
use std::sync::Arc;
use tandem_contracts::text::{Delta, StopMatcher, TokenId};

/// Detokeniser and stop strings of one row.
#[derive(Clone, Debug)]
pub struct AnswerText {
    detokenizer: Detokenizer,
    stops: StopFinder,
    /// Characters of one call, kept for its capacity.
    characters: String,
}

impl AnswerText {
    /// Begins an answer that ends at any of these strings. Special tokens are no part of it.
    pub fn new(tokenizer: Arc<Tokenizer>, stops: &[String]) -> Self {
        Self::showing(tokenizer, stops, Shown::None)
    }

    /// Begins an answer that shows some special tokens.
    pub fn showing(tokenizer: Arc<Tokenizer>, stops: &[String], shown: Shown) -> Self {
        let detokenizer = Detokenizer::showing(tokenizer, shown);
        Self { detokenizer, stops: StopFinder::new(stops), characters: String::new() }
    }
}

impl StopMatcher for AnswerText {
    fn push(&mut self, token: TokenId) -> Delta {
        self.characters.clear();
        self.detokenizer.push(token, &mut self.characters);
        let mut text = String::new();
        let stopped = self.stops.push(&self.characters, &mut text);
        Delta { text, stopped }
    }

    fn finish(&mut self) -> Delta {
        self.characters.clear();
        self.detokenizer.finish(&mut self.characters);
        let mut text = String::new();
        let stopped = self.stops.push(&self.characters, &mut text);
        let stopped = stopped.or_else(|| self.stops.finish(&mut text));
        Delta { text, stopped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<TokenId> {
        text.bytes().map(TokenId::from).collect()
    }

    #[test]
    fn an_answer_ends_before_its_stop_string() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        let mut answer = AnswerText::new(tokenizer, &["🦉!".to_owned()]);
        let mut text = String::new();
        for token in bytes("an 🦉 or 🦉") {
            let delta = answer.push(token);
            assert_eq!(delta.stopped, None);
            text.push_str(&delta.text);
        }
        assert_eq!(text, "an 🦉 or ");
        assert_eq!(answer.push(b'!'.into()), Delta { text: String::new(), stopped: Some(0) });
    }

    #[test]
    fn the_end_hands_out_open_characters_and_held_text() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        let mut answer = AnswerText::new(tokenizer, &["ab\u{FFFD}c".to_owned()]);
        let text: String =
            bytes("xab").into_iter().chain([0xE2, 0x82]).map(|token| answer.push(token).text).collect();
        assert_eq!((text.as_str(), answer.finish().text.as_str()), ("x", "ab\u{FFFD}"));
    }

    #[test]
    fn the_end_may_complete_a_stop_string() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        // An open character ends as a replacement; of two strings the one that could have gone on is no longer waited for.
        for (stops, said, expected) in [
            (["b\u{FFFD}", "z"], &[b'a', b'b', 0xE2][..], Delta { text: String::new(), stopped: Some(0) }),
            (["abcd", "bc"], b"xabc", Delta { text: "a".to_owned(), stopped: Some(1) }),
        ] {
            let mut answer = AnswerText::new(Arc::clone(&tokenizer), &stops.map(str::to_owned));
            said.iter().for_each(|&byte| assert_eq!(answer.push(byte.into()).stopped, None));
            assert_eq!(answer.finish(), expected);
        }
    }
}
