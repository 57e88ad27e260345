//! An engine on its own thread, and the clients that read from it: all on one thread, woken by the engine.

use crate::{Result, host::Machine};
use std::{
    fs,
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};
use tandem_backend_cpu::Options as CpuOptions;
use tandem_contracts::{
    request::{Event, Outcome, Request, Usage},
    tensor,
    text::TokenId,
};
use tandem_engine::{Config, EngineHandle, Subscription};
use tandem_models::{Checkpoint, Options, Source, weights::File};

/// An engine over a GGUF file on the CPU.
///
/// # Errors
/// Those of loading.
pub fn engine(model: &Path, threads: NonZeroUsize, config: Config) -> Result<EngineHandle> {
    let bytes = fs::read(model)?;
    let build = move |device: &tensor::Device| {
        let load = || {
            Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?
                .load(device, Options::default())
        };
        load().map_err(|error| tensor::Error::new(tensor::ErrorKind::Data, "load", error.to_string()))
    };
    let options = CpuOptions { threads, ..CpuOptions::default() };
    let open = Box::new(move || tandem_backend_cpu::open(options));
    Ok(tandem_engine::spawn(open, build, config, Machine::clock())?)
}

/// One request and what has come of it.
#[derive(Debug)]
pub struct Stream {
    subscription: Subscription,
    /// When it was submitted.
    pub begun: Instant,
    /// Its tokens, and when each came.
    pub tokens: Vec<(TokenId, Instant)>,
    /// How it ended, once it has.
    pub outcome: Option<Outcome>,
    /// What it cost, then.
    pub usage: Usage,
}

impl Stream {
    /// Submits a request.
    ///
    /// # Errors
    /// It was rejected.
    pub fn open(engine: &EngineHandle, request: Request) -> Result<Self> {
        let begun = Instant::now();
        let subscription = engine.submit(request)?;
        Ok(Self { subscription, begun, tokens: Vec::new(), outcome: None, usage: Usage::default() })
    }

    /// Seconds from submission to the first token.
    ///
    /// # Errors
    /// There is none.
    pub fn first(&self) -> Result<f64> {
        let (_, first) = self.tokens.first().ok_or("a request ended without a token")?;
        Ok((*first - self.begun).as_secs_f64())
    }

    /// Takes what is there; says whether there was anything.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.outcome.is_none() {
            let Poll::Ready(event) = self.subscription.poll_recv(context) else { return any };
            any = true;
            let now = Instant::now();
            match event {
                Some(Event::Delta { tokens, .. }) => {
                    self.tokens.extend(tokens.into_iter().map(|id| (id, now)));
                }
                Some(Event::Progress { .. } | Event::Prompt { .. }) => {}
                Some(Event::Finished { outcome, usage }) => {
                    (self.outcome, self.usage) = (Some(outcome), usage);
                }
                None => return any,
            }
        }
        any
    }
}

/// Wakes a thread that waits in [`read_until`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Reads all streams until they are as wanted.
///
/// # Errors
/// One of them failed.
pub fn read_until(streams: &mut [Stream], wanted: impl Fn(&[Stream]) -> bool) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    while !wanted(streams) {
        let mut any = false;
        for stream in streams.iter_mut() {
            any |= stream.read(&mut context);
            if let Some(Outcome::Failed(failure)) = &stream.outcome {
                return Err(failure.clone().into());
            }
        }
        if !any {
            if streams.iter().all(|stream| stream.outcome.is_some()) {
                return Err("all requests ended before they were as wanted".into());
            }
            thread::park();
        }
    }
    Ok(())
}
