//! What the engine costs and what it saves: each figure a ratio of two measurements of one run, held to a bar.
//!
//! | module | what is measured |
//! |---|---|
//! | `decode` | decoding against a bare loop of steps; the engine's own time |
//! | `turn` | the first token of a conversation's second turn |
//! | `arrival` | a long prompt that arrives while rows decode |
//! | `queue` | many waiting requests |
//! | [`client`] | the engine on its thread, and those who read from it |
//! | [`figure`] | figures and their bars |

mod arrival;
pub mod client;
mod decode;
pub mod figure;
mod queue;
mod turn;

use super::ours::{Bench, token};
use crate::Result;
use figure::Figure;
use serde_json::json;
use std::{
    fs,
    num::NonZeroUsize,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};
use tandem_backend_cpu::Options as CpuOptions;
use tandem_contracts::text::TokenId;
use tandem_engine::{Config, EngineHandle, PrefixLimits};
use tandem_models::{Checkpoint, Options, Source, weights::File};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A GGUF file.
    pub model: PathBuf,
    /// Threads.
    pub threads: NonZeroUsize,
    /// Turns of each measurement; medians count.
    pub repeat: usize,
    /// Where to write the figures.
    pub json: Option<PathBuf>,
    /// Only the parts whose name holds this text.
    pub only: String,
}

/// As the program has it, but for the requests that may wait, and for a store that is full after one turn: new rows are then
/// made of what it drops, as on a server that has run for a while, and not of pages that the system has to clear first.
fn usual() -> Config {
    let prefix = PrefixLimits { bytes: 128 << 20, ..PrefixLimits::default() };
    Config { max_queued: 4096, prefix, ..Config::default() }
}

/// An engine, and the same model without one.
struct Rig {
    model: PathBuf,
    threads: NonZeroUsize,
    engine: EngineHandle,
    direct: Bench,
    repeat: usize,
    /// Rows of the engine.
    rows: usize,
    /// Prompts so far: each is another.
    prompts: usize,
}

impl Rig {
    fn open(plan: &Plan) -> Result<Self> {
        let config = usual();
        let rows = config.max_rows;
        let device = tandem_backend_cpu::open(CpuOptions { threads: plan.threads, ..CpuOptions::default() })?;
        let bytes = fs::read(&plan.model)?;
        let checkpoint = Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?;
        let session = checkpoint.load(&device, Options::default())?;
        let (model, threads) = (plan.model.clone(), plan.threads);
        let engine = client::engine(&model, threads, config)?;
        let direct = Bench { device, session };
        Ok(Self { model, threads, engine, direct, repeat: plan.repeat, rows, prompts: 0 })
    }

    /// Works with an engine that is configured in another way, and that ends then.
    fn configured(&mut self, config: Config, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let other = client::engine(&self.model, self.threads, config)?;
        let usual = std::mem::replace(&mut self.engine, other);
        let worked = work(self);
        std::mem::replace(&mut self.engine, usual).shutdown();
        worked
    }

    /// A prompt that begins like no other.
    fn prompt(&mut self, tokens: usize) -> Vec<TokenId> {
        self.prompts += 1;
        let vocabulary = self.direct.session.capabilities().vocabulary;
        (0..tokens).map(|position| token(position, self.prompts, vocabulary)).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

/// Waits until no row is left.
fn await_idle(engine: &EngineHandle) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(60);
    while engine.metrics().active > 0 || engine.metrics().queued > 0 {
        if Instant::now() > patience {
            return Err("rows do not end".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A part by its name.
type Part = (&'static str, fn(&mut Rig) -> Result<Vec<Figure>>);

/// Measures, prints a table, and writes the figures where that was asked for.
///
/// # Errors
/// Those of any part; and a bar is not held, after all figures were shown.
pub fn run(plan: &Plan) -> Result<()> {
    let parts: [Part; 4] = [
        ("decode", decode::measure),
        ("turn", turn::measure),
        ("arrival", arrival::measure),
        ("queue", queue::measure),
    ];
    println!("{}, {} threads, {} turns", plan.model.display(), plan.threads, plan.repeat);
    let mut rig = Rig::open(plan)?;
    let mut figures = Vec::new();
    for (_, part) in parts.into_iter().filter(|(name, _)| name.contains(&plan.only)) {
        figures.append(&mut part(&mut rig)?);
    }
    if let Some(path) = &plan.json {
        let rows: Vec<_> = figures.iter().map(Figure::json).collect();
        let figures = json!({"model": plan.model, "threads": plan.threads, "figures": rows});
        fs::write(path, format!("{figures:#}\n"))?;
    }
    figure::report(&figures)
}
