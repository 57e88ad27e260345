//! A tokeniser: from text to ids by the `tokenizers` library, from ids to bytes by a table.
//!
//! Invariants: the table and the library agree on every id; encoding is the library's, byte for byte what the
//! reference gives; a prompt begins with at most one begin token.

use super::{
    gguf::GgufVocabulary,
    piece::{Kind, Pieces},
    spelling::{Spelling, character_of},
};
use crate::error::{Error, ErrorKind};
use serde_json::{Value as Json, json};
use std::fmt;
use tandem_contracts::text::{TokenId, Vocabulary};
use tokenizers::{Model, NormalizerWrapper, OffsetType, PreTokenizer, PreTokenizerWrapper};

/// Special tokens by name, and what is done with them, as the files beside a tokeniser tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text.
    pub begin: Option<String>,
    /// Ends an answer.
    pub end: Option<String>,
    /// Fills up.
    pub padding: Option<String>,
    /// Stands for what the vocabulary lacks.
    pub unknown: Option<String>,
    /// Ids that end an answer besides `end`: those of the model's configurations.
    pub end_ids: Vec<TokenId>,
    /// Whether a prompt that is no chat begins with `begin`; `None` leaves it to the tokeniser's own processor.
    pub add_begin: Option<bool>,
}

/// Encodes and decodes the texts of one model.
pub struct Tokenizer {
    library: tokenizers::Tokenizer,
    inside: Option<Inside>,
    pieces: Pieces,
    spelling: Spelling,
    special: SpecialTokens,
    begin: Option<TokenId>,
    ends: Vec<TokenId>,
    longest: usize,
}

/// The steps for a text that stands inside a longer one, where they differ: no space is put before it.
#[derive(Debug)]
struct Inside {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`ErrorKind::Tokenizer`] if it is none, or if its decoder is of an unsupported kind.
    pub fn from_json(bytes: &[u8], special: SpecialTokens) -> Result<Self, Error> {
        Self::new(tokenizers::Tokenizer::from_bytes(bytes).map_err(unusable)?, special)
    }

    /// Builds the tokeniser that a GGUF file describes.
    ///
    /// # Errors
    /// [`ErrorKind::Tokenizer`] for a kind of vocabulary or of splitting that is not known, or lists that
    /// contradict each other.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self, Error> {
        let (library, special) = vocabulary.build()?;
        Self::new(library, special)
    }

    /// A vocabulary of the 256 bytes, with `<|end|>` as 256: for models that come without one.
    ///
    /// # Errors
    /// None that could be provoked; the library's builder is fallible.
    pub fn bytes() -> Result<Self, Error> {
        let vocabulary: serde_json::Map<String, Json> =
            (0..=u8::MAX).map(|byte| (character_of(byte).to_string(), Json::from(byte))).collect();
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let end = json!({
            "id": 256, "content": "<|end|>", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        });
        let file = json!({
            "version": "1.0", "added_tokens": [end], "normalizer": null, "pre_tokenizer": byte_level,
            "post_processor": null, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        });
        let special = SpecialTokens { end: Some("<|end|>".to_owned()), ..SpecialTokens::default() };
        Self::from_json(file.to_string().as_bytes(), special)
    }

    fn new(mut library: tokenizers::Tokenizer, special: SpecialTokens) -> Result<Self, Error> {
        // Files may carry what some training run used; neither belongs to encoding a prompt.
        library.with_truncation(None).map_err(unusable)?;
        library.with_padding(None);
        let spelling = Spelling::new(&json_of(library.get_decoder())?)?;
        let pieces = Pieces::new(&library, &spelling);
        let id = |name: &Option<String>| name.as_deref().and_then(|name| library.token_to_id(name));
        let begin = id(&special.begin);
        let mut ends: Vec<TokenId> = id(&special.end).into_iter().collect();
        for &end in &special.end_ids {
            if !ends.contains(&end) && (end as usize) < pieces.len() {
                ends.push(end);
            }
        }
        let inside = Inside::of(&library)?;
        let ids = 0..pieces.len() as TokenId;
        let longest = ids.filter_map(|id| pieces.get(id)).map(|(_, bytes)| bytes.len()).max().unwrap_or(1);
        Ok(Self { library, inside, pieces, spelling, special, begin, ends, longest })
    }

    /// Most bytes of one token.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Encodes a rendered chat. The template has written every special token itself, so none is added.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if the vocabulary cannot express the text.
    pub fn encode_chat(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        self.encode_whole(text, false)
    }

    /// Encodes a prompt that is no chat: with the begin token if the model's texts have one, and with one only if
    /// the text brings its own.
    ///
    /// # Errors
    /// As [`Self::encode_chat`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let mut tokens = self.encode_whole(text, self.special.add_begin != Some(false))?;
        if let Some(begin) = self.begin {
            if self.special.add_begin == Some(true) && tokens.first() != Some(&begin) {
                tokens.insert(0, begin);
            }
            if tokens.starts_with(&[begin, begin]) {
                tokens.remove(0);
            }
        }
        Ok(tokens)
    }

    fn encode_whole(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>, Error> {
        let encoding = self.library.encode_fast(text, add_special).map_err(not_encodable)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a text that stands inside a longer one.
    ///
    /// # Errors
    /// As [`Self::encode_chat`].
    pub fn encode_inside(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let Some(inside) = &self.inside else { return self.encode_whole(text, false) };
        let words = self.library.get_added_vocabulary();
        let mut pieces = words.extract_and_normalize(inside.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &inside.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(not_encodable)?;
        }
        self.library.get_model().tokenize_in_pretokenized(&mut pieces, None).map_err(not_encodable)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(not_encodable)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The names of the special tokens as chat templates read them.
    pub fn template_variables(&self) -> Vec<(String, String)> {
        let SpecialTokens { begin, end, padding, unknown, .. } = &self.special;
        [("bos_token", begin), ("eos_token", end), ("pad_token", padding), ("unk_token", unknown)]
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text.clone()?)))
            .collect()
    }

    /// A token as the vocabulary itself writes it.
    pub fn word(&self, token: TokenId) -> Option<String> {
        self.library.id_to_token(token)
    }

    pub(super) fn spelling(&self) -> &Spelling {
        &self.spelling
    }
}

impl Vocabulary for Tokenizer {
    fn len(&self) -> usize {
        self.pieces.len()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.pieces.get(token).map(|(_, bytes)| bytes)
    }

    fn is_special(&self, token: TokenId) -> bool {
        matches!(self.pieces.get(token), Some((Kind::Special, _)))
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.encode_inside(text).unwrap_or_else(|error| {
            tracing::warn!(%error, "a text could not be encoded");
            Vec::new()
        })
    }

    fn end_tokens(&self) -> &[TokenId] {
        &self.ends
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("len", &self.pieces.len())
            .field("spelling", &self.spelling)
            .field("special", &self.special)
            .finish_non_exhaustive()
    }
}

impl Inside {
    /// The steps without their prefixes; `None` if they have none.
    fn of(library: &tokenizers::Tokenizer) -> Result<Option<Self>, Error> {
        let mut normalizer = json_of(library.get_normalizer())?;
        let mut pre_tokenizer = json_of(library.get_pre_tokenizer())?;
        let changed = [remove_prefix(&mut normalizer), remove_prefix(&mut pre_tokenizer)];
        if !changed.contains(&true) {
            return Ok(None);
        }
        let invalid = |error: serde_json::Error| unusable(error.into());
        Ok(Some(Self {
            normalizer: serde_json::from_value(normalizer).map_err(invalid)?,
            pre_tokenizer: serde_json::from_value(pre_tokenizer).map_err(invalid)?,
        }))
    }
}

/// Takes whatever puts something before a text out of a step's description. Returns whether there was such.
fn remove_prefix(step: &mut Json) -> bool {
    match step["type"].as_str() {
        Some("Prepend") => {
            *step = json!({"type": "Sequence", "normalizers": []});
            true
        }
        Some("Metaspace") if step["prepend_scheme"] != "never" => {
            step["prepend_scheme"] = json!("never");
            true
        }
        Some("ByteLevel") if step["add_prefix_space"] == true => {
            step["add_prefix_space"] = json!(false);
            true
        }
        Some("Sequence") => {
            let steps = ["normalizers", "pretokenizers"].into_iter().find(|&name| step[name].is_array());
            let steps = steps.and_then(|name| step[name].as_array_mut());
            // Every step is visited: no short circuit.
            steps.is_some_and(|steps| {
                steps.iter_mut().filter_map(|step| remove_prefix(step).then_some(())).count() > 0
            })
        }
        _ => false,
    }
}

fn json_of<T: serde::Serialize>(step: Option<&T>) -> Result<Json, Error> {
    serde_json::to_value(step).map_err(|error| unusable(error.into()))
}

fn unusable(error: tokenizers::Error) -> Error {
    Error::new(ErrorKind::Tokenizer, format!("the tokeniser cannot be used: {error}"))
}

fn not_encodable(error: tokenizers::Error) -> Error {
    Error::new(ErrorKind::Encode, format!("the text cannot be encoded: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SentencePiece-like vocabulary: `▁` before the text, a begin token, bytes for the rest.
    fn sentence_piece(prefix: Json, add_begin: Option<bool>) -> Tokenizer {
        let mut vocabulary = serde_json::Map::new();
        for token in ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "▁ab"] {
            vocabulary.insert(token.to_owned(), json!(vocabulary.len()));
        }
        let special = |id: u32, name: &str| {
            json!({
                "id": id, "content": name, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        };
        let file = json!({
            "version": "1.0",
            "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                prefix, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            "model": {"type": "BPE", "vocab": vocabulary, "unk_token": "<unk>",
                "merges": [["a", "b"], ["▁", "ab"], ["▁", "a"]]},
        });
        let special = SpecialTokens {
            begin: Some("<s>".to_owned()),
            end: Some("</s>".to_owned()),
            end_ids: vec![2, 1, 99],
            add_begin,
            ..SpecialTokens::default()
        };
        Tokenizer::from_json(file.to_string().as_bytes(), special).expect("a tokeniser")
    }

    #[test]
    fn text_inside_a_longer_one_gets_no_prefix() {
        let tokenizer = sentence_piece(json!({"type": "Prepend", "prepend": "▁"}), None);
        assert_eq!(tokenizer.encode_chat("ab").ok(), Some(vec![8]));
        assert_eq!(tokenizer.encode("ab"), [7]);
        assert_eq!(tokenizer.encode(" ab"), [8]);
    }

    #[test]
    fn a_prompt_has_one_begin_token() {
        let plain = json!({"type": "Strip", "strip_left": false, "strip_right": false});
        let tokenizer = sentence_piece(plain.clone(), Some(true));
        assert_eq!(tokenizer.encode_prompt("ab").ok(), Some(vec![1, 7]));
        assert_eq!(tokenizer.encode_prompt("<s>ab").ok(), Some(vec![1, 7]));
        assert_eq!(tokenizer.encode_prompt("<s><s>ab").ok(), Some(vec![1, 7]));
        assert_eq!(tokenizer.encode_chat("ab").ok(), Some(vec![7]));
        assert_eq!(sentence_piece(plain, Some(false)).encode_prompt("ab").ok(), Some(vec![7]));
    }

    #[test]
    fn end_tokens_are_the_union_of_all_sources_inside_the_vocabulary() {
        let tokenizer = sentence_piece(json!({"type": "Prepend", "prepend": "▁"}), None);
        assert_eq!(tokenizer.end_tokens(), [2, 1]);
        assert!(tokenizer.is_special(1) && !tokenizer.is_special(4) && !tokenizer.is_special(99));
        assert_eq!((tokenizer.token_bytes(6), tokenizer.token_bytes(9)), (Some(&b" a"[..]), None));
        assert_eq!(tokenizer.template_variables()[0], ("bos_token".to_owned(), "<s>".to_owned()));
    }

    #[test]
    fn a_file_that_is_no_tokeniser_is_an_error() {
        for bytes in
            [&b""[..], b"{}", b"[1]", b"{\"version\": \"1.0\"", "{\"model\": {\"type\": \"BPE\"}}".as_bytes()]
        {
            let error = Tokenizer::from_json(bytes, SpecialTokens::default()).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Tokenizer);
        }
    }
}
