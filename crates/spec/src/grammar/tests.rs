//! Grammars over a vocabulary of bytes and a few longer tokens.

mod suite;

use super::{Compiler, Grammar};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tandem_contracts::{
    grammar::{Matcher, Progress},
    text::{TokenId, Vocabulary},
};

/// The 256 bytes, an end token, a role mark, and words that are written greedily.
#[derive(Debug)]
struct Words(Vec<Vec<u8>>);

const END: TokenId = 256;

impl Words {
    fn new() -> Arc<Self> {
        let words =
            ["<|end|>", "<|role|>", "{\"", "\": ", "name", "\": \"", ", \"", "na", "me", "true", "  "];
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        Arc::new(Self(bytes.chain(words.map(|word| word.as_bytes().to_vec())).collect()))
    }
}

impl Vocabulary for Words {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.get(token as usize).map(Vec::as_slice)
    }

    fn is_special(&self, token: TokenId) -> bool {
        token == END || token == END + 1
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let fits = |(_, word): &(usize, &Vec<u8>)| rest.starts_with(word);
            let plain = self.0.iter().enumerate().filter(|(token, _)| !self.is_special(*token as TokenId));
            let Some((token, word)) = plain.filter(fits).max_by_key(|(_, word)| word.len()) else { break };
            tokens.push(token as TokenId);
            rest = &rest[word.len()..];
        }
        tokens
    }

    fn end_tokens(&self) -> &[TokenId] {
        &[END]
    }
}

fn compiler() -> Compiler {
    Compiler::new(Words::new()).expect("a vocabulary with an end")
}

fn matcher(grammar: &Grammar) -> Box<dyn Matcher> {
    compiler().compile(grammar).expect("it compiles").matcher()
}

fn has(mask: &[u32], token: TokenId) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Whether a grammar takes a text, byte by byte with what is written in words beside, and may end after it.
fn takes(grammar: &Grammar, text: &str) -> bool {
    let compiled = compiler().compile(grammar).expect("it compiles");
    let mut matcher = compiled.matcher();
    let tokens = Words::new().encode(text);
    let mut progress = Progress::Open;
    for &token in &tokens {
        if progress == Progress::Complete {
            return false;
        }
        // Forced words may be written in one way alone, texts in any.
        if matcher.prefix(&[token]).expect("no limit is met") == 0 {
            return false;
        }
        progress = matcher.accept(token).expect("it may come next");
    }
    progress == Progress::Complete || has(&matcher.allowed().expect("no limit is met"), END)
}

fn schema(schema: Value) -> Grammar {
    Grammar::Schema(schema)
}

fn refusal(grammar: &Grammar) -> String {
    compiler().compile(grammar).map(|_| ()).expect_err("it is refused").to_string()
}

#[test]
fn each_kind_takes_its_texts_and_no_others() {
    let person = schema(json!({
        "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"], "additionalProperties": false,
    }));
    let digits = Grammar::Regex("^[0-9]{2,3}$".to_owned());
    let choice = Grammar::Choice(["a", "ab", "c/d\"é.*"].map(str::to_owned).to_vec());
    let lark = Grammar::Text("start: \"x\" num+\nnum: /[0-9]/".to_owned());
    let gbnf = Grammar::Text("root ::= (\"x\" | [^a-z]) tail?\ntail ::= \"!\"{2}".to_owned());
    for (grammar, good, bad) in [
        (&Grammar::Object, vec!["{}", "{\"a\": [1, null, {\"b\": \"c\"}]}"], vec!["[]", "1", "{\"a\"}", "{"]),
        (
            &person,
            vec!["{\"name\": \"Ann\", \"age\": 30}"],
            vec![
                "{\"name\": \"Ann\"}",
                "{\"name\": 1, \"age\": 3}",
                "{\"name\": \"A\", \"age\": -3}",
                "{ \"name\": \"A\", \"age\": 3}",
            ],
        ),
        (&digits, vec!["12", "123"], vec!["1", "1234", "1a"]),
        (&choice, vec!["a", "ab", "c/d\"é.*"], vec!["b", "abc", "c/d\"éxx", ""]),
        (&lark, vec!["x1", "x123"], vec!["x", "1", "xx"]),
        (&gbnf, vec!["x", "x!!", "1!!"], vec!["y", "x!", "x!!!"]),
    ] {
        good.iter().for_each(|text| assert!(takes(grammar, text), "{grammar:?} {text}"));
        bad.iter().for_each(|text| assert!(!takes(grammar, text), "{grammar:?} {text}"));
    }
}

#[test]
fn recursion_unions_tuples_and_bounds_are_enforced() {
    let tree = schema(json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object", "properties": {"v": {"enum": [1, "b", null]}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
            "required": ["v"], "additionalProperties": false,
        }},
    }));
    assert!(takes(&tree, "{\"v\": \"b\", \"kids\": [{\"v\": 1}, {\"v\": null, \"kids\": []}]}"));
    assert!(
        !takes(&tree, "{\"v\": 2}")
            && !takes(&tree, "{\"v\": 1, \"kids\": [{\"v\": 1}, {\"v\": 1}, {\"v\": 1}]}")
    );
    let mixed = schema(json!({"type": "array", "prefixItems": [
        {"type": "string", "pattern": "^[A-Z]{3}$"}, {"type": "number", "exclusiveMaximum": 10.5, "minimum": -1},
        {"oneOf": [{"type": "boolean"}, {"type": "string", "maxLength": 2}]},
    ], "items": false, "minItems": 3}));
    assert!(takes(&mixed, "[\"ABC\", 10.49, true]") && takes(&mixed, "[\"ABC\", -1, \"xy\"]"));
    for bad in [
        "[\"ABC\", 10.5, true]",
        "[\"ABc\", 1, true]",
        "[\"ABC\", 1, \"xyz\"]",
        "[\"ABC\", 1]",
        "[\"ABC\", 1, true, 1]",
    ] {
        assert!(!takes(&mixed, bad), "{bad}");
    }
}

#[test]
fn a_grammar_ends_at_its_end() {
    let mut choice = matcher(&Grammar::Choice(vec!["name".to_owned()]));
    assert_eq!(choice.forced(9), Words::new().encode("name"));
    assert_eq!(choice.accept(Words::new().encode("name")[0]), Ok(Progress::Complete));
    assert!(choice.accept(0).is_err());
    // Where more may follow, an end token may too.
    let mut digits = matcher(&Grammar::Regex("[0-9]+".to_owned()));
    assert!(!has(&digits.allowed().expect("a set"), END));
    assert_eq!(digits.accept(u32::from(b'1')), Ok(Progress::Open));
    let allowed = digits.allowed().expect("a set");
    assert!(has(&allowed, END) && has(&allowed, u32::from(b'2')) && !has(&allowed, u32::from(b'a')));
    assert_eq!(digits.accept(END), Ok(Progress::Complete));
}

#[test]
fn role_marks_are_no_text() {
    let mut any = matcher(&Grammar::Regex("(.|\n)*".to_owned()));
    let allowed = any.allowed().expect("a set");
    assert!(has(&allowed, u32::from(b'<')) && !has(&allowed, END + 1));
    // There is nothing beyond the vocabulary, whatever the width of the head.
    assert!((Words::new().len()..allowed.len() * 32).all(|token| !has(&allowed, token as TokenId)));
}

#[test]
fn what_a_grammar_leaves_no_choice_of_is_written_as_the_tokeniser_would() {
    let mut object = matcher(&schema(json!({
        "type": "object", "properties": {"name": {"type": "boolean"}}, "required": ["name"], "additionalProperties": false,
    })));
    let forced = object.forced(64);
    assert_eq!(forced[..2], Words::new().encode("{\"name")[..]);
    assert_eq!(object.forced(1), forced[..1]);
    // Asking changes nothing.
    assert!(has(&object.allowed().expect("a set"), forced[0]));
    assert_eq!(object.prefix(&forced), Ok(forced.len()));
}

/// A tokeniser that loses spaces, as some do that normalise texts.
#[derive(Debug)]
struct Slurred(Arc<Words>);

impl Vocabulary for Slurred {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.token_bytes(token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        self.0.is_special(token)
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.0.encode(&text.replace(' ', ""))
    }

    fn end_tokens(&self) -> &[TokenId] {
        self.0.end_tokens()
    }
}

#[test]
fn a_tokeniser_that_cannot_write_a_span_is_asked_for_none() {
    let grammar = schema(json!({"const": {"name": "a b"}}));
    assert!(!matcher(&grammar).forced(8).is_empty());
    let slurred = Compiler::new(Arc::new(Slurred(Words::new()))).expect("a vocabulary with an end");
    let mut matcher = slurred.compile(&grammar).expect("it compiles").matcher();
    assert!(matcher.forced(8).is_empty());
    // What binds the answer is bytes, however they are written.
    for byte in b"{\"name\": \"a b\"}" {
        assert!(has(&matcher.allowed().expect("a set"), TokenId::from(*byte)));
        matcher.accept(TokenId::from(*byte)).expect("it may come next");
    }
}

#[test]
fn a_wrong_schema_is_refused_with_the_place() {
    for (value, message) in [
        (json!({"type": "no-such-type"}), "at /type: there is no such type: \"no-such-type\""),
        (
            json!({"properties": {"a/b": {"items": {"type": ["null", 3]}}}}),
            "at /properties/a~1b/items/type: there is no such type: 3",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"not": {"type": "null"}}]}),
            "at /anyOf/1: the keyword cannot be enforced: not",
        ),
        (
            json!({"$defs": {"x": 3}, "$ref": "#/$defs/x"}),
            "at /$defs/x: a schema is an object or a boolean, got: 3",
        ),
        (json!([]), "at the top of the schema: a schema is an object or a boolean, got: []"),
        (json!({"properties": []}), "at /properties: a schema is an object or a boolean, got: []"),
    ] {
        assert_eq!(refusal(&schema(value)), message);
    }
}

#[test]
fn what_only_the_compiler_sees_has_its_place_too() {
    let pattern = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "pattern": "(?<=x)("}}});
    assert!(refusal(&schema(pattern)).starts_with("at /properties/b: "));
    let bounds =
        json!({"type": "array", "items": {"type": "integer", "minimum": 5, "maximum": 3}, "minItems": 1});
    assert!(refusal(&schema(bounds)).starts_with("at /items: "));
    let format = json!({"properties": {"when": {"type": "string", "format": "no-such-format"}}});
    assert!(refusal(&schema(format)).starts_with("at /properties/when: "));
    let lost = json!({"$ref": "#/$defs/none"});
    assert!(refusal(&schema(lost)).starts_with("at the top of the schema: "));
}

#[test]
fn other_grammars_are_refused_in_one_line() {
    for grammar in [
        Grammar::Regex("(".to_owned()),
        Grammar::Regex("a".repeat(300 << 10)),
        Grammar::Choice(Vec::new()),
        Grammar::Choice(vec![String::new()]),
        Grammar::Choice(vec!["a".to_owned(); 5000]),
        Grammar::Text("start: \"a".to_owned()),
        Grammar::Text("rule: \"a\"".to_owned()),
        Grammar::Text(String::new()),
        Grammar::Text("root ::= none".to_owned()),
    ] {
        let message = refusal(&grammar);
        assert!(!message.is_empty() && !message.contains('\n') && message.len() < 500, "{message}");
    }
}

#[test]
fn runaway_grammars_are_bounded() {
    let mut deep = json!({"type": "null"});
    (0..200).for_each(|_| deep = json!({"items": deep.take()}));
    let wide: serde_json::Map<String, Value> = (0..3000)
        .map(|index| {
            (
                format!("p{index}"),
                json!({"type": "string", "pattern": format!("^(a|b)*{index}(c|d){{1,50}}$")}),
            )
        })
        .collect();
    for grammar in [
        schema(deep),
        schema(json!({"type": "object", "properties": wide})),
        Grammar::Regex("((a{1,1000}){1,1000}){1,1000}".to_owned()),
        Grammar::Regex("(.*a.{200}){50}&(.*b.{200}){50}".to_owned()),
        schema(json!({"type": "string", "minLength": 1_000_000_000})),
        schema(json!({"type": "array", "minItems": 1_000_000_000, "items": {"type": "null"}})),
    ] {
        let begun = Instant::now();
        if let Ok(compiled) = compiler().compile(&grammar) {
            let mut matcher = compiled.matcher();
            // Whatever it says, it says so soon.
            let _ = matcher.allowed();
        }
        // The compiler's own tree of this vocabulary is a small part of it; a build without optimisation is slow.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

#[test]
fn nested_and_long_strings_compile() {
    let parameters = json!({"type": "object", "properties": {
        "empty": {"type": "object", "properties": {}},
        "text": {"type": "object", "properties": {"body": {"type": "string", "maxLength": 5000}}},
    }});
    assert!(takes(&schema(parameters), "{\"empty\": {}, \"text\": {\"body\": \"x\"}}"));
}

#[test]
fn the_last_grammars_are_remembered() {
    let compiler = compiler();
    let regex = |index: usize| Grammar::Regex(format!("a{index}"));
    (0..40).for_each(|index| assert!(compiler.compile(&regex(index)).is_ok()));
    assert!(compiler.compile(&regex(39)).is_ok() && compiler.compile(&regex(0)).is_ok());
}

#[test]
fn a_vocabulary_without_an_end_binds_nothing() {
    #[derive(Debug)]
    struct Endless;
    impl Vocabulary for Endless {
        fn len(&self) -> usize {
            1
        }
        fn token_bytes(&self, _: TokenId) -> Option<&[u8]> {
            Some(b"a")
        }
        fn is_special(&self, _: TokenId) -> bool {
            false
        }
        fn encode(&self, text: &str) -> Vec<TokenId> {
            vec![0; text.len()]
        }
        fn end_tokens(&self) -> &[TokenId] {
            &[]
        }
    }
    assert!(Compiler::new(Arc::new(Endless)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Looking ahead and taking back changes no set, whatever is asked in between.
    #[test]
    fn what_was_taken_back_leaves_no_trace(picks in prop::collection::vec((0_usize..400, 0_usize..4, any::<bool>()), 1..24)) {
        let grammar = schema(json!({"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 6}, "list": {"type": "array", "items": {"enum": [true, "name", 12]}},
        }, "required": ["name"]}));
        let compiled = compiler().compile(&grammar).expect("it compiles");
        let (mut plain, mut looking) = (compiled.matcher(), compiled.matcher());
        let pick = |mask: &[u32], pick: usize| {
            let all: Vec<TokenId> = (0..mask.len() as TokenId * 32).filter(|&token| has(mask, token)).collect();
            all[pick % all.len()]
        };
        for (choice, ahead, forced) in picks {
            let expected = plain.allowed().expect("a set");
            if forced {
                looking.forced(8);
            }
            let mut taken = 0;
            for step in 0..ahead {
                let mask = looking.allowed().expect("a set");
                let token = pick(&mask, choice + step);
                taken += 1;
                if looking.accept(token).expect("it may come next") == Progress::Complete {
                    break;
                }
            }
            looking.take_back(taken).expect("so many were taken");
            prop_assert_eq!(&looking.allowed().expect("a set"), &expected);
            let token = pick(&expected, choice);
            let progress = plain.accept(token).expect("it may come next");
            prop_assert_eq!(looking.accept(token).expect("it may come next"), progress);
            if progress == Progress::Complete {
                break;
            }
        }
    }
}
