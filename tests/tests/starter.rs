//! The starter model from its GGUF file: the same answers as mlx-lm's, and as good a guess at a text.
//!
//! `cargo xtask test` fetches the model and runs this; the file's path is in `TANDEM_STARTER_MODEL`.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::{env, fs, path::PathBuf, sync::Arc};
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    request::{Event, Request},
    sampling::Sampling,
    tensor::{Affine, Device, Error, ErrorKind, Precision},
    text::TokenId,
};
use tandem_engine::{Config, Draft, DraftSource, Drafting, EngineHandle, Metrics, Models, Subscription};
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_serve::text::Detokenizer;
use tandem_tests::{
    device::Backend,
    fixtures,
    host::{Machine, request},
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

/// An engine on the CPU, if asked with the model as its own draft model.
fn engine(draft: bool, config: Config) -> EngineHandle {
    let bytes = fs::read(file()).unwrap();
    let build = move |device: &Device| {
        let load = || {
            let source = Source::Gguf(File { name: "starter.gguf", bytes: &bytes });
            let broken = |error: tandem_models::Error| Error::new(ErrorKind::Data, "load", error.to_string());
            Checkpoint::open(source).map_err(broken)?.load(device, Options::default()).map_err(broken)
        };
        let draft = if draft { Some(DraftSource::Model(load()?)) } else { None };
        Ok(Models { model: load()?, draft })
    };
    let open = Box::new(|| tandem_backend_cpu::open(tandem_backend_cpu::Options::default()));
    tandem_engine::spawn(open, build, config, Machine::clock()).unwrap()
}

fn tokens(mut row: Subscription) -> Vec<TokenId> {
    let mut all = Vec::new();
    while let Some(event) = row.recv() {
        if let Event::Delta { tokens, .. } = event {
            all.extend(tokens);
        }
    }
    all
}

/// The model's answers to two prompts, greedy and with a seed, two rows at once; and the counts.
fn drafted(golden: &Real, draft: bool) -> (Vec<Vec<TokenId>>, Metrics) {
    let mounted = Drafting { draft: Draft::Mounted, tokens: 4, adaptive: false, ..Drafting::default() };
    let drafting = if draft { mounted } else { Drafting::OFF };
    let engine = engine(draft, Config { drafting, max_rows: 2, ..Config::default() });
    let ask = |name: &str, sampling| {
        let sampled = Request { sampling, ..request(golden.runs[name].prompt.clone(), 24) };
        engine.submit(sampled).unwrap()
    };
    let seeded = Sampling { seed: 3, top_p: 0.9, ..Sampling::default() };
    let running =
        ["capital", "code"].map(|name| [Sampling::greedy(), seeded.clone()].map(|it| ask(name, it)));
    let answers = running.into_iter().flatten().map(tokens).collect();
    engine.shutdown();
    (answers, engine.metrics())
}

/// Its own guesses at what it says greedily are right but for what sampling chooses otherwise.
#[test]
fn cpu_answers_the_same_with_itself_as_its_draft_model() {
    let golden = Real::read(&fixtures().join(NAME)).unwrap();
    let ((plain, alone), (answers, metrics)) = (drafted(&golden, false), drafted(&golden, true));
    assert_eq!(answers, plain);
    assert!(answers.iter().all(|answer| answer.len() == 24));
    let (right, all) = (metrics.accepted_tokens, metrics.drafted_tokens);
    println!("{right} of {all} drafts were right, {} steps in place of {}", metrics.steps, alone.steps);
    assert!(right * 2 > all && metrics.steps < alone.steps, "{right} of {all}");
}

/// What stands at a prompt's beginning is found by its end, and by caches of 8 bits as by plain ones.
#[test]
fn cpu_finds_what_a_long_prompt_began_with_in_coded_caches_too() {
    let bytes = fs::read(file()).unwrap();
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "starter.gguf", bytes: &bytes })).unwrap();
    let tokenizer = Arc::new(tokenizer(&checkpoint).unwrap());
    let licence = fs::read_to_string(fixtures().join("text/gpl-3.txt")).unwrap();
    let filler: String = licence.chars().take(4000).collect();
    let text = format!(
        "<|im_start|>user\nThe secret word is marmalade. Remember it.\n\n{filler}\n\nWhat is the secret word?<|im_end|>\n\
         <|im_start|>assistant\nThe secret word is"
    );
    let prompt = tokenizer.encode_prompt(&text).unwrap();
    let codes = Codes::Uniform(Code::Affine(Affine { bits: 8, group: 32 }));
    let answers = [StatePolicy::Plain, StatePolicy::Encoded { codes, start: 0 }].map(|state| {
        let engine = engine(false, Config { state, ..Config::default() });
        let answer = tokens(engine.submit(request(prompt.clone(), 6)).unwrap());
        engine.shutdown();
        let mut detokenizer = Detokenizer::new(Arc::clone(&tokenizer));
        let mut text = String::new();
        answer.iter().for_each(|token| detokenizer.push(*token, &mut text));
        text
    });
    println!("{} tokens: {answers:?}", prompt.len());
    assert!(answers[0].contains("marmalade"), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_answers_as_the_reference_does() {
    hold(Backend::Mlx, &["capital", "code"]);
}
