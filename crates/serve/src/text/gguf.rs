//! Tokenisers as GGUF files describe them: lists of tokens, kinds, scores and merges under `tokenizer.ggml.*`.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#ggml>. Two families are built: byte-level BPE
//! (`gpt2`) and SentencePiece's BPE (`llama`, and `gemma4` with explicit merges).
//!
//! Invariant: ids are positions in the list of tokens; nothing is renumbered.

use super::{
    split::{self, Split},
    tokenizer::SpecialTokens,
};
use crate::error::{Error, ErrorKind};
use std::{collections::HashMap, mem};
use tandem_contracts::text::TokenId;
use tokenizers::{
    AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior, decoders,
    models::bpe::{BPE, Vocab},
    normalizers, pre_tokenizers,
    pre_tokenizers::split::SplitPattern,
};

/// `tokenizer.ggml.token_type`: stands for what the vocabulary lacks.
const UNKNOWN: i32 = 2;
/// `tokenizer.ggml.token_type`: control text.
const CONTROL: i32 = 3;
/// `tokenizer.ggml.token_type`: found in texts as a whole, and part of them.
const USER_DEFINED: i32 = 4;

/// Names of control tokens that end an answer. Files name one end token; models of these families use several.
const END_NAMES: [&str; 13] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
];

/// What a file says about its tokeniser. Each field is the metadata value `tokenizer.ggml.` with the name given.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `model`: the kind of vocabulary.
    pub model: String,
    /// `pre`: the name of the way in which texts are split.
    pub pre: Option<String>,
    /// `tokens`.
    pub tokens: Vec<String>,
    /// `token_type`, one for each token, or none at all.
    pub kinds: Vec<i32>,
    /// `scores`, one for each token, or none at all. Higher is merged earlier.
    pub scores: Vec<f32>,
    /// `merges`: pairs with a space between.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub begin: Option<TokenId>,
    /// `eos_token_id`.
    pub end: Option<TokenId>,
    /// `eot_token_id`, `eom_token_id` and whatever else ends an answer.
    pub more_ends: Vec<TokenId>,
    /// `unknown_token_id`.
    pub unknown: Option<TokenId>,
    /// `padding_token_id`.
    pub padding: Option<TokenId>,
    /// `add_bos_token`.
    pub add_begin: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
}

impl GgufVocabulary {
    /// Builds the tokeniser.
    pub(super) fn build(mut self) -> Result<(tokenizers::Tokenizer, SpecialTokens), Error> {
        let count = self.tokens.len();
        for (name, length) in [("token_type", self.kinds.len()), ("scores", self.scores.len())] {
            if length != 0 && length != count {
                return Err(invalid(format!("{name} has {length} entries, tokens has: {count}")));
            }
        }
        // Taken out here, as the tokens themselves move into the library.
        let (added, special) = (self.added_tokens(), self.special());
        let (mut library, add_begin) = match self.model.as_str() {
            "gpt2" => self.byte_level()?,
            "llama" => {
                let merges = self.merges_by_score();
                (self.sentence_piece(merges)?, true)
            }
            "gemma4" => {
                let merges = self.merges()?;
                (self.sentence_piece(merges)?, true)
            }
            other => return Err(invalid(format!("unsupported tokenizer.ggml.model: {other:?}"))),
        };
        library.add_tokens(added).map_err(failed)?;
        let add_begin = Some(self.add_begin.unwrap_or(add_begin));
        Ok((library, SpecialTokens { add_begin, ..special }))
    }

    fn byte_level(&mut self) -> Result<(tokenizers::Tokenizer, bool), Error> {
        let name = self.pre.as_deref().unwrap_or_default();
        let Split { patterns, whole_words, add_begin } = split::by_name(name)
            .ok_or_else(|| invalid(format!("unsupported tokenizer.ggml.pre: {name:?}")))?;
        let merges = self.merges()?;
        let model = BPE::builder().vocab_and_merges(self.vocabulary(), merges).ignore_merges(whole_words);
        let mut library = tokenizers::Tokenizer::new(model.build().map_err(failed)?);
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let step = pre_tokenizers::split::Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            steps.push(step.map_err(failed)?.into());
        }
        let bytes = pre_tokenizers::byte_level::ByteLevel::new(false, false, false);
        steps.push(bytes.into());
        library.with_pre_tokenizer(Some(pre_tokenizers::sequence::Sequence::new(steps)));
        library.with_decoder(Some(bytes));
        Ok((library, add_begin))
    }

    fn sentence_piece(&mut self, merges: Vec<(String, String)>) -> Result<tokenizers::Tokenizer, Error> {
        let unknown = self.name(self.unknown);
        let mut model =
            BPE::builder().vocab_and_merges(self.vocabulary(), merges).byte_fallback(true).fuse_unk(true);
        if let Some(unknown) = unknown {
            model = model.unk_token(unknown);
        }
        let mut library = tokenizers::Tokenizer::new(model.build().map_err(failed)?);
        let prefix = self.add_space_prefix.unwrap_or(self.model == "llama");
        let mut steps: Vec<normalizers::NormalizerWrapper> = Vec::new();
        if prefix {
            steps.push(normalizers::Prepend::new("▁".to_owned()).into());
        }
        steps.push(normalizers::replace::Replace::new(" ", "▁").map_err(failed)?.into());
        library.with_normalizer(Some(normalizers::utils::Sequence::new(steps))).map_err(failed)?;
        let mut steps: Vec<decoders::DecoderWrapper> = vec![
            normalizers::replace::Replace::new("▁", " ").map_err(failed)?.into(),
            decoders::byte_fallback::ByteFallback::new().into(),
            decoders::fuse::Fuse::new().into(),
        ];
        if prefix {
            steps.push(decoders::strip::Strip::new(' ', 1, 0).into());
        }
        library.with_decoder(Some(decoders::sequence::Sequence::new(steps)));
        Ok(library)
    }

    /// The tokens, taken out, with their ids. Of two of one text the later counts.
    fn vocabulary(&mut self) -> Vocab {
        mem::take(&mut self.tokens).into_iter().zip(0..).collect()
    }

    /// The pairs of the list of merges, taken out.
    fn merges(&mut self) -> Result<Vec<(String, String)>, Error> {
        // A part may itself begin with a space; what separates the parts comes after the first byte.
        let pair = |mut merge: String| {
            let space = merge.bytes().skip(1).position(|byte| byte == b' ');
            let Some(before) = space else { return Err(invalid(format!("bad merge: {merge:?}"))) };
            let right = merge.split_off(before + 2);
            merge.truncate(before + 1);
            Ok((merge, right))
        };
        mem::take(&mut self.merges).into_iter().map(pair).collect()
    }

    /// The merges that scores imply: every way to put a token together from two others, best token first.
    fn merges_by_score(&self) -> Vec<(String, String)> {
        let ids: HashMap<&str, usize> = self.tokens.iter().map(String::as_str).zip(0..).collect();
        let mut merges = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            if matches!(self.kind(id), UNKNOWN | CONTROL) {
                continue;
            }
            for (at, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(at);
                if ids.contains_key(left) && ids.contains_key(right) {
                    merges.push((id, left, right));
                }
            }
        }
        let score = |id: usize| self.scores.get(id).copied().unwrap_or(0.0);
        merges.sort_by(|(left, ..), (right, ..)| score(*right).total_cmp(&score(*left)));
        merges.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect()
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        let kinds = self.kinds.iter().zip(&self.tokens);
        kinds
            .filter(|(kind, _)| matches!(**kind, CONTROL | USER_DEFINED))
            .map(|(kind, text)| AddedToken::from(text.as_str(), *kind == CONTROL).normalized(false))
            .collect()
    }

    fn special(&self) -> SpecialTokens {
        let by_name = (0..)
            .zip(&self.tokens)
            .filter(|(id, token)| self.kind(*id as usize) == CONTROL && END_NAMES.contains(&token.as_str()));
        let end_ids = self.more_ends.iter().copied().chain(by_name.map(|(id, _)| id)).collect();
        SpecialTokens {
            begin: self.name(self.begin),
            end: self.name(self.end),
            padding: self.name(self.padding),
            unknown: self.name(self.unknown),
            end_ids,
            add_begin: self.add_begin,
        }
    }

    fn kind(&self, id: usize) -> i32 {
        self.kinds.get(id).copied().unwrap_or(1)
    }

    fn name(&self, id: Option<TokenId>) -> Option<String> {
        self.tokens.get(id? as usize).cloned()
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Tokenizer, message)
}

fn failed(error: tokenizers::Error) -> Error {
    invalid(format!("the tokeniser cannot be built: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Tokenizer;
    use tandem_contracts::text::Vocabulary;

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn sentence_piece() -> GgufVocabulary {
        GgufVocabulary {
            model: "llama".to_owned(),
            tokens: strings(&[
                "<unk>",
                "<s>",
                "</s>",
                "<0xE2>",
                "▁",
                "a",
                "b",
                "ab",
                "▁a",
                "▁ab",
                "<|eot_id|>",
            ]),
            kinds: vec![2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 3],
            scores: vec![0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -1.0, -3.0, -2.0, 0.0],
            begin: Some(1),
            end: Some(2),
            unknown: Some(0),
            ..GgufVocabulary::default()
        }
    }

    #[test]
    fn scores_order_the_merges() {
        let tokenizer = Tokenizer::from_gguf(sentence_piece()).expect("a tokeniser");
        // "▁ab": "ab" (-1) is merged before "▁a" (-3), then "▁ab" (-2).
        assert_eq!(tokenizer.encode_chat("ab").ok(), Some(vec![9]));
        assert_eq!(tokenizer.encode_prompt("aab").ok(), Some(vec![1, 8, 7]));
        assert_eq!(tokenizer.end_tokens(), [2, 10]);
    }

    #[test]
    fn control_tokens_are_found_in_texts_and_begin_once() {
        let tokenizer = Tokenizer::from_gguf(sentence_piece()).expect("a tokeniser");
        assert_eq!(tokenizer.encode_prompt("<s>a</s>").ok(), Some(vec![1, 8, 2]));
        assert!(tokenizer.is_special(10));
    }

    #[test]
    fn merges_may_hold_spaces() {
        let mut vocabulary = GgufVocabulary { merges: strings(&["  a", "a b"]), ..GgufVocabulary::default() };
        let pairs = vocabulary.merges().expect("pairs");
        assert_eq!(pairs, [(" ".to_owned(), "a".to_owned()), ("a".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn contradictions_and_unknown_kinds_are_errors() {
        let vocabulary = sentence_piece();
        for (change, part) in [
            (GgufVocabulary { model: "bert".to_owned(), ..vocabulary.clone() }, "tokenizer.ggml.model"),
            (
                GgufVocabulary { model: "gpt2".to_owned(), pre: Some("?".to_owned()), ..vocabulary.clone() },
                "pre",
            ),
            (GgufVocabulary { kinds: vec![1], ..vocabulary.clone() }, "token_type has 1 entries"),
            (
                GgufVocabulary { model: "gemma4".to_owned(), merges: strings(&["ab"]), ..vocabulary.clone() },
                "bad merge",
            ),
            (
                GgufVocabulary { model: "gemma4".to_owned(), merges: strings(&["a c"]), ..vocabulary },
                "out of vocabulary",
            ),
        ] {
            let error = Tokenizer::from_gguf(change).expect_err(part);
            assert!(error.message().contains(part), "{error}");
        }
    }
}
