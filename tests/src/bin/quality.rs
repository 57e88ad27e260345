//! How far one arithmetic's predictions are from another's, on a fixed text.
//!
//! For every token of the text: the perplexity of both arithmetics, the divergence of their distributions
//! (Kullback and Leibler, in nats, of `fast` from `exact`), and how often both find the same token most likely.

use clap::Parser;
use std::{fs, path::PathBuf};
use tandem_contracts::{
    model::{AdapterSet, RowStep, Session, Slot, StatePolicy, Step, TokenSource, Wanted},
    tensor::{Device, Precision, Tensor},
    text::TokenId,
};
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_serve::text::{GgufVocabulary, Tokenizer};
use tandem_tests::{Result, drive::log_probabilities};

/// Compares the `fast` arithmetic of the CPU backend with its `exact` one.
#[derive(Debug, Parser)]
struct Arguments {
    /// A GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// The text.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/text/gpl-3.txt"))]
    text: PathBuf,
    /// Tokens that are predicted from each other; each window starts from nothing.
    #[arg(long, default_value_t = 512)]
    window: usize,
    /// Only so many tokens of the text.
    #[arg(long)]
    tokens: Option<usize>,
}

/// Sums over the predicted tokens.
#[derive(Debug, Default)]
struct Totals {
    tokens: usize,
    exact: f64,
    fast: f64,
    divergence: f64,
    agreement: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let bytes = fs::read(&arguments.model)?;
    let open = || Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }));
    let mut tokens = tokenizer(&open()?)?.encode_prompt(&fs::read_to_string(&arguments.text)?)?;
    tokens.truncate(arguments.tokens.unwrap_or(usize::MAX));

    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default())?;
    let load =
        |precision| open()?.load(&device, Options { precision: Some(precision), ..Options::default() });
    let (mut exact, mut fast) = (load(Precision::Exact)?, load(Precision::Fast)?);
    let mut totals = Totals::default();
    for window in tokens.chunks(arguments.window.max(2)) {
        let (exact, fast) = (logits(&device, &mut *exact, window)?, logits(&device, &mut *fast, window)?);
        for (position, next) in window.iter().enumerate().skip(1) {
            totals.add(&exact[position - 1], &fast[position - 1], *next as usize);
        }
    }
    totals.print();
    Ok(())
}

fn tokenizer(checkpoint: &Checkpoint<'_>) -> Result<Tokenizer> {
    let file = checkpoint.vocabulary().ok_or("the file carries no vocabulary")?;
    Ok(Tokenizer::from_gguf(GgufVocabulary {
        model: file.model.clone(),
        pre: file.pre_tokenizer.clone(),
        tokens: file.tokens.clone(),
        kinds: file.token_types.clone(),
        scores: file.scores.clone(),
        merges: file.merges.clone(),
        begin: file.begin,
        end: file.end,
        add_begin: file.add_begin,
        ..GgufVocabulary::default()
    })?)
}

/// Logits behind every token of a window.
fn logits(device: &Device, session: &mut dyn Session, window: &[TokenId]) -> Result<Vec<Vec<f32>>> {
    let slot = Slot(0);
    session.open(slot, &StatePolicy::Plain, None)?;
    let row = RowStep {
        slot,
        position: 0,
        tokens: TokenSource::Ids(window.to_vec()),
        wanted: Wanted::All,
        adapters: AdapterSet::BASE,
    };
    let stepped = session.step(&Step { rows: vec![row] })?;
    let logits = stepped.logits.ok_or("the step gave no logits")?;
    device.eval(&stepped.touched.iter().chain([&logits]).collect::<Vec<&Tensor>>())?;
    drop(session.close(slot)?);
    let width = session.capabilities().vocabulary;
    Ok(logits.to_vec::<f32>()?.chunks(width).map(<[f32]>::to_vec).collect())
}

impl Totals {
    fn add(&mut self, exact: &[f32], fast: &[f32], next: usize) {
        let (exact, fast) = (log_probabilities(exact), log_probabilities(fast));
        self.tokens += 1;
        self.exact -= f64::from(exact[next]);
        self.fast -= f64::from(fast[next]);
        self.divergence +=
            exact.iter().zip(&fast).map(|(p, q)| f64::from(*p).exp() * f64::from(p - q)).sum::<f64>();
        self.agreement += usize::from(tandem_tests::drive::best(&exact) == tandem_tests::drive::best(&fast));
    }

    fn print(&self) {
        let mean = |sum: f64| sum / self.tokens as f64;
        let (exact, fast) = (mean(self.exact).exp(), mean(self.fast).exp());
        println!("tokens predicted      {}", self.tokens);
        println!("perplexity, exact     {exact:.4}");
        println!("perplexity, fast      {fast:.4} ({:+.3}%)", 100.0 * (fast / exact - 1.0));
        println!("mean divergence       {:.5} nats", mean(self.divergence));
        println!("same most likely      {:.2}%", 100.0 * mean(self.agreement as f64));
    }
}
