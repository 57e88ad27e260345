//! A whole run: what is measured in which order, what is shown while it goes on, and what is kept.
//!
//! The start of programs is measured first, while this process is small (see [`super::process`]). Then a model is
//! loaded for each number of threads, and every case runs ours, the peer's, ours, the peer's.

use super::{
    bandwidth,
    case::Case,
    ours::Bench,
    peer::{self, Identity, Peer},
    report::{self, Row},
    start::Start,
};
use crate::Result;
use serde_json::json;
use std::{fs, num::NonZeroUsize, path::PathBuf};
use tandem_backend_cpu::{Options as CpuOptions, isa::Isa};
use tandem_contracts::tensor::{Device, Precision};
use tandem_models::{Checkpoint, Options, Source, weights::File};

/// Who is measured beside us.
const PEER: &str = "llama.cpp";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A GGUF file.
    pub model: PathBuf,
    /// Threads; some cases are repeated with one.
    pub threads: NonZeroUsize,
    /// The most that kernels may use; all of the machine where there is none.
    pub isa: Option<Isa>,
    /// Arithmetic of weight products.
    pub precision: Precision,
    /// Runs of each case.
    pub repeat: usize,
    /// The `tandem` program.
    pub program: Option<PathBuf>,
    /// Folder of the peer's programs.
    pub peer: Option<PathBuf>,
    /// Where to write the figures.
    pub json: Option<PathBuf>,
    /// Only measurements whose name holds this text.
    pub only: String,
}

/// Measures, prints a table, and writes the figures where that was asked for.
///
/// # Errors
/// Those of any part; and a peer that is not what it should be, after its figures were shown without ratios.
pub fn run(plan: &Plan) -> Result<()> {
    let isa = plan.isa.unwrap_or_else(Isa::detected);
    println!("{}, {} threads, {isa}, {}", plan.model.display(), plan.threads, plan.precision());
    let identity = match plan.peer_with(plan.threads.get()) {
        Some(peer) => Some(peer.identify()?),
        None => None,
    };
    let mut doubt = None;
    if let Some(Identity { build, instructions, hash }) = &identity {
        println!("llama.cpp {build}, sha256 {hash}\n  {}", instructions.join(" "));
        doubt = identity.as_ref().and_then(|identity| identity.doubt(needed(isa)));
    }
    println!("\n{}", report::head(PEER));
    let mut rows = start(plan, doubt.is_none())?;
    let mut share = None;
    let mut counts = vec![plan.threads.get(), 1];
    counts.dedup();
    for threads in counts {
        let mut measured = Measured::new(plan, threads)?;
        for case in measured.cases() {
            let row = measured.row(case, &mut doubt)?;
            println!("{}", report::line(&row, doubt.is_none()));
            rows.push(row);
        }
        share = share.or(measured.share());
    }
    // Once more, as a doubt that came late takes the ratios before it away.
    if let Some(doubt) = &doubt {
        println!("\n{}{doubt}", report::table(PEER, &rows, false));
    }
    if let Some(share) = &share {
        println!("\n{share}");
    }
    if let Some(path) = &plan.json {
        let peer = identity.map(
            |it| json!({"build": it.build, "instructions": it.instructions, "sha256": it.hash, "doubt": doubt}),
        );
        let figures = json!({
            "model": plan.model, "threads": plan.threads, "isa": isa.name(), "precision": plan.precision(),
            "llama.cpp": peer, "rows": report::json(PEER, &rows, doubt.is_none()),
            "bandwidth": share.map(|share| json!({"decode": share.decode, "read": share.read})),
        });
        fs::write(path, format!("{figures:#}\n"))?;
    }
    doubt.map_or(Ok(()), |doubt| Err(format!("no ratios: {doubt}").into()))
}

impl Plan {
    fn precision(&self) -> &'static str {
        match self.precision {
            Precision::Fast => "fast",
            Precision::Exact => "exact",
        }
    }

    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    fn peer_with(&self, threads: usize) -> Option<Peer> {
        let programs = self.peer.clone()?;
        Some(Peer { programs, model: self.model.clone(), threads })
    }

    /// Whether the peer's figures are known for this model and machine.
    fn is_known(&self, threads: usize) -> bool {
        let starter = self.model.file_name().is_some_and(|name| name == "SmolLM2-135M-Instruct.Q4_1.gguf");
        starter && threads == 2 && self.isa.is_none() && Isa::detected() == Isa::Amx
    }
}

/// What a peer that matches our kernels says that it has.
fn needed(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Portable => &[],
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDot => &["NEON", "DOTPROD"],
        Isa::Avx2 => &["AVX2", "FMA", "F16C"],
        Isa::Avx512Vnni => &["AVX2", "FMA", "AVX512", "AVX512_VNNI"],
        Isa::Amx => &["AVX2", "FMA", "AVX512", "AVX512_VNNI", "AMX_INT8"],
    }
}

/// From the start of the programs to their first token. They take no instruction set, so there must be none.
fn start(plan: &Plan, compared: bool) -> Result<Vec<Row>> {
    let row = |name: &str, unit| Row { name: name.to_owned(), unit, ..Row::default() };
    let (mut time, mut memory) = (row("start to first token", "ms"), row("start, peak memory", "MB"));
    let Some(program) = plan.program.as_ref().filter(|_| plan.isa.is_none() && plan.wants(&time.name)) else {
        return Ok(Vec::new());
    };
    let start = Start { model: plan.model.clone(), threads: plan.threads.get(), precision: plan.precision() };
    // The first runs bring the files into the system's memory; they do not count.
    for run in 0..=plan.repeat {
        let ours = start.ours(program)?;
        let peer = plan.peer.as_ref().map(|programs| start.peer(programs)).transpose()?;
        if run > 0 {
            time.ours.push(ours.time.as_secs_f64() * 1e3);
            memory.ours.push(ours.peak as f64 / 1e6);
            time.peer.extend(peer.map(|cost| cost.time.as_secs_f64() * 1e3));
            memory.peer.extend(peer.map(|cost| cost.peak as f64 / 1e6));
        }
    }
    println!("{}\n{}", report::line(&time, compared), report::line(&memory, compared));
    Ok(vec![time, memory])
}

/// A model loaded for a number of threads, and what was found out with it.
struct Measured<'p> {
    plan: &'p Plan,
    threads: usize,
    bench: Bench,
    peer: Option<Peer>,
    /// Bytes of weights on the device: what one decoded token reads.
    bytes: usize,
    /// Bytes per second of decoding without context, and of plain reads right after each run.
    shares: Vec<(f64, f64)>,
}

impl<'p> Measured<'p> {
    fn new(plan: &'p Plan, threads: usize) -> Result<Self> {
        let count = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        let default = CpuOptions::default();
        let options = CpuOptions { threads: count, isa: plan.isa.unwrap_or(default.isa), ..default };
        let device: Device = tandem_backend_cpu::open(options)?;
        let bytes = fs::read(&plan.model)?;
        let checkpoint = Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?;
        let precision = Some(plan.precision);
        let session = checkpoint.load(&device, Options { precision, ..Options::default() })?;
        let bytes = device.memory().active;
        let (bench, peer) = (Bench { device, session }, plan.peer_with(threads));
        Ok(Self { plan, threads, bench, peer, bytes, shares: Vec::new() })
    }

    fn name(&self, case: Case) -> String {
        let other = self.threads != self.plan.threads.get();
        if other { format!("{case}, {} thread", self.threads) } else { case.to_string() }
    }

    fn cases(&self) -> Vec<Case> {
        let whole = self.threads == self.plan.threads.get();
        let cases = if whole { Case::standard() } else { Case::single() };
        cases.into_iter().filter(|case| self.plan.wants(&self.name(*case))).collect()
    }

    /// Ours, the peer's, ours, the peer's.
    fn row(&mut self, case: Case, doubt: &mut Option<String>) -> Result<Row> {
        // The first run pages weights in and grows buffers; it does not count.
        self.bench.run(case)?;
        let mut row = Row { name: self.name(case), unit: "tok/s", ..Row::default() };
        for _ in 0..self.plan.repeat {
            let ours = self.bench.run(case)?;
            row.ours.push(ours);
            if matches!(case, Case::Decode { depth: 0, .. }) {
                self.shares.push((ours * self.bytes as f64, bandwidth::read(self.bytes, self.threads)?));
            }
            if let Some(peer) = &self.peer {
                row.peer.push(peer.run(case)?);
            }
        }
        if let Some(figure) = report::median(&row.peer).filter(|_| self.plan.is_known(self.threads)) {
            *doubt = doubt.take().or_else(|| peer::doubt_figure(case, figure));
        }
        Ok(row)
    }

    /// How much of the machine's read bandwidth decoding takes.
    fn share(&self) -> Option<Share> {
        let (decode, read): (Vec<f64>, Vec<f64>) = self.shares.iter().copied().unzip();
        Some(Share { decode: report::median(&decode)?, read: report::median(&read)? })
    }
}

/// Bytes per second.
struct Share {
    decode: f64,
    read: f64,
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (decode, read, share) = (self.decode / 1e9, self.read / 1e9, 100.0 * self.decode / self.read);
        write!(
            f,
            "decoding reads {decode:.1} GB/s of weights; plain reads of as many bytes reach {read:.1} GB/s: {share:.0}%"
        )
    }
}
