//! Chat templates held to goldens: 72 templates in the wild, each over 11 conversations, rendered by `transformers`.

use serde_json::{Map, Value as Json};
use std::{fs, path::PathBuf};
use tandem_serve::text::template::{ChatTemplate, Conversation, Moment};

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/templates")).join(path)
}

fn object(value: &Json) -> &Map<String, Json> {
    value.as_object().expect("an object")
}

fn conversation(golden: &Json) -> Conversation {
    let mut variables = object(golden).clone();
    let mut list = |name: &str| variables.remove(name).and_then(|value| value.as_array().cloned());
    let (messages, tools) = (list("messages").expect("messages"), list("tools"));
    let opened = variables.remove("add_generation_prompt").is_none_or(|flag| flag == true);
    Conversation { messages, tools, add_generation_prompt: opened, variables }
}

fn json(path: &str) -> Json {
    serde_json::from_slice(&fs::read(fixture(path)).expect(path)).expect(path)
}

#[test]
fn every_rendering_is_the_references_or_refused_in_its_words() {
    let goldens = json("conversations.json");
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    let special: Vec<(String, String)> = object(&goldens["meta"]["variables"])
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    let now = Moment::utc((2026, 1, 15), (9, 30, 0));
    let mut checked = 0;
    for entry in fs::read_dir(fixture("")).expect("fixtures") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let Some(stem) = name.strip_suffix(".jinja") else { continue };
        let source = fs::read_to_string(fixture(&name)).expect(stem);
        let template = ChatTemplate::new(&source, special.clone()).expect(stem);
        for (case, want) in object(&json(&format!("{stem}.json"))) {
            let got = template.render(&conversation(&goldens["conversations"][case]), &now);
            let got = got.map_err(|error| error.message().to_owned());
            let want = want.get("text").map(text).ok_or_else(|| text(&want["message"]));
            assert_eq!(got, want, "{stem} {case}");
            checked += 1;
        }
    }
    assert_eq!(checked, 72 * 11);
}
