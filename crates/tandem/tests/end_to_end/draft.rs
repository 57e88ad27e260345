//! A draft model by its path: it has the model's vocabulary or is refused, and it changes no answer.

use crate::support::{Folder, tandem, tiny_model};
use serde_json::{Value, json};
use std::fs;

/// What `generate` prints, or its error, with a draft model.
fn generate(model: &Folder, draft: Option<&Folder>) -> Result<String, String> {
    let path = model.path().to_str().unwrap();
    let draft = draft.map(|draft| format!("model:{}", draft.path().to_str().unwrap()));
    let fixed = [
        "generate",
        "--backend",
        "cpu",
        "-p",
        "Owls are",
        "--raw",
        "--max-tokens",
        "24",
        "--seed",
        "1",
        "--model",
        path,
    ];
    let draft = draft.iter().flat_map(|draft| ["--draft", draft]);
    let output = tandem(&fixed.into_iter().chain(draft).collect::<Vec<_>>());
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// A model whose tokeniser is changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Folder {
    let folder = tiny_model(name);
    let file = folder.path().join("tokenizer.json");
    let mut tokenizer = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut tokenizer);
    fs::write(&file, tokenizer.to_string()).unwrap();
    folder
}

/// Without its last words, from this one on.
fn shorter(name: &str, first: u32) -> Folder {
    changed(name, |tokenizer| {
        let words = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        (first..512).for_each(|id| assert!(words.remove(&format!("word{id}")).is_some()));
    })
}

/// With a mark of a conversation in the place of its last word.
fn marked(name: &str, mark: &str) -> Folder {
    let folder = shorter(name, 511);
    let file = folder.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["added_tokens"] = json!([{
        "id": 511, "content": mark, "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    }]);
    fs::write(&file, tokenizer.to_string()).unwrap();
    folder
}

#[test]
fn a_draft_model_with_every_token_of_the_model_changes_no_answer() {
    let model = tiny_model("same");
    let expected = generate(&model, None).unwrap();
    assert_eq!(generate(&model, Some(&model)), Ok(expected.clone()));
    // Nobody needs what a draft model has besides.
    let few = shorter("few", 500);
    assert_eq!(generate(&few, Some(&model)), generate(&few, None));
    let [ours, theirs] = ["ours", "theirs"].map(|name| marked(name, "<|turn|>"));
    assert_eq!(generate(&ours, Some(&theirs)), generate(&ours, None));
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused_with_the_token() {
    let model = tiny_model("target");
    let other = changed("other", |tokenizer| {
        let words = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        words.remove("word300");
        words.insert("owls".to_owned(), json!(300));
    });
    let (few, turn, end) = (shorter("fewer", 510), marked("turn", "<|turn|>"), marked("end", "<|end|>"));
    for (target, draft, parts) in [
        (&model, &other, "token 300 is \"owls\", in the model \"word300\""),
        (&model, &few, "token 510 is nothing, in the model \"word510\""),
        // Added tokens count: a model that has learnt other marks has another vocabulary.
        (&model, &turn, "token 511 is \"<|turn|>\", in the model \"word511\""),
        (&turn, &end, "token 511 is \"<|end|>\", in the model \"<|turn|>\""),
    ] {
        let error = generate(target, Some(draft)).unwrap_err();
        assert!(
            error.contains("has another vocabulary than the model: ") && error.contains(parts),
            "{error}"
        );
        assert!(error.contains("\nhint: --draft model: takes a smaller model of the same family"), "{error}");
    }
    let missing = generate(&model, Some(&Folder::new("empty"))).unwrap_err();
    assert!(missing.contains("config.json"), "{missing}");
}
