//! What closes a call behind its last argument, where that can be told: every function has exactly one argument that must be
//! given, and all arguments are texts, or none is.
//!
//! ```text
//!   {"name": "f", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>\n
//!                                            ^^^ trigger: what closes the value and both objects, as its tokens are
//!                                               ^^^^^^^^^^^^^ what comes behind it in every call
//! ```
//!
//! Where a turn may hold several calls, a second one may come as well as the turn's end: what both share closes the first.

use super::{Function, probe, rendering::Rendering, until_end};
use crate::text::Tokenizer;
use tandem_contracts::{
    fill::{Kind, Rule},
    text::{TokenId, Vocabulary},
};

/// The rules of what closes calls of these functions.
pub(super) fn rules(tokenizer: &Tokenizer, functions: &[Function<'_>], several: bool) -> Vec<Rule> {
    let all = |quoted| functions.iter().all(|function| function.is_closed_by(quoted));
    let Some(quoted) = [true, false].into_iter().find(|quoted| all(*quoted)) else { return Vec::new() };
    let mut rules: Vec<Rule> = Vec::new();
    for rule in functions.iter().flat_map(|function| function.closes(tokenizer, quoted, several)) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

impl Function<'_> {
    /// Whether one argument must be given, and each ends with a quotation mark, or none.
    fn is_closed_by(&self, quoted: bool) -> bool {
        let properties = self.schema.get("properties").and_then(|it| it.as_object());
        let fits = |kind: Option<&str>| match kind {
            Some("string") => quoted,
            Some("integer" | "number" | "boolean") => !quoted,
            _ => false,
        };
        let required = probe::required(self.schema);
        properties.is_some_and(|properties| {
            required.len() == 1
                && properties.contains_key(required[0])
                && properties
                    .values()
                    .all(|schema| fits(probe::kind(schema)) && schema.get("const").is_none())
        })
    }

    fn closes(&self, tokenizer: &Tokenizer, quoted: bool, several: bool) -> Vec<Rule> {
        let Some((closing, closed)) = self.closing(quoted) else { return Vec::new() };
        // How far a call's end is the same whether another follows or not.
        let shared = self.twice.as_ref().zip(self.alone.first()).map_or(closing, |(twice, alone)| {
            let value = alone.text.len() - closing;
            let (one, other) = (&alone.text.as_bytes()[value..], twice.text.as_bytes().get(value..));
            one.iter().zip(other.unwrap_or_default()).take_while(|(one, other)| one == other).count()
        });
        let mut rules = Vec::new();
        for rendering in &self.alone {
            let value = rendering.text.len() - closing;
            let Some(begin) = rendering.boundary(value) else { continue };
            let middle = rendering.index_from(value + closed);
            let one = rendering.index_to(value + shared).max(middle);
            let turn = middle + until_end(tokenizer, &rendering.tokens[middle..]);
            let trigger = &rendering.tokens[begin..middle];
            if trigger.is_empty() || quoted && may_be_inside(tokenizer, rendering, (value, trigger)) {
                continue;
            }
            let rule = |trigger: &[TokenId], emit: &[TokenId], kind| Rule {
                trigger: trigger.to_vec(),
                emit: emit.to_vec(),
                kind,
            };
            let end = if several { one.min(turn) } else { turn };
            rules.push(rule(trigger, &rendering.tokens[middle..end], Kind::Close));
            if !several && one > middle && turn > one {
                rules.push(rule(&rendering.tokens[middle..one], &rendering.tokens[one..turn], Kind::TurnEnd));
            }
        }
        rules.retain(|rule| rule.emit.len() > 1);
        rules
    }

    /// Bytes that all calls share behind the value, and how many of them close the value and the objects around it.
    fn closing(&self, quoted: bool) -> Option<(usize, usize)> {
        let first = self.alone.first()?.text.as_bytes();
        let same = |other: &Rendering| {
            first
                .iter()
                .rev()
                .zip(other.text.bytes().rev())
                .take_while(|(one, other)| **one == *other)
                .count()
        };
        let shared = self.alone.iter().skip(1).map(same).min()?;
        let mut closing = &first[first.len() - shared..];
        if !quoted {
            // Values may end alike.
            let brace = closing.iter().position(|byte| *byte == b'}')?;
            closing = &closing[brace..];
        }
        let rest = if quoted { closing.strip_prefix(b"\"")? } else { closing };
        let run = rest.iter().take_while(|byte| matches!(byte, b'}' | b' ' | b'\n')).count();
        let braces = rest[..run].iter().rposition(|byte| *byte == b'}')? + 1;
        Some((closing.len(), closing.len() - rest.len() + braces))
    }
}

/// Whether these tokens may also stand behind an escaped quotation mark, inside a text.
fn may_be_inside(
    tokenizer: &Tokenizer,
    rendering: &Rendering,
    (value, trigger): (usize, &[TokenId]),
) -> bool {
    let closing = &rendering.text[value..];
    let escaped = ["a", "a ", ".", "}", "é"].map(|text| tokenizer.encode(&format!("{text}\\{closing}")));
    escaped.iter().any(|tokens| tokens.windows(trigger.len()).any(|window| window == trigger))
}

#[cfg(test)]
mod tests {
    use super::super::{Calls, rules};
    use crate::text::{
        SpecialTokens, Tokenizer,
        reply::{Functions, Style},
    };
    use serde_json::{Value, json};
    use tandem_contracts::{fill::Kind, text::Vocabulary};

    /// Bytes, but for an escaped quotation mark, which is one token where `merged`.
    fn tokenizer(merged: bool) -> Tokenizer {
        let letter = |byte: u8| match byte {
            b'!'..=b'~' => char::from(byte).to_string(),
            b'\n' => "\u{10a}".to_owned(),
            b' ' => "\u{120}".to_owned(),
            _ => char::from_u32(0x200 + u32::from(byte)).expect("a letter").to_string(),
        };
        let mut vocabulary: serde_json::Map<String, Value> =
            (0..=u8::MAX).map(|byte| (letter(byte), json!(byte))).collect();
        vocabulary.insert("\\\"".to_owned(), json!(256));
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let merges = if merged { json!([["\\", "\""]]) } else { json!([]) };
        let end = json!({"id": 257, "content": "<|end|>", "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false});
        let file = json!({"version": "1.0", "added_tokens": [end], "normalizer": null, "pre_tokenizer": byte_level,
            "post_processor": null, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}});
        let special = SpecialTokens { end: Some("<|end|>".to_owned()), ..SpecialTokens::default() };
        Tokenizer::from_json(file.to_string().as_bytes(), special).expect("a tokeniser")
    }

    /// Texts of triggers and of what comes behind them, of the rules that close calls of a function with these parameters.
    fn closed(merged: bool, several: bool, parameters: Value) -> Vec<(String, String)> {
        let tokenizer = tokenizer(merged);
        let functions = Functions::new([("f".to_owned(), parameters)]);
        let calls = Calls { functions: &functions, style: Style::default().tagged(), several };
        let render = |calls: Option<Vec<Value>>| {
            let call = |call: &Value| {
                let arguments = call["function"]["arguments"].to_string();
                // The tokeniser of this test has no other letters.
                let arguments: String = arguments.chars().filter(char::is_ascii).collect();
                format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
            };
            let turn = calls.map(|calls| calls.iter().map(call).collect::<Vec<_>>().join("\n") + "<|end|>\n");
            Some("Hello\n".to_owned() + &turn.unwrap_or_default())
        };
        let text = |ids: &[u32]| {
            let bytes = ids.iter().flat_map(|id| tokenizer.token_bytes(*id).expect("a token").to_vec());
            String::from_utf8(bytes.collect()).expect("a text")
        };
        let closing = rules(&tokenizer, &calls, &render).into_iter().filter(|rule| rule.kind == Kind::Close);
        closing.map(|rule| (text(&rule.trigger), text(&rule.emit))).collect()
    }

    fn one(kind: &str) -> Value {
        json!({"type": "object", "properties": {"a": {"type": kind}}, "required": ["a"]})
    }

    #[test]
    fn a_call_closes_behind_its_one_argument() {
        let closing = |trigger: &str| vec![(trigger.to_owned(), "\n</tool_call>".to_owned())];
        for several in [false, true] {
            assert_eq!(closed(true, several, one("string")), closing("\"}}"));
            assert_eq!(closed(true, several, one("integer")), closing("}}"));
        }
    }

    #[test]
    fn what_might_stand_elsewhere_closes_nothing() {
        // Behind an escaped quotation mark the same tokens would be part of the text.
        assert_eq!(closed(false, true, one("string")), []);
        for parameters in [
            one("object"),
            json!({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}),
            json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}),
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"type": "object"}),
        ] {
            assert_eq!(closed(true, true, parameters.clone()), [], "{parameters}");
        }
    }
}
