//! What each token adds to a text, read off a tokeniser's decoder.
//!
//! | decoder | a token is |
//! |---|---|
//! | `ByteLevel` | a word over 256 printable stand-ins for bytes (GPT-2's table) |
//! | `Replace`, `ByteFallback`, `Fuse`, `Strip` | text with `▁` for a space, or one byte as `<0xE2>` (SentencePiece) |
//! | `Metaspace` | text with `▁` for a space |
//!
//! Invariant: a text is the concatenation of its tokens' bytes, but for what [`Lead`] takes from its beginning.

use crate::error::{Error, ErrorKind};
use serde_json::Value as Json;

/// What a decoder takes from the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// Nothing.
    Keep,
    /// One space.
    OneSpace,
    /// Every space of the first token.
    FirstToken,
}

/// How tokens are spelt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    replacements: Vec<(String, String)>,
    byte_level: bool,
    /// Whether tokens like `<0xE2>` are bytes. Bytes that form no character are then replaced one by one.
    pub(super) byte_fallback: bool,
    pub(super) lead: Lead,
}

impl Spelling {
    /// Reads a decoder as `tokenizer.json` has it.
    ///
    /// # Errors
    /// [`ErrorKind::Tokenizer`] for a decoder whose texts are not their tokens' concatenation.
    pub(super) fn new(decoder: &Json) -> Result<Self, Error> {
        let mut spelling =
            Self { replacements: Vec::new(), byte_level: false, byte_fallback: false, lead: Lead::Keep };
        spelling.add(decoder, false)?;
        Ok(spelling)
    }

    fn add(&mut self, decoder: &Json, fused: bool) -> Result<(), Error> {
        let unsupported = || Error::new(ErrorKind::Tokenizer, format!("unsupported decoder: {decoder}"));
        match decoder["type"].as_str().ok_or_else(unsupported)? {
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Sequence" => {
                let decoders = decoder["decoders"].as_array().ok_or_else(unsupported)?;
                let mut fused = fused;
                for decoder in decoders {
                    self.add(decoder, fused)?;
                    fused |= decoder["type"] == "Fuse";
                }
            }
            "Replace" => {
                let pattern = decoder["pattern"]["String"].as_str().ok_or_else(unsupported)?;
                let content = decoder["content"].as_str().ok_or_else(unsupported)?;
                self.replacements.push((pattern.to_owned(), content.to_owned()));
            }
            "Strip" => match (&decoder["content"], decoder["start"].as_u64(), decoder["stop"].as_u64()) {
                (content, Some(1), Some(0)) if content == " " && fused => self.lead = Lead::OneSpace,
                (_, Some(0), Some(0)) => {}
                _ => return Err(unsupported()),
            },
            "Metaspace" => {
                let mark = decoder["replacement"].as_str().ok_or_else(unsupported)?;
                self.replacements.push((mark.to_owned(), " ".to_owned()));
                if decoder["prepend_scheme"] != "never" {
                    self.lead = Lead::FirstToken;
                }
            }
            _ => return Err(unsupported()),
        }
        Ok(())
    }

    /// The bytes of a token.
    pub(super) fn bytes(&self, token: &str) -> Vec<u8> {
        if self.byte_level {
            let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
            return bytes.unwrap_or_else(|| token.as_bytes().to_vec());
        }
        let mut text = token.to_owned();
        for (pattern, content) in &self.replacements {
            text = text.replace(pattern.as_str(), content);
        }
        match byte_token(&text).filter(|_| self.byte_fallback) {
            Some(byte) => vec![byte],
            None => text.into_bytes(),
        }
    }
}

/// The byte that a token like `<0xE2>` stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The bytes that do not stand for themselves in GPT-2's table, in order.
const OTHERS: [u8; 68] = {
    let mut others = [0; 68];
    let (mut byte, mut next) = (0_u8, 0);
    loop {
        if !stands_for_itself(byte) {
            others[next] = byte;
            next += 1;
        }
        if byte == u8::MAX {
            break others;
        }
        byte += 1;
    }
};

/// The byte that a character of GPT-2's table stands for: printable Latin-1 stands for itself, the 68 other bytes,
/// in order, for the characters from U+0100.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => OTHERS.get((code - 0x100) as usize).copied(),
    }
}

/// The character of GPT-2's table for a byte.
pub(super) fn character_of(byte: u8) -> char {
    match OTHERS.binary_search(&byte) {
        Ok(rank) => char::from_u32(0x100 + rank as u32).unwrap_or(char::REPLACEMENT_CHARACTER),
        Err(_) => char::from(byte),
    }
}

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_byte_table_is_gpt_2s() {
        // https://github.com/openai/gpt-2, src/encoder.py: space is Ġ, newline Ċ, the last one (173) is ń - 1.
        for (byte, character) in [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'a', 'a'), (0xE9, 'é'), (0, 'Ā'), (0xAD, 'Ń')]
        {
            assert_eq!((byte_of(character), character_of(byte)), (Some(byte), character));
        }
        assert!((0..=u8::MAX).all(|byte| byte_of(character_of(byte)) == Some(byte)));
        assert_eq!([' ', '\u{AD}', '\u{144}', '日'].map(byte_of), [None; 4]);
    }

    #[test]
    fn byte_level_tokens_are_bytes_and_others_are_themselves() {
        let spelling = Spelling::new(&json!({"type": "ByteLevel"})).expect("supported");
        assert_eq!(spelling.bytes("Ġhello"), b" hello");
        assert_eq!(spelling.bytes("ðŁ"), [0xF0, 0x9F]);
        assert_eq!(spelling.bytes("<｜User｜>"), "<｜User｜>".as_bytes());
    }

    #[test]
    fn sentence_pieces_have_marks_and_byte_tokens() {
        let decoders = json!([
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]);
        let spelling = Spelling::new(&json!({"type": "Sequence", "decoders": decoders})).expect("supported");
        assert_eq!(spelling.lead, Lead::OneSpace);
        assert_eq!(spelling.bytes("▁a▁b"), b" a b");
        assert_eq!((spelling.bytes("<0xE2>"), spelling.bytes("<0xE2")), (vec![0xE2], b"<0xE2".to_vec()));
    }

    #[test]
    fn decoders_whose_texts_are_no_concatenation_are_refused() {
        for decoder in [
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            json!({"type": "Strip", "content": " ", "start": 0, "stop": 1}),
            json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
            json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}),
            json!(null),
        ] {
            let error = Spelling::new(&decoder).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Tokenizer);
        }
    }
}
