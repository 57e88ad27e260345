//! The starter model from its GGUF file: the same greedy tokens as mlx-lm finds with the same codes.
//!
//! `cargo xtask test` fetches the model and runs this; the file's path is in `TANDEM_STARTER_MODEL`.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use serde::Deserialize;
use std::{collections::BTreeMap, env, fs};
use tandem_contracts::tensor::Precision;
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_tests::{
    device::Backend,
    drive::{Driver, best},
    fixtures,
    parity::Greedy,
    quality::{BAR, Golden, Loss, logits, tokenizer},
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

/// The whole text is read by `cargo xtask bench quality`.
#[test]
fn cpu_is_as_perplexed_as_the_reference() {
    let bytes = fs::read(env::var("TANDEM_STARTER_MODEL").unwrap()).unwrap();
    let golden = Golden::read(&fixtures().join("smollm2/perplexity.json")).unwrap();
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "starter.gguf", bytes: &bytes })).unwrap();
    let text = fs::read_to_string(fixtures().join("text/gpl-3.txt")).unwrap();
    assert_eq!(tokenizer(&checkpoint).unwrap().encode_prompt(&text).unwrap(), golden.ids);

    let device = Backend::Cpu.open().unwrap();
    let options = Options { precision: Some(Precision::Exact), ..Options::default() };
    let mut session = checkpoint.load(&device, options).unwrap();
    let prefix = &golden.ids[..golden.prefix.tokens];
    let rows = logits(&device, &mut *session, prefix).unwrap();
    let mut loss = Loss::default();
    rows.iter().zip(&prefix[1..]).for_each(|(row, next)| loss.add(row, *next));
    let above = loss.above(Loss::of(&golden.prefix));
    assert!(above.abs() < BAR, "{:.4}, above mlx-lm by {above}", loss.perplexity());
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_continues_as_the_reference_does() {
    hold(Backend::Mlx, &["capital"], 24);
}
