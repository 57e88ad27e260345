//! What the server costs beside its engine: each figure compares two measurements of one run, and is held to a bar.
//!
//! | module | what is measured |
//! |---|---|
//! | `speed` | tokens per second and the first token, through HTTP and from the engine directly |
//! | `program` | the `tandem` program: when it is ready, and what idle connections cost it |
//! | `client`, `crowd` | a client that reads streams, and many of them |
//! | `stream` | what has come of one |
//!
//! Server, engine and clients share one process, as both sides of a comparison have to share the machine.

mod client;
mod crowd;
mod program;
mod speed;
mod stream;

use super::engine::{
    client as direct,
    figure::{self, Figure},
};
use crate::{Result, quality};
use serde_json::json;
use std::{
    fs,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Duration,
};
use tandem_contracts::sampling::Sampling;
use tandem_engine::{Config, EngineHandle};
use tandem_models::{Checkpoint, Source, weights::File};
use tandem_serve::{
    http::{Server, runtime},
    model::{Defaults, ModelText, ServedModel},
};
use tokio::{net::TcpListener, sync::oneshot};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A GGUF file with a chat template.
    pub model: PathBuf,
    /// Threads of the engine.
    pub threads: NonZeroUsize,
    /// Turns of each measurement; medians count.
    pub repeat: usize,
    /// The `tandem` program.
    pub program: Option<PathBuf>,
    /// Where to write the figures.
    pub json: Option<PathBuf>,
    /// Only the parts whose name holds this text: program, tokens, first.
    pub only: String,
}

/// An engine, and a server over it.
struct Rig {
    engine: EngineHandle,
    text: ModelText,
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<std::result::Result<(), String>>>,
    repeat: usize,
    /// Prompts so far: each is another.
    prompts: usize,
}

/// The text side of a file.
fn text(model: &Path) -> Result<ModelText> {
    let bytes = fs::read(model)?;
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?;
    let tokenizer = quality::tokenizer(&checkpoint)?;
    let template = checkpoint.into_vocabulary().and_then(|vocabulary| vocabulary.chat_template);
    Ok(ModelText::new(tokenizer, template.as_deref())?)
}

impl Rig {
    fn open(plan: &Plan) -> Result<Self> {
        let engine = direct::engine(&plan.model, plan.threads, Config::default())?;
        let defaults = Defaults { sampling: Sampling::greedy(), max_tokens: None };
        let model = ServedModel::new("starter".to_owned(), engine.clone(), text(&plan.model)?, defaults);
        let server = Server::new(vec![model], Duration::from_secs(5));
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (end, told) = oneshot::channel::<()>();
        let serve = move || {
            let served = runtime.block_on(server.run(listener, async { drop(told.await) }));
            served.map_err(|error| error.to_string())
        };
        let server = Some(thread::Builder::new().name("server".to_owned()).spawn(serve)?);
        Ok(Self {
            engine,
            text: text(&plan.model)?,
            address,
            end: Some(end),
            server,
            repeat: plan.repeat,
            prompts: 0,
        })
    }

    /// Ends the server and its engine.
    fn close(mut self) -> Result<()> {
        drop(self.end.take());
        let server = self.server.take().ok_or("the server has ended already")?;
        server.join().map_err(|_| "the server has panicked")??;
        Ok(())
    }
}

/// Measures, prints a table, and writes the figures where that was asked for.
///
/// # Errors
/// Those of any part; and a bar is not held, after all figures were shown.
pub fn run(plan: &Plan) -> Result<()> {
    println!("{}, {} threads, {} turns", plan.model.display(), plan.threads, plan.repeat);
    let mut figures = Vec::new();
    let wanted = |part: &str| part.contains(&plan.only);
    if !["program", "tokens", "first"].into_iter().any(wanted) {
        return Err(format!("no part of the benchmark has this in its name: {}", plan.only).into());
    }
    if let Some(program) = plan.program.as_ref().filter(|_| wanted("program")) {
        // First, while this process is small and nothing else runs.
        figures.append(&mut program::measure(program, plan)?);
    }
    let mut rig = Rig::open(plan)?;
    if wanted("tokens") {
        figures.extend(speed::tokens(&mut rig)?);
    }
    if wanted("first") {
        figures.extend(speed::firsts(&mut rig)?);
    }
    rig.close()?;
    if let Some(path) = &plan.json {
        let rows: Vec<_> = figures.iter().map(Figure::json).collect();
        let figures = json!({"model": plan.model, "threads": plan.threads, "figures": rows});
        fs::write(path, format!("{figures:#}\n"))?;
    }
    figure::report(&figures)
}
