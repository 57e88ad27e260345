//! The starter model from its GGUF file: the same answers as mlx-lm's, and as good a guess at a text.
//!
//! `cargo xtask test` fetches the model and runs this; the file's path is in `TANDEM_STARTER_MODEL`.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::{env, fs, path::PathBuf};
use tandem_contracts::{model::StatePolicy, tensor::Precision};
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_tests::{
    device::Backend,
    fixtures,
    parity::{Held, Real, Tolerances, render_answers},
    quality::{BAR, Golden, Loss, logits, tokenizer},
};

/// Name of the goldens' folder.
const NAME: &str = "smollm2";

fn file() -> PathBuf {
    env::var_os("TANDEM_STARTER_MODEL")
        .expect("TANDEM_STARTER_MODEL must name the starter model's file")
        .into()
}

/// Holds the answers to some prompts to mlx-lm's, and fails with the table.
fn hold(backend: Backend, prompts: &[&str]) {
    let golden = Real::read(&fixtures().join(NAME)).unwrap();
    let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
    let tolerance = tolerances.of_real(backend, NAME).unwrap().logit_error;
    let mut held = Held::load(NAME, &golden, &file(), &backend.open().unwrap(), tolerance).unwrap();
    let answers: Vec<_> = prompts.iter().map(|prompt| held.answer(prompt).unwrap()).collect();
    assert!(answers.iter().all(|it| it.tokens == 64 && it.holds()), "\n{}", render_answers(&answers));
}

#[test]
fn cpu_answers_as_the_reference_does() {
    let golden = Real::read(&fixtures().join(NAME)).unwrap();
    hold(Backend::Cpu, &golden.runs.keys().map(String::as_str).collect::<Vec<_>>());
}

/// The whole text is read by `cargo xtask bench quality`.
#[test]
fn cpu_is_as_perplexed_as_the_reference() {
    let bytes = fs::read(file()).unwrap();
    let golden = Golden::read(&fixtures().join("smollm2/perplexity.json")).unwrap();
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "starter.gguf", bytes: &bytes })).unwrap();
    let text = fs::read_to_string(fixtures().join("text/gpl-3.txt")).unwrap();
    assert_eq!(tokenizer(&checkpoint).unwrap().encode_prompt(&text).unwrap(), golden.ids);

    let device = Backend::Cpu.open().unwrap();
    let options = Options { precision: Some(Precision::Exact), ..Options::default() };
    let mut session = checkpoint.load(&device, options).unwrap();
    let prefix = &golden.ids[..golden.prefix.tokens];
    let rows = logits(&device, &mut *session, prefix, &StatePolicy::Plain).unwrap();
    let mut loss = Loss::default();
    rows.iter().zip(&prefix[1..]).for_each(|(row, next)| loss.add(row, *next));
    let above = loss.above(Loss::of(&golden.prefix));
    assert!(above.abs() < BAR, "{:.4}, above mlx-lm by {above}", loss.perplexity());
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_answers_as_the_reference_does() {
    hold(Backend::Mlx, &["capital", "code"]);
}
