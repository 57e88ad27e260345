//! `cargo xtask bench cpu`, `engine`, `serve`, `spec` and `mlx`: how fast a model runs.

use clap::{Parser, Subcommand, ValueEnum};
use std::{num::NonZeroUsize, path::PathBuf};
use tandem_backend_cpu::isa::Isa;
use tandem_contracts::tensor::Precision;
use tandem_tests::{
    Result,
    bench::{
        engine, mlx,
        run::{self, Plan},
        serve, spec,
    },
};

/// Measures speed; ratios in one run, as machines differ and drift.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// The CPU backend: start, prefill, decode, batches.
    Cpu(Cpu),
    /// The engine, against a bare loop of steps, an idle device, and a cold start. Fails where a bar is missed.
    Engine(Engine),
    /// The MLX backend: a short prompt and a few tokens.
    Mlx(Mlx),
    /// The server, against its engine called directly. Fails where a bar is missed.
    Serve(Serve),
    /// Drafts and grammars, against the same without. Fails where a bar is missed.
    Spec(Spec),
}

#[derive(Debug, Parser)]
struct Spec {
    /// The starter model's GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// Qwen's tokens, as a file of ranks.
    #[arg(long, env = "TANDEM_VOCABULARY")]
    vocabulary: PathBuf,
    /// Threads [default: the physical cores].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Turns of each measurement; medians count.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Only the parts whose name holds this text: past, grammar, masks.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Show instead how many drafts rounds of a copy had, how many were right, and what they took.
    #[arg(long)]
    rounds: bool,
}

#[derive(Debug, Parser)]
struct Serve {
    /// A GGUF file with a chat template.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// Threads [default: the physical cores].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Turns of each measurement; medians count.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// The `tandem` program, whose start and memory are measured.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where to write the figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only the parts whose name holds this text: program, tokens, first.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Debug, Parser)]
struct Engine {
    /// A GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// Threads [default: the physical cores].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Turns of each measurement; medians count.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Where to write the figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only the parts whose name holds this text: decode, turn, arrival, queue.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Debug, Parser)]
struct Mlx {
    /// The starter model's GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// A Python that has mlx-lm, to be run in turns with ours
    /// (`cargo xtask bench mlx --against mlx-lm` sets one up).
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Runs of each side; medians count.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Where to write the figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Parser)]
struct Cpu {
    /// A GGUF file.
    #[arg(long, env = "TANDEM_STARTER_MODEL")]
    model: PathBuf,
    /// Threads [default: the physical cores].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// The most that kernels may use.
    #[arg(long)]
    isa: Option<Isa>,
    /// Arithmetic of weight products.
    #[arg(long, value_enum, default_value = "fast")]
    precision: Arithmetic,
    /// Runs of each case; medians count.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// The `tandem` program, to be timed from its start to its first token.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder with llama.cpp's `llama-bench`, `llama-batched-bench` and `llama-cli`, to be run in turns with ours
    /// (`cargo xtask bench cpu --against llama.cpp` builds them).
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// Where to write the figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only measurements whose name holds this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Arithmetic {
    Fast,
    Exact,
}

fn main() -> Result<()> {
    match Arguments::parse().target {
        Target::Cpu(arguments) => cpu(arguments),
        Target::Engine(Engine { model, threads, repeat, json, only }) => {
            let threads = threads.unwrap_or(tandem_backend_cpu::Options::default().threads);
            engine::run(&engine::Plan { model, threads, repeat: repeat.max(1), json, only })
        }
        Target::Serve(Serve { model, threads, repeat, program, json, only }) => {
            let threads = threads.unwrap_or(tandem_backend_cpu::Options::default().threads);
            serve::run(&serve::Plan { model, threads, repeat: repeat.max(1), program, json, only })
        }
        Target::Spec(Spec { model, vocabulary, threads, repeat, only, rounds }) => {
            let threads = threads.unwrap_or(tandem_backend_cpu::Options::default().threads);
            spec::run(&spec::Plan { model, vocabulary, threads, repeat: repeat.max(1), only, rounds })
        }
        Target::Mlx(Mlx { model, python, repeat, json }) => {
            mlx::run(&mlx::Plan { model, python, repeat: repeat.max(1), json })
        }
    }
}

fn cpu(arguments: Cpu) -> Result<()> {
    let default = tandem_backend_cpu::Options::default();
    run::run(&Plan {
        threads: arguments.threads.unwrap_or(default.threads),
        isa: arguments.isa.map(Isa::limited),
        precision: match arguments.precision {
            Arithmetic::Fast => Precision::Fast,
            Arithmetic::Exact => Precision::Exact,
        },
        repeat: arguments.repeat.max(1),
        model: arguments.model,
        program: arguments.program,
        peer: arguments.peer,
        json: arguments.json,
        only: arguments.only,
    })
}
