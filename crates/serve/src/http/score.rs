//! Tokens with their log-probabilities: which text they go with, and how they stand on the wire.
//!
//! Invariants: a token goes out with the text that it begins, or later; a token whose text was cut off by a stop string
//! does not go out; bytes are the token's own, whatever characters they are part of.

use crate::text::{Detokenizer, Tokenizer};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::VecDeque, str, sync::Arc};
use tandem_contracts::{
    request::Score,
    text::{TokenId, Vocabulary},
};
use utoipa::ToSchema;

/// Stands for the logarithm of 0, which JSON does not have, as OpenAI's API does it.
const NEVER: f32 = -9999.0;

/// One token of a choice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) token: TokenId,
    /// None of a prompt's first token.
    pub(crate) score: Option<Score>,
    /// Characters of the choice before it.
    pub(crate) offset: usize,
}

/// The tokens of one choice, in step with its text.
#[derive(Debug)]
pub(crate) struct Scores {
    detokenizer: Detokenizer,
    /// Characters of the choice up to the last token, stop strings and what comes after them included.
    reached: usize,
    /// Characters that have gone out.
    given: usize,
    waiting: VecDeque<Scored>,
}

impl Scores {
    /// Tokens whose characters `detokenizer` tells, after `offset` characters that have gone out.
    pub(crate) fn new(detokenizer: Detokenizer, offset: usize) -> Self {
        Self { detokenizer, reached: offset, given: offset, waiting: VecDeque::new() }
    }

    /// Takes the next token.
    pub(crate) fn push(&mut self, token: TokenId, score: Option<Score>) {
        self.waiting.push_back(Scored { token, score, offset: self.reached });
        let mut text = String::new();
        self.detokenizer.push(token, &mut text);
        self.reached += text.chars().count();
    }

    /// Notes that this text goes out, and gives the tokens that go with it.
    pub(crate) fn take(&mut self, text: &str) -> Vec<Scored> {
        self.given += text.chars().count();
        let ready = self.waiting.iter().take_while(|token| token.offset < self.given).count();
        self.waiting.drain(..ready).collect()
    }

    /// The tokens that are left when all text has gone out.
    pub(crate) fn finish(&mut self) -> Vec<Scored> {
        self.waiting.drain(..).collect()
    }
}

/// A prompt that stands before its choices.
#[derive(Debug)]
pub(crate) struct Echo {
    pub(crate) text: String,
    /// Its tokens, and the characters before each; none where they come without scores.
    tokens: Vec<(TokenId, usize)>,
}

impl Echo {
    /// A prompt without scores of its tokens: a text as it came, or tokens alone, whose text shows the names of special
    /// ones.
    pub(crate) fn shown(text: Option<String>, tokens: &[TokenId], tokenizer: &Arc<Tokenizer>) -> Self {
        let text = text.unwrap_or_else(|| {
            let (mut detokenizer, mut text) =
                (Detokenizer::with_special(Arc::clone(tokenizer)), String::new());
            tokens.iter().for_each(|&token| detokenizer.push(token, &mut text));
            detokenizer.finish(&mut text);
            text
        });
        Self { text, tokens: Vec::new() }
    }

    /// The same with what [`Self::scored`] needs.
    pub(crate) fn placed(text: Option<String>, tokens: &[TokenId], tokenizer: &Arc<Tokenizer>) -> Self {
        let mut detokenizer = match text {
            Some(_) => Detokenizer::new(Arc::clone(tokenizer)),
            None => Detokenizer::with_special(Arc::clone(tokenizer)),
        };
        let (mut shown, mut reached) = (String::new(), 0);
        let place = |&token: &TokenId| {
            let (offset, bytes) = (reached, shown.len());
            detokenizer.push(token, &mut shown);
            reached += shown[bytes..].chars().count();
            (token, offset)
        };
        let tokens = tokens.iter().map(place).collect();
        detokenizer.finish(&mut shown);
        Self { text: text.unwrap_or(shown), tokens }
    }

    /// Whether so many scores are all.
    pub(crate) fn is_scored(&self, scores: usize) -> bool {
        scores + 1 >= self.tokens.len()
    }

    /// The tokens with their scores, of which the first has none.
    pub(crate) fn scored(&self, scores: Vec<Score>) -> Vec<Scored> {
        let scores = [None].into_iter().chain(scores.into_iter().map(Some));
        let tokens = self.tokens.iter().zip(scores);
        tokens.map(|(&(token, offset), score)| Scored { token, score, offset }).collect()
    }
}

/// `choices[].logprobs` of chats.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatScores {
    content: Vec<ScoredToken>,
    /// Always null: nothing is refused in words of the server's own.
    refusal: Option<String>,
}

/// A token with its log-probability, and the likely ones beside it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct ScoredToken {
    #[serde(flatten)]
    own: LikelyToken,
    top_logprobs: Vec<LikelyToken>,
}

/// A token with its log-probability.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
struct LikelyToken {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

/// `choices[].logprobs` of completions: lists of the same length.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TextScores {
    tokens: Vec<String>,
    /// Null for a prompt's first token.
    token_logprobs: Vec<Option<f64>>,
    /// The likely tokens at each place, with their log-probabilities.
    #[schema(value_type = Vec<Option<Object>>)]
    top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Characters of the choice before each.
    text_offset: Vec<usize>,
}

/// `choices[].logprobs` of chats.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: &[Scored]) -> ChatScores {
    ChatScores { content: entries(tokenizer, tokens), refusal: None }
}

/// Tokens that are scored, each with the likely ones beside it.
pub(crate) fn entries(tokenizer: &Tokenizer, tokens: &[Scored]) -> Vec<ScoredToken> {
    let entry = |token: TokenId, log_probability: f32| {
        let bytes = tokenizer.token_bytes(token).unwrap_or_default().to_vec();
        let token = String::from_utf8_lossy(&bytes).into_owned();
        LikelyToken { token, logprob: number(log_probability), bytes }
    };
    let content = tokens.iter().filter_map(|Scored { token, score, .. }| {
        let score = score.as_ref()?;
        let top_logprobs = score.top.iter().map(|&(token, likely)| entry(token, likely)).collect();
        Some(ScoredToken { own: entry(*token, score.log_probability), top_logprobs })
    });
    content.collect()
}

/// `choices[].logprobs` of completions. The token itself is always among the likely ones, as OpenAI has it.
pub(crate) fn completion(tokenizer: &Tokenizer, tokens: &[Scored]) -> TextScores {
    let text = |token: TokenId| spelt(tokenizer.token_bytes(token).unwrap_or_default());
    let likely = |Scored { token, score, .. }: &Scored| {
        let score = score.as_ref()?;
        let mut all = Map::new();
        for &(token, log_probability) in score.top.iter().chain([&(*token, score.log_probability)]) {
            all.entry(text(token)).or_insert_with(|| json!(number(log_probability)));
        }
        Some(all)
    };
    let own = |token: &Scored| token.score.as_ref().map(|score| number(score.log_probability));
    TextScores {
        tokens: tokens.iter().map(|token| text(token.token)).collect(),
        token_logprobs: tokens.iter().map(own).collect(),
        top_logprobs: tokens.iter().map(likely).collect(),
        text_offset: tokens.iter().map(|token| token.offset).collect(),
    }
}

/// A token's text, or its bytes where it is none, so that different tokens stay different.
fn spelt(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02x}")),
    }
}

/// A log-probability as JSON has it.
pub(super) fn number(log_probability: f32) -> f64 {
    log_probability.max(NEVER).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Arc<Tokenizer> {
        Arc::new(Tokenizer::bytes().expect("a tokeniser"))
    }

    fn score(log_probability: f32, top: &[(TokenId, f32)]) -> Option<Score> {
        Some(Score { log_probability, top: top.to_vec() })
    }

    /// Ids and offsets.
    fn seen(tokens: &[Scored]) -> Vec<(TokenId, usize)> {
        tokens.iter().map(|token| (token.token, token.offset)).collect()
    }

    #[test]
    fn tokens_go_out_with_the_text_that_they_begin() {
        let mut scores = Scores::new(Detokenizer::new(bytes()), 3);
        "aé".bytes().for_each(|byte| scores.push(byte.into(), None));
        assert_eq!(seen(&scores.take("")), []);
        assert_eq!(seen(&scores.take("a")), [(97, 3)]);
        // Both bytes of the character begin at its place.
        assert_eq!(seen(&scores.take("é")), [(195, 4), (169, 4)]);
        // What a stop string holds back waits, and is left when it cuts.
        "bcd".bytes().for_each(|byte| scores.push(byte.into(), None));
        assert_eq!(seen(&scores.take("b")), [(98, 5)]);
        assert_eq!(seen(&scores.take("")), []);
        assert_eq!(seen(&scores.finish()), [(99, 6), (100, 7)]);
    }

    #[test]
    fn an_echo_has_a_place_for_every_token_and_no_score_for_the_first() {
        let echo = |text: Option<&str>| Echo::placed(text.map(str::to_owned), &[256, 97, 98], &bytes());
        let tokens = echo(None).scored(vec![Score { log_probability: -1.0, top: vec![] }; 2]);
        assert_eq!(seen(&tokens), [(256, 0), (97, 7), (98, 8)]);
        assert_eq!(tokens.iter().map(|token| token.score.is_some()).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(echo(None).text, "<|end|>ab");
        let text = echo(Some("ab"));
        assert_eq!(
            seen(&text.scored(vec![Score { log_probability: -1.0, top: vec![] }; 2])),
            [(256, 0), (97, 0), (98, 1)]
        );
        assert_eq!((seen(&text.scored(vec![])), text.text.as_str()), (vec![(256, 0)], "ab"));
    }

    #[test]
    fn an_echo_without_scores_has_its_text_alone() {
        let echo = |text: Option<&str>| Echo::shown(text.map(str::to_owned), &[256, 97, 195], &bytes());
        // A character that the end cuts is shown as one that is missing.
        for (text, want) in [(None, "<|end|>a\u{FFFD}"), (Some("ab"), "ab")] {
            let echo = echo(text);
            assert_eq!((echo.text.as_str(), echo.tokens.as_slice()), (want, &[][..]));
        }
    }

    #[test]
    fn shapes_are_those_of_the_two_endpoints() {
        let tokens = [
            Scored { token: 97, score: None, offset: 0 },
            Scored { token: 98, score: score(-0.5, &[(98, -0.5), (195, -2.0)]), offset: 1 },
            Scored { token: 99, score: score(f32::NEG_INFINITY, &[]), offset: 2 },
        ];
        insta::assert_snapshot!(json!(chat(&bytes(), &tokens)), @r#"{"content":[{"token":"b","logprob":-0.5,"bytes":[98],"top_logprobs":[{"token":"b","logprob":-0.5,"bytes":[98]},{"token":"�","logprob":-2.0,"bytes":[195]}]},{"token":"c","logprob":-9999.0,"bytes":[99],"top_logprobs":[]}],"refusal":null}"#);
        insta::assert_snapshot!(json!(completion(&bytes(), &tokens)), @r#"{"tokens":["a","b","c"],"token_logprobs":[null,-0.5,-9999.0],"top_logprobs":[null,{"b":-0.5,"bytes:\\xc3":-2.0},{"c":-9999.0}],"text_offset":[0,1,2]}"#);
    }
}
