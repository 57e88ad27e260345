//! The program's commands, from outside: answers on standard output, errors as one line with a hint.

use crate::support::{Folder, tandem, tiny_model};
use std::fs;

fn fails(model: &std::path::Path) -> String {
    let output = tandem(&["generate", "--backend", "cpu", "-p", "x", "--model", model.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn one_prompt_gives_one_answer_that_a_seed_repeats() {
    let model = tiny_model("generate");
    let generate = |seed: &str| {
        let output = tandem(&[
            "generate",
            "--backend",
            "cpu",
            "-p",
            "Owls are",
            "--raw",
            "--max-tokens",
            "16",
            "--seed",
            seed,
            "--model",
            model.path().to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!generate("1").trim().is_empty());
    assert_eq!(generate("1"), generate("1"));
    assert_ne!(generate("1"), generate("2"));
}

/// However rows lie beside each other, the answer is the same; a pool wants rows that lie in it.
#[test]
fn answers_do_not_depend_on_the_layout_of_the_cache() {
    let model = tiny_model("layout");
    let generate = |more: &[&str]| {
        let path = model.path().to_str().unwrap();
        let fixed =
            ["generate", "--backend", "cpu", "-p", "Owls are", "--raw", "--max-tokens", "16", "--seed", "1"];
        tandem(&[&fixed[..], &["--model", path], more].concat())
    };
    let answer = generate(&[]);
    assert!(answer.status.success(), "{answer:?}");
    for layout in ["ragged", "padded", "paged"] {
        assert_eq!(generate(&["--kv-layout", layout]), answer, "{layout}");
    }
    let paged = ["--kv-layout", "paged"];
    for (more, reason) in [
        (&["--kv-pool", "8"][..], "hint: add --kv-layout paged"),
        (&[&paged[..], &["--max-kv-size", "64"]].concat(), "--max-kv-size bounds all of them"),
        (&[&paged[..], &["--kv-quant", "k8v3"]].concat(), "TurboQuant from the start"),
    ] {
        let output = generate(more);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(reason), "{error}");
    }
}

/// What the groups do not divide stays as it is, and is told.
#[test]
fn weights_are_quantised_by_a_flag() {
    let model = tiny_model("quantize");
    let generate = |how: &str| {
        let path = model.path().to_str().unwrap();
        let fixed =
            ["generate", "--backend", "cpu", "-p", "Owls are", "--raw", "--max-tokens", "16", "--seed", "1"];
        tandem(&[&fixed[..], &["--model", path, "--quantize", how]].concat())
    };
    let [plain, coded] = ["off", "4"].map(generate);
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    assert!(coded.status.success() && coded.stdout != plain.stdout, "{coded:?}");
    assert_eq!(
        String::from_utf8(coded.stderr).unwrap(),
        "note: model.layers.0.mlp.down_proj and other weights stay as they are, 3 in all: 96 inputs are no whole number \
         of groups of 64\n"
    );
    let refused = String::from_utf8(generate("3").stderr).unwrap();
    assert!(refused.contains("takes off; 8 or 4, with g32, g64 or g128 behind it"), "{refused}");
}

#[test]
fn a_model_that_is_not_there_is_one_line_and_a_hint() {
    let error = fails(std::path::Path::new("/nowhere/model.gguf"));
    assert!(error.starts_with("error: /nowhere/model.gguf: "), "{error}");
    assert_eq!(error.lines().count(), 2, "{error}");
    assert!(error.lines().nth(1).unwrap().starts_with("hint: "), "{error}");
}

#[test]
fn a_truncated_file_is_named() {
    let model = tiny_model("truncated");
    let weights = model.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    for length in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&weights, &bytes[..length]).unwrap();
        assert!(fails(model.path()).contains("model.safetensors"), "{length} bytes");
    }
}

#[test]
fn a_lying_header_is_refused() {
    let model = tiny_model("lying");
    let weights = model.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    bytes[..8].copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
    fs::write(&weights, &bytes).unwrap();
    assert!(fails(model.path()).contains("model.safetensors"));
}

#[test]
fn an_unknown_family_is_answered_with_those_that_are_known() {
    let model = tiny_model("unknown");
    let config = model.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap().replace("\"llama\"", "\"lllama\"");
    fs::write(&config, text).unwrap();
    let error = fails(model.path());
    assert!(error.contains("lllama") && error.contains("smollm3"), "{error}");
}

#[test]
fn garbage_is_no_model() {
    let folder = Folder::new("garbage");
    let file = folder.path().join("model.gguf");
    fs::write(&file, b"GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f").unwrap();
    assert!(fails(&file).contains("model.gguf"));
    assert!(fails(folder.path()).contains("config.json"));
}
