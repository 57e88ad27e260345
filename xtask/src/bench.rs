//! `cargo xtask bench`: measures speed with the programs of the `tandem-tests` package, built in release.
//!
//! What those programs need from elsewhere is brought here: the starter model, the `tandem` program for the time to a
//! first token, and llama.cpp or mlx-lm where it is to be measured beside.

use std::process::Command;

use clap::{Args, Subcommand, ValueEnum};

use crate::error::Result;
use crate::{debian, mlx, model, peer, process, python, relay, workspace};

/// What `cargo xtask bench` can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    target: Target,
}

/// What is measured.
#[derive(Subcommand, Clone, Debug)]
enum Target {
    /// How fast the CPU backend runs a model.
    Cpu(Cpu),
    /// What the engine costs and saves, in ratios that are each held to a bar.
    Engine(relay::Options),
    /// How fast the MLX backend runs a short prompt and a few tokens.
    Mlx(Mlx),
    /// What the server costs beside its engine, in ratios that are each held to a bar.
    Serve(relay::Options),
    /// What drafts and grammars save and cost, in ratios that are each held to a bar.
    Spec(relay::Options),
    /// How far the `fast` arithmetic's predictions are from those of `exact`, and these from mlx-lm's.
    Quality(relay::Options),
}

#[derive(Args, Clone, Debug)]
struct Cpu {
    /// Measure in turns with this program, which is fetched and built on the first call.
    #[arg(long, value_enum)]
    against: Option<Peer>,
    /// The most that kernels may use; the peer is built likewise: portable, avx2, avx512-vnni, amx.
    #[arg(long, value_name = "ISA")]
    isa: Option<String>,
    /// Further arguments of the program itself, after `--` (`-- --help` shows them).
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(Args, Clone, Debug)]
struct Mlx {
    /// Measure in turns with this program, for which a Python environment is set up on the first call.
    #[arg(long, value_enum)]
    against: Option<MlxPeer>,
    /// Further arguments of the program itself, after `--` (`-- --help` shows them).
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// What MLX can be measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MlxPeer {
    /// <https://github.com/ml-explore/mlx-lm>
    #[value(name = "mlx-lm")]
    MlxLm,
}

/// What the CPU can be measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// <https://github.com/ggml-org/llama.cpp>
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.target {
        Target::Cpu(options) => cpu(options),
        Target::Engine(options) => with_starter("bench", &options.after("engine")),
        Target::Mlx(options) => mlx(options),
        Target::Serve(options) => serve(options),
        Target::Spec(options) => spec(options),
        Target::Quality(options) => with_starter("quality", options),
    }
}

/// Runs a program that measures the starter model.
fn with_starter(program: &str, options: &relay::Options) -> Result<()> {
    let model = model::STARTER.fetch()?;
    process::run(relay::program(program, options)?.env(model::VARIABLE, model))
}

/// A wide vocabulary comes along, to which no small model belongs.
fn spec(options: &relay::Options) -> Result<()> {
    let (model, vocabulary) = (model::STARTER.fetch()?, model::VOCABULARY.fetch()?);
    let mut bench = relay::program("bench", &options.after("spec"))?;
    process::run(bench.env(model::VARIABLE, model).env(model::RANKS, vocabulary))
}

/// The program is built first, as it is measured too.
fn serve(options: &relay::Options) -> Result<()> {
    process::run(&mut workspace::cargo(["build", "--release", "--package", "tandem"]))?;
    let program = workspace::release_program("tandem")?;
    let options = options.after("serve");
    let model = model::STARTER.fetch()?;
    let mut bench = relay::program("bench", &options)?;
    process::run(bench.arg("--program").arg(program).env(model::VARIABLE, model))
}

fn cpu(options: &Cpu) -> Result<()> {
    let model = model::STARTER.fetch()?;
    let isa = options.isa.as_deref();
    let peer = match options.against {
        Some(Peer::LlamaCpp) => Some(peer::build(peer::Instructions::of_isa(isa)?)?),
        None => None,
    };
    let packages = ["build", "--release", "--package", "tandem", "--package", "tandem-tests"];
    process::run(&mut workspace::cargo(packages))?;
    let mut bench = Command::new(workspace::release_program("bench")?);
    bench.arg("cpu").arg("--program").arg(workspace::release_program("tandem")?);
    bench.args(isa.iter().flat_map(|isa| ["--isa", isa]));
    bench.args(peer.iter().flat_map(|peer| ["--peer".as_ref(), peer.as_os_str()]));
    process::run(bench.env(model::VARIABLE, model).args(&options.arguments))
}

fn mlx(options: &Mlx) -> Result<()> {
    let model = model::STARTER.fetch()?;
    let python = match options.against {
        Some(MlxPeer::MlxLm) => Some(python::environment("mlx-lm")?),
        None => None,
    };
    mlx::run(&mlx::Options::default())?;
    let features = ["--features", "mlx", "--bin", "bench"];
    process::run(workspace::cargo(["build", "--release", "--package", "tandem-tests"]).args(features))?;
    let mut bench = Command::new(workspace::release_program("bench")?);
    bench.arg("mlx").args(python.iter().flat_map(|python| ["--python".as_ref(), python.as_os_str()]));
    // For mlx-lm too: our copy of MLX has it in the place of its own, slower library.
    bench.envs(debian::openblas().map(|library| ("LD_PRELOAD", library)));
    process::run(bench.env(model::VARIABLE, model).args(&options.arguments))
}
