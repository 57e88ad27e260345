//! The text of one answer: tokens become characters, stop strings end it.
//!
//! Invariants are those of [`StopMatcher`].

use super::{detokenizer::Detokenizer, stop::StopFinder, tokenizer::Tokenizer};
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
        let detokenizer = Detokenizer::new(tokenizer);
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

    fn finish(&mut self) -> String {
        self.characters.clear();
        self.detokenizer.finish(&mut self.characters);
        let mut text = String::new();
        if self.stops.push(&self.characters, &mut text).is_none() {
            self.stops.finish(&mut text);
        }
        text
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
        assert_eq!((text.as_str(), answer.finish().as_str()), ("x", "ab\u{FFFD}"));
    }
}
