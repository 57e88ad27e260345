//! `cargo xtask bench`: how fast a model runs.

use clap::{Parser, Subcommand, ValueEnum};
use std::{fs, num::NonZeroUsize, path::PathBuf};
use tandem_backend_cpu::{Options as CpuOptions, isa::Isa};
use tandem_contracts::tensor::Precision;
use tandem_models::{Checkpoint, Options, Source, weights::File};
use tandem_tests::{
    Result,
    bench::{
        bandwidth,
        case::Case,
        ours::Bench,
        peer::{self, Peer},
        report::{self, Row},
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
    /// The CPU backend: prefill, decode, batches.
    Cpu(Cpu),
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
    /// Folder with llama.cpp's `llama-bench` and `llama-batched-bench`, to be run in turn with ours.
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// Where to write the figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only cases whose name holds this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Arithmetic {
    Fast,
    Exact,
}

fn main() -> Result<()> {
    match Arguments::parse().target {
        Target::Cpu(arguments) => cpu(&arguments),
    }
}

fn cpu(arguments: &Cpu) -> Result<()> {
    let mut options = CpuOptions::default();
    options.threads = arguments.threads.unwrap_or(options.threads);
    options.isa = arguments.isa.map_or(options.isa, Isa::limited);
    let device = tandem_backend_cpu::open(options)?;
    let bytes = fs::read(&arguments.model)?;
    let precision = match arguments.precision {
        Arithmetic::Fast => Precision::Fast,
        Arithmetic::Exact => Precision::Exact,
    };
    let file = File { name: "model.gguf", bytes: &bytes };
    let checkpoint = Checkpoint::open(Source::Gguf(file))?;
    let session = checkpoint.load(&device, Options { precision: Some(precision), ..Options::default() })?;
    drop(bytes);

    let threads = options.threads.get();
    println!("{}, {threads} threads, {}", arguments.model.display(), options.isa);
    let peer = arguments.peer.as_ref().map(|programs| Peer {
        programs: programs.clone(),
        model: arguments.model.clone(),
        threads,
    });
    if let Some(peer) = &peer {
        println!("{}", peer.describe()?);
    }
    let rows = measure(&mut Bench { device: &device, session }, peer.as_ref(), arguments)?;
    println!("\n{}", report::table(&rows));
    share_of_bandwidth(&rows, peer::size(&arguments.model)?, threads);
    if let Some(path) = &arguments.json {
        fs::write(path, format!("{:#}\n", report::json(&rows)))?;
    }
    Ok(())
}

/// Ours, the peer's, ours, the peer's.
fn measure(bench: &mut Bench<'_>, peer: Option<&Peer>, arguments: &Cpu) -> Result<Vec<Row>> {
    let wanted = |case: &Case| arguments.only.as_ref().is_none_or(|text| case.to_string().contains(text));
    let cases: Vec<Case> = Case::standard().into_iter().filter(wanted).collect();
    let mut rows = Vec::new();
    for case in cases {
        // The first run pages weights in and grows buffers; it does not count.
        bench.run(case)?;
        let mut row = Row { case, ours: Vec::new(), peer: Vec::new() };
        for _ in 0..arguments.repeat.max(1) {
            row.ours.push(bench.run(case)?);
            if let Some(peer) = peer {
                row.peer.push(peer.run(case)?);
            }
        }
        print!(
            "{}",
            report::table(std::slice::from_ref(&row)).lines().nth(1).unwrap_or_default().to_owned() + "\n"
        );
        rows.push(row);
    }
    Ok(rows)
}

/// How much of the machine's read bandwidth decoding takes: each token reads the whole file's weights.
fn share_of_bandwidth(rows: &[Row], bytes: u64, threads: usize) {
    let decode = rows.iter().find(|row| matches!(row.case, Case::Decode { depth: 0, .. }));
    let Some(speed) = decode.and_then(|row| report::median(&row.ours)) else { return };
    let machine = bandwidth::read(bytes as usize, threads);
    let ours = speed * bytes as f64;
    println!(
        "decoding reads {:.1} GB/s of weights; a plain read of as many bytes reaches {:.1} GB/s: {:.0}%",
        ours / 1e9,
        machine / 1e9,
        100.0 * ours / machine
    );
}
