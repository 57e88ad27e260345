//! The starter model from its GGUF file: the same greedy tokens as mlx-lm finds with the same codes.
//!
//! `cargo xtask test` fetches the model and runs this; the file's path is in `TANDEM_STARTER_MODEL`.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use serde::Deserialize;
use std::{collections::BTreeMap, env, fs};
use tandem_models::{Checkpoint, Source, weights::File};
use tandem_tests::{
    device::Backend,
    drive::{Driver, best},
    fixtures,
    parity::Greedy,
};

/// Golden margins below this decide nothing.
const MARGIN: f32 = 1e-3;

#[derive(Deserialize)]
struct Goldens {
    runs: BTreeMap<String, Greedy>,
}

/// Continues the prompts of these names and compares up to `count` tokens.
fn hold(backend: Backend, names: &[&str], count: usize) {
    let path =
        env::var("TANDEM_STARTER_MODEL").expect("TANDEM_STARTER_MODEL must name the starter model's file");
    let bytes = fs::read(&path).unwrap();
    let goldens = fs::read(fixtures().join("smollm2/greedy.json")).unwrap();
    let goldens: Goldens = serde_json::from_slice(&goldens).unwrap();
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "starter.gguf", bytes: &bytes })).unwrap();
    assert_eq!(checkpoint.vocabulary().unwrap().tokens.len(), checkpoint.config().vocabulary);
    let mut driver = Driver::load(checkpoint, &backend.open().unwrap()).unwrap();
    for name in names {
        let Greedy { prompt, tokens, margins } = &goldens.runs[*name];
        let logits = driver.greedy(prompt, prompt.len(), count).unwrap();
        let ours: Vec<_> = logits.iter().map(|logits| best(logits)).collect();
        let decided = margins.iter().position(|margin| *margin < MARGIN).unwrap_or(count).min(count);
        assert_eq!(ours[..decided], tokens[..decided], "{name}");
        assert!(decided >= 24, "{name}: only {decided} tokens are decided");
    }
}

#[test]
fn cpu_continues_as_the_reference_does() {
    hold(Backend::Cpu, &["capital", "code", "story"], 32);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_continues_as_the_reference_does() {
    hold(Backend::Mlx, &["capital"], 24);
}
