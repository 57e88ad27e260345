//! From tokens to text, one token at a time.
//!
//! Invariants: what is handed out is whole characters and is never taken back; joined with the end's, it is the
//! decoding of all tokens, whatever the split into calls. The cost of a token is proportional to its own bytes: at
//! most three bytes of an open character are kept.

use super::{spelling::Lead, tokenizer::Tokenizer};
use std::{str, sync::Arc};
use tandem_contracts::text::{TokenId, Vocabulary};

/// Which special tokens show in a text, by their names.
#[derive(Clone, Debug, Default)]
pub enum Shown {
    /// None.
    #[default]
    None,
    /// These, in ascending order.
    These(Arc<[TokenId]>),
    /// All.
    All,
}

impl Shown {
    fn holds(&self, token: TokenId) -> bool {
        match self {
            Self::None => false,
            Self::These(tokens) => tokens.binary_search(&token).is_ok(),
            Self::All => true,
        }
    }
}

/// The state of one text that grows.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    shown: Shown,
    /// Whether the text has begun, so that nothing is stripped any more.
    begun: bool,
    /// Bytes of a character that is not complete.
    open: Vec<u8>,
}

impl Detokenizer {
    /// Begins a text that leaves special tokens out.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self::showing(tokenizer, Shown::None)
    }

    /// Begins a text that shows some special tokens by their names.
    pub fn showing(tokenizer: Arc<Tokenizer>, shown: Shown) -> Self {
        Self { tokenizer, shown, begun: false, open: Vec::new() }
    }

    /// Begins a text that shows special tokens by their names.
    pub fn with_special(tokenizer: Arc<Tokenizer>) -> Self {
        Self::showing(tokenizer, Shown::All)
    }

    /// Takes the next token and appends the characters that are now complete. Ids outside the vocabulary add
    /// nothing.
    pub fn push(&mut self, token: TokenId, text: &mut String) {
        if self.tokenizer.is_special(token) && !self.shown.holds(token) {
            return;
        }
        let Some(bytes) = self.tokenizer.token_bytes(token) else { return };
        match self.tokenizer.spelling().lead {
            Lead::OneSpace if !self.begun => {
                self.open.extend_from_slice(bytes.strip_prefix(b" ").unwrap_or(bytes))
            }
            Lead::FirstToken if !self.begun => self.open.extend(bytes.iter().filter(|&&byte| byte != b' ')),
            _ => self.open.extend_from_slice(bytes),
        }
        self.begun |= !bytes.is_empty();
        self.take(text);
    }

    /// The text ends here: what is left of an open character comes out as U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !self.open.is_empty() {
            self.replace(self.open.len(), text);
            self.open.clear();
        }
    }

    /// Moves what is decided from the open bytes to the text.
    fn take(&mut self, text: &mut String) {
        let mut from = 0;
        loop {
            match str::from_utf8(&self.open[from..]) {
                Ok(rest) => {
                    text.push_str(rest);
                    return self.open.clear();
                }
                Err(error) => {
                    let valid = from + error.valid_up_to();
                    text.push_str(str::from_utf8(&self.open[from..valid]).unwrap_or_default());
                    from = valid;
                    let Some(wrong) = error.error_len() else { break };
                    self.replace(wrong, text);
                    from += wrong;
                }
            }
        }
        self.open.drain(..from);
    }

    /// Stands in for bytes that form no character: one replacement in all, or one for each byte where bytes are
    /// tokens of their own, as the reference decoders have it.
    fn replace(&self, bytes: usize, text: &mut String) {
        let count = if self.tokenizer.spelling().byte_fallback { bytes } else { 1 };
        text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deltas(tokenizer: &Arc<Tokenizer>, tokens: &[TokenId]) -> (Vec<String>, String) {
        let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer));
        let mut deltas = Vec::new();
        for &token in tokens {
            let mut delta = String::new();
            detokenizer.push(token, &mut delta);
            deltas.push(delta);
        }
        let mut rest = String::new();
        detokenizer.finish(&mut rest);
        (deltas, rest)
    }

    #[test]
    fn characters_wait_for_their_last_byte() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        let owl: Vec<TokenId> = "a🦉b".bytes().map(TokenId::from).collect();
        assert_eq!(deltas(&tokenizer, &owl).0, ["a", "", "", "", "🦉", "b"]);
    }

    #[test]
    fn broken_bytes_are_replaced_as_soon_as_they_are_known_to_be() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        let (parts, rest) = deltas(&tokenizer, &[0xF0, 0x9F, 0x61, 0xFF, 0xE2, 0x82]);
        assert_eq!((parts.join("|").as_str(), rest.as_str()), ("||\u{FFFD}a|\u{FFFD}||", "\u{FFFD}"));
    }

    #[test]
    fn special_tokens_show_only_when_asked_for() {
        let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
        let end = tokenizer.end_tokens()[0];
        let mut shown = String::new();
        Detokenizer::with_special(Arc::clone(&tokenizer)).push(end, &mut shown);
        assert_eq!((shown.as_str(), deltas(&tokenizer, &[end]).0.concat().as_str()), ("<|end|>", ""));
        for (tokens, text) in [(vec![7, end], "<|end|>"), (vec![7], "")] {
            let mut some = String::new();
            Detokenizer::showing(Arc::clone(&tokenizer), Shown::These(tokens.into())).push(end, &mut some);
            assert_eq!(some, text);
        }
    }

    proptest! {
        /// Over bytes, the reference is the standard library's lossy decoding of the whole.
        #[test]
        fn any_bytes_decode_as_a_whole(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
            let tokens: Vec<TokenId> = bytes.iter().map(|&byte| TokenId::from(byte)).collect();
            let (deltas, rest) = deltas(&tokenizer, &tokens);
            prop_assert_eq!(deltas.concat() + &rest, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_text_comes_back_whole(text in "\\PC{0,40}") {
            let tokenizer = Arc::new(Tokenizer::bytes().expect("a tokeniser"));
            let tokens: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
            let (deltas, rest) = deltas(&tokenizer, &tokens);
            prop_assert_eq!((deltas.concat(), rest), (text, String::new()));
        }
    }
}
