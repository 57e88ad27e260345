//! What a tokeniser needs, as a GGUF file's metadata gives it.
//!
//! Invariants: there is one type and one score for each token, or none at all; every id is inside the list.

use super::{Array, Gguf, Value};
use crate::error::{Error, Result};
use tandem_contracts::text::TokenId;

/// A vocabulary of `tokenizer.ggml.*` keys, uninterpreted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// Kind of model: `gpt2` is byte-level pair encoding, `llama` is SentencePiece.
    pub model: String,
    /// Name of the rule that splits text before pair encoding (`smollm`, `llama-bpe`).
    pub pre_tokenizer: Option<String>,
    /// Tokens by id.
    pub tokens: Vec<String>,
    /// Type of each token: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. May be empty.
    pub token_types: Vec<i32>,
    /// Score of each token (SentencePiece). May be empty.
    pub scores: Vec<f32>,
    /// Pair merges in order of rank, each two tokens with a space between.
    pub merges: Vec<String>,
    /// Token that begins a text.
    pub begin: Option<TokenId>,
    /// Token that ends a text.
    pub end: Option<TokenId>,
    /// Token that ends a turn of a conversation.
    pub end_of_turn: Option<TokenId>,
    /// Token for what cannot be encoded.
    pub unknown: Option<TokenId>,
    /// Token that fills.
    pub padding: Option<TokenId>,
    /// Whether encoding a text puts the begin token before it.
    pub add_begin: Option<bool>,
    /// Whether encoding a text puts the end token after it.
    pub add_end: Option<bool>,
    /// Whether encoding puts a space before the text (SentencePiece).
    pub add_space_prefix: Option<bool>,
    /// Chat template, in Jinja.
    pub chat_template: Option<String>,
}

impl GgufVocabulary {
    /// Reads the vocabulary.
    pub(crate) fn read(gguf: &Gguf<'_>) -> Result<Self> {
        Self::read_keys(gguf).map_err(|error| error.in_file(gguf.file()))
    }

    fn read_keys(gguf: &Gguf<'_>) -> Result<Self> {
        let keys = Keys(gguf);
        let tokens = keys.texts("tokens")?.ok_or_else(|| missing("tokens"))?;
        let vocabulary = Self {
            model: keys.text("model")?.ok_or_else(|| missing("model"))?,
            pre_tokenizer: keys.text("pre")?,
            token_types: keys.token_types(tokens.len())?,
            scores: keys.scores(tokens.len())?,
            merges: keys.texts("merges")?.unwrap_or_default(),
            begin: keys.id("bos_token_id", tokens.len())?,
            end: keys.id("eos_token_id", tokens.len())?,
            end_of_turn: keys.id("eot_token_id", tokens.len())?,
            unknown: keys.id("unknown_token_id", tokens.len())?,
            padding: keys.id("padding_token_id", tokens.len())?,
            add_begin: keys.flag("add_bos_token")?,
            add_end: keys.flag("add_eos_token")?,
            add_space_prefix: keys.flag("add_space_prefix")?,
            chat_template: gguf.value("tokenizer.chat_template").and_then(Value::as_text).map(str::to_owned),
            tokens,
        };
        Ok(vocabulary)
    }

    /// Ids that end an answer.
    pub fn end_tokens(&self) -> Vec<TokenId> {
        let mut ids: Vec<_> = self.end.into_iter().chain(self.end_of_turn).collect();
        ids.dedup();
        ids
    }
}

/// Typed access to the keys under `tokenizer.ggml.`; an absent key is `None`, one of another type an error.
struct Keys<'g, 'a>(&'g Gguf<'a>);

impl<'a> Keys<'_, 'a> {
    fn get<T>(&self, key: &str, what: &str, read: impl Fn(Value<'a>) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.0.value(&format!("tokenizer.ggml.{key}")) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Error::format(format!("tokenizer.ggml.{key} must be {what}")))
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        self.get(key, "text", |value| value.as_text().map(str::to_owned))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key, "a truth value", Value::as_bool)
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.get(key, "a list of texts in utf-8", |value| {
            let array = value.as_array()?;
            let texts =
                array.iter().map(|item| item.as_text().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
            (texts.len() == array.len()).then_some(texts)
        })
    }

    fn id(&self, key: &str, tokens: usize) -> Result<Option<TokenId>> {
        // Some converters write -1 for a token that the model does not have.
        let value = self.get(key, "a token id", |value| match value {
            Value::Signed(-1) | Value::Unsigned(0xffff_ffff) => Some(None),
            other => other.as_unsigned().map(Some),
        })?;
        let Some(id) = value.flatten() else { return Ok(None) };
        match TokenId::try_from(id) {
            Ok(token) if id < tokens as u64 => Ok(Some(token)),
            _ => Err(Error::format(format!("tokenizer.ggml.{key} is not among {tokens} tokens: {id}"))),
        }
    }

    fn token_types(&self, tokens: usize) -> Result<Vec<i32>> {
        let read = |item: Value<'_>| i32::try_from(item.as_unsigned()?).ok();
        self.of_each_token("token_type", tokens, &read)
    }

    fn scores(&self, tokens: usize) -> Result<Vec<f32>> {
        self.of_each_token("scores", tokens, &|item| item.as_float().map(|score| score as f32))
    }

    fn of_each_token<T>(
        &self,
        key: &str,
        tokens: usize,
        read: &dyn Fn(Value<'a>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let Some(array) = self.get(key, "a list", Value::as_array)? else { return Ok(Vec::new()) };
        let values: Option<Vec<T>> = array.iter().map(read).collect();
        let has_all = |values: &Vec<T>| Array::len(&array) == tokens && values.len() == tokens;
        values.filter(has_all).ok_or_else(|| {
            Error::format(format!("tokenizer.ggml.{key} must hold one number for each of: {tokens}"))
        })
    }
}

fn missing(key: &str) -> Error {
    Error::format(format!("metadata is missing: tokenizer.ggml.{key}"))
}
