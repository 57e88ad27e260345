//! `cargo xtask bench quality`: how far one arithmetic's predictions are from another's, on a fixed text.
//!
//! For every token of the text: the perplexity of both arithmetics, the divergence of their distributions
//! (Kullback and Leibler, in nats, of `fast` from `exact`), and how often both find the same token most likely. Both
//! see the same tokens before each: those of its window.
//!
//! On the starter model and the text of `fixtures` the perplexity of `exact` is also held to mlx-lm's.
//!
//! Each figure has a bar, and the program fails when one is not held.

use clap::Parser;
use std::{fmt, fs, path::PathBuf};
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    tensor::{Affine, Precision},
    text::TokenId,
};
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_tests::{
    Result,
    drive::{best, log_probabilities},
    fixtures,
    quality::{self, BAR, Golden, Loss, WINDOW, logits, tokenizer},
};

/// The model for which there are golden perplexities.
const STARTER: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Compares the `fast` arithmetic of the CPU backend with its `exact` one.
#[derive(Debug, Parser)]
struct Arguments {
    /// A GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// The text [default: the licence in `fixtures/text`].
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Tokens that are predicted from each other; each window starts from nothing [default: 512].
    #[arg(long)]
    window: Option<usize>,
    /// Only so many tokens of the text.
    #[arg(long)]
    tokens: Option<usize>,
    /// Both keep keys and values in affine codes of so many bits, in groups of 32.
    #[arg(long)]
    kv_bits: Option<u8>,
}

impl Arguments {
    fn policy(&self) -> StatePolicy {
        let Some(bits) = self.kv_bits else { return StatePolicy::Plain };
        StatePolicy::Encoded { codes: Codes::Uniform(Code::Affine(Affine { bits, group: 32 })), start: 0 }
    }
}

/// Most by which the perplexities may differ, as a fraction of that of `exact`.
const PERPLEXITY: f64 = 0.005;
/// Largest mean divergence, in nats.
const DIVERGENCE: f64 = 0.005;
/// Least fraction of tokens on which both agree what is most likely.
const AGREEMENT: f64 = 0.985;

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
    let text = arguments.text.clone().unwrap_or_else(|| fixtures().join("text/gpl-3.txt"));
    let mut tokens = tokenizer(&open()?)?.encode_prompt(&fs::read_to_string(&text)?)?;
    let golden = golden(&arguments, &tokens)?;
    tokens.truncate(arguments.tokens.unwrap_or(usize::MAX));

    let device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default())?;
    let load =
        |precision| open()?.load(&device, Options { precision: Some(precision), ..Options::default() });
    let (mut exact, mut fast) = (load(Precision::Exact)?, load(Precision::Fast)?);
    let (policy, mut totals) = (arguments.policy(), Totals::default());
    // Ours and mlx-lm's, of whole windows.
    let mut losses = (Loss::default(), Loss::default());
    for (index, window) in tokens.chunks(arguments.window.unwrap_or(WINDOW).max(2)).enumerate() {
        let exact = logits(&device, &mut *exact, window, &policy)?;
        let fast = logits(&device, &mut *fast, window, &policy)?;
        let mut loss = Loss::default();
        for (position, next) in window.iter().enumerate().skip(1) {
            loss.add(&exact[position - 1], *next);
            totals.add(&exact[position - 1], &fast[position - 1], *next as usize);
        }
        let own = golden.as_ref().and_then(|golden| golden.windows.get(index));
        if let Some(own) = own.filter(|own| own.tokens == window.len()) {
            losses = (losses.0.and(loss), losses.1.and(Loss::of(own)));
        }
    }
    let figures = totals.figures();
    print!("{figures}");
    let near = golden.is_none() || against(losses);
    if !near {
        return Err("the exact arithmetic is too far from mlx-lm".into());
    }
    if figures.hold() { Ok(()) } else { Err("the fast arithmetic is too far from the exact one".into()) }
}

/// The golden perplexities, where they are of the same model, text and windows.
fn golden(arguments: &Arguments, tokens: &[TokenId]) -> Result<Option<Golden>> {
    let starter = arguments.model.file_name().is_some_and(|name| name == STARTER);
    if !starter || arguments.text.is_some() || arguments.window.is_some() || arguments.kv_bits.is_some() {
        return Ok(None);
    }
    let golden = Golden::read(&fixtures().join("smollm2/perplexity.json"))?;
    if golden.ids != tokens {
        return Err("the text has other tokens than in mlx-lm".into());
    }
    Ok(Some(golden))
}

/// Shows both perplexities; whether they are close enough.
fn against((exact, golden): (Loss, Loss)) -> bool {
    let above = exact.above(golden);
    let held = above.abs() <= quality::BAR;
    println!("{}", line(exact.perplexity(), golden.perplexity(), held));
    held
}

fn line(exact: f64, golden: f64, held: bool) -> String {
    let mark = if held { "held" } else { "BROKEN" };
    let change = format!("{:+.4}%", 100.0 * (exact / golden - 1.0));
    let bar = format!("within {}%", 100.0 * BAR);
    format!(
        "exact {exact:.4}, mlx-lm {golden:.4}\n{:<24} {change:>10} {bar:>12} {mark}",
        "exact against mlx-lm"
    )
}

impl Totals {
    fn add(&mut self, exact: &[f32], fast: &[f32], next: usize) {
        let (exact, fast) = (log_probabilities(exact), log_probabilities(fast));
        self.tokens += 1;
        self.exact -= f64::from(exact[next]);
        self.fast -= f64::from(fast[next]);
        self.divergence +=
            exact.iter().zip(&fast).map(|(p, q)| f64::from(*p).exp() * f64::from(p - q)).sum::<f64>();
        self.agreement += usize::from(best(&exact) == best(&fast));
    }

    fn figures(&self) -> Figures {
        let mean = |sum: f64| sum / self.tokens.max(1) as f64;
        Figures {
            tokens: self.tokens,
            exact: mean(self.exact).exp(),
            fast: mean(self.fast).exp(),
            divergence: mean(self.divergence),
            agreement: mean(self.agreement as f64),
        }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug)]
struct Figures {
    tokens: usize,
    /// Perplexity.
    exact: f64,
    /// Perplexity.
    fast: f64,
    divergence: f64,
    agreement: f64,
}

impl Figures {
    fn perplexity(self) -> f64 {
        self.fast / self.exact - 1.0
    }

    /// Whether each bar is held. What is not a number holds none.
    fn bars(self) -> [bool; 3] {
        [self.perplexity().abs() <= PERPLEXITY, self.divergence <= DIVERGENCE, self.agreement >= AGREEMENT]
    }

    fn hold(self) -> bool {
        self.bars() == [true; 3]
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |held: bool| if held { "held" } else { "BROKEN" };
        let [perplexity, divergence, agreement] = self.bars().map(mark);
        let change = format!("{:+.3}%", 100.0 * self.perplexity());
        let agreeing = format!("{:.2}%", 100.0 * self.agreement);
        writeln!(f, "{} tokens, perplexity: exact {:.4}, fast {:.4}", self.tokens, self.exact, self.fast)?;
        writeln!(f, "{:<24} {:>10} {:>12}", "fast against exact", "", "bar")?;
        writeln!(f, "{:<24} {change:>10} {:>12} {perplexity}", "perplexity", "within 0.5%")?;
        writeln!(
            f,
            "{:<24} {:>10.5} {DIVERGENCE:>12} {divergence}",
            "mean divergence, nats", self.divergence
        )?;
        writeln!(f, "{:<24} {agreeing:>10} {:>12} {agreement}", "same most likely token", "98.5%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_predictions_differ_in_nothing() {
        let mut totals = Totals::default();
        totals.add(&[1.0, 1.0], &[3.0, 3.0], 0);
        let figures = totals.figures();
        // Two equally likely tokens, whatever their logits: perplexity 2.
        assert!((figures.exact - 2.0).abs() < 1e-6 && figures.perplexity().abs() < 1e-6);
        assert!(figures.divergence.abs() < 1e-6 && figures.agreement == 1.0);
        assert!(figures.hold());
    }

    #[test]
    fn each_bar_is_a_limit() {
        let good = Figures { tokens: 1000, exact: 8.0, fast: 8.01, divergence: 0.002, agreement: 0.99 };
        assert!(good.hold());
        assert_eq!(Figures { fast: 7.95, ..good }.bars(), [false, true, true]);
        assert_eq!(Figures { divergence: 0.006, ..good }.bars(), [true, false, true]);
        assert_eq!(Figures { agreement: f64::NAN, ..good }.bars(), [true, true, false]);
    }

    #[test]
    fn the_perplexities_stand_beside_the_bar() {
        insta::assert_snapshot!(line(8.0, 8.004, true), @r"
        exact 8.0000, mlx-lm 8.0040
        exact against mlx-lm       -0.0500%  within 0.1% held
        ");
    }

    #[test]
    fn the_table_names_what_is_broken() {
        let figures = Figures { tokens: 10, exact: 8.0, fast: 8.08, divergence: 0.001, agreement: 0.99 };
        insta::assert_snapshot!(figures, @r"
        10 tokens, perplexity: exact 8.0000, fast 8.0800
        fast against exact                           bar
        perplexity                  +1.000%  within 0.5% BROKEN
        mean divergence, nats       0.00100        0.005 held
        same most likely token       99.00%        98.5% held
        ");
    }
}
