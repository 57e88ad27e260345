//! Strings as token sequences, for what looks at tokens and is told strings.
//!
//! A string may stand in a text over tokens that hold more than it, so it is each token that contains it, and each
//! token that ends with a part of it before the tokens of the rest; and its own tokens, which may be parts of characters.

use super::tokenizer::Tokenizer;
use tandem_contracts::{
    sampling::Breakers,
    text::{TokenId, Vocabulary},
};

/// The sequences in which these strings may stand in a text. A special token is one where a string is its whole name.
pub fn breakers(tokenizer: &Tokenizer, strings: &[impl AsRef<str>]) -> Breakers {
    let strings = strings.iter().map(AsRef::as_ref).filter(|string: &&str| !string.is_empty());
    Breakers::new(strings.flat_map(|string| sequences(tokenizer, string)))
}

fn sequences(tokenizer: &Tokenizer, string: &str) -> Vec<Vec<TokenId>> {
    // Each place where the string may be cut, and the tokens of what follows.
    let cuts: Vec<(&[u8], Vec<TokenId>)> = (1..string.len())
        .filter(|&cut| string.is_char_boundary(cut))
        .map(|cut| (&string.as_bytes()[..cut], tokenizer.encode(&string[cut..])))
        .collect();
    let mut all = vec![tokenizer.encode(string)];
    for token in 0..tokenizer.len() as TokenId {
        let Some(bytes) = tokenizer.token_bytes(token).filter(|_| !tokenizer.is_special(token)) else {
            continue;
        };
        if bytes.windows(string.len()).any(|window| window == string.as_bytes()) {
            all.push(vec![token]);
            continue;
        }
        let begun = cuts.iter().filter(|(head, rest)| bytes.ends_with(head) && !rest.is_empty());
        all.extend(begun.map(|(_, rest)| [&[token], &rest[..]].concat()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::SpecialTokens;
    use serde_json::json;

    #[test]
    fn over_bytes_a_string_is_its_bytes() {
        let tokenizer = Tokenizer::bytes().expect("a tokeniser");
        let ends = |strings: &[&str], text: &str| {
            let tokens: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
            breakers(&tokenizer, strings).end(&tokens)
        };
        assert!(ends(&["\n"], "a\n") && !ends(&["\n"], "\na"));
        assert!(ends(&["###", "é"], "a###") && ends(&["###", "é"], "é") && !ends(&["###", "é"], "##"));
        assert!(!ends(&[""], "") && !ends(&[""], "a") && !ends(&["<|end|>"], "|>"));
        // A special token is found by its name, and by no part of it.
        assert!(breakers(&tokenizer, &["<|end|>"]).end(&[256]) && !breakers(&tokenizer, &["|"]).end(&[256]));
    }

    #[test]
    fn tokens_that_hold_more_than_the_string_break_too() {
        // "ab", "bc", "c" and "b" as tokens.
        let vocabulary = json!({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4});
        let file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"], ["b", "c"]]},
        });
        let tokenizer = Tokenizer::from_json(file.to_string().as_bytes(), SpecialTokens::default());
        let tokenizer = tokenizer.expect("a tokeniser");
        let one = breakers(&tokenizer, &["b"]);
        assert_eq!([0, 1, 2, 3, 4].map(|token| one.end(&[token])), [false, true, false, true, true]);
        let two = breakers(&tokenizer, &["bc"]);
        for (tokens, ends) in [
            (&[4][..], true),
            (&[1, 2], true),
            (&[3, 2], true),
            (&[0, 2], false),
            (&[3], false),
            (&[2], false),
        ] {
            assert_eq!(two.end(tokens), ends, "{tokens:?}");
        }
    }
}
