//! The engine thread, and the handle that everyone else holds.
//!
//! Device, model, caches and clock are made and dropped on the thread; what crosses is a closure that opens the
//! device, one that builds the model, commands, and events.
//!
//! Invariants: an accepted request ends once, also when the thread dies; the phase is [`Phase::Failed`] before any
//! request ends because of that; the thread ends on [`EngineHandle::shutdown`], or when no handle and no
//! subscription is left.

use crate::{
    binding::{Binding, Mounted},
    command::{Command, Submission, Waiter},
    config::{Config, Draft},
    error::{Error, ErrorKind, panic_message},
    executor::{Course, Executor, Parts},
    hold::Hold,
    row,
    status::{Loaded, Metrics, Phase, Place, Status},
    subscription::{Subscription, channel},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};
use tandem_contracts::{
    execution::{Execution, Mechanism},
    model::{Capabilities, Session, StatePolicy},
    request::{Rejection, Request, RequestId},
    schedule::Clock,
    tensor::{self, Device, OpenDevice},
};
use tandem_spec::draft::DraftProvider;

/// What is built on the engine's thread.
#[derive(Debug)]
pub struct Models {
    /// The model that answers.
    pub model: Box<dyn Session>,
    /// What proposes for it, where [`Draft::Mounted`] is configured.
    pub draft: Option<DraftSource>,
}

/// What proposes tokens for every row, and is built beside the model.
#[derive(Debug)]
pub enum DraftSource {
    /// A smaller model on the same device, which has every token of the larger one's vocabulary.
    Model(Box<dyn Session>),
    /// Anything else.
    Provider(Box<dyn DraftProvider>),
}

impl From<Box<dyn Session>> for Models {
    fn from(model: Box<dyn Session>) -> Self {
        Self { model, draft: None }
    }
}

/// Starts an engine and waits until its model is loaded.
///
/// # Errors
/// As [`Starting::wait`].
pub fn spawn<B, M>(
    open: OpenDevice,
    build: B,
    config: Config,
    clock: Box<dyn Clock>,
) -> Result<EngineHandle, Error>
where
    B: FnOnce(&Device) -> tensor::Result<M> + Send + 'static,
    M: Into<Models>,
{
    start(open, build, config, clock)?.wait()
}

/// Starts an engine's thread, on which `open` and then `build` run, and does not wait for them.
///
/// # Errors
/// No thread could be started.
pub fn start<B, M>(
    open: OpenDevice,
    build: B,
    config: Config,
    clock: Box<dyn Clock>,
) -> Result<Starting, Error>
where
    B: FnOnce(&Device) -> tensor::Result<M> + Send + 'static,
    M: Into<Models>,
{
    let status = Arc::new(Status::new());
    let (commands, inbox) = mpsc::channel();
    let (ready, loaded) = mpsc::channel();
    let engine = Engine { status: Arc::clone(&status), inbox };
    let limits = config.clone();
    let body = move || engine.run(|| load(open, build, config, clock), &ready);
    let thread = thread::Builder::new().name("tandem-engine".to_owned()).spawn(body);
    let thread = thread.map_err(|error| Error::new(ErrorKind::Thread, error))?;
    let shared = Shared { status, config: limits, next: AtomicU64::new(0), thread: Mutex::new(Some(thread)) };
    Ok(Starting { handle: EngineHandle { shared: Arc::new(shared), commands }, loaded })
}

/// An engine whose model may still be loading.
#[derive(Debug)]
pub struct Starting {
    handle: EngineHandle,
    loaded: Receiver<Result<(), Error>>,
}

impl Starting {
    /// A handle to be used already; it rejects requests until the model is loaded.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Waits until the model is loaded.
    ///
    /// # Errors
    /// The device could not be opened, the model could not be built, or one of them panicked. The thread has
    /// ended then.
    pub fn wait(self) -> Result<EngineHandle, Error> {
        let loaded = self.loaded.recv();
        loaded.unwrap_or_else(|_| Err(Error::panic("the engine's thread has died".to_owned())))?;
        Ok(self.handle)
    }
}

#[derive(Debug)]
struct Shared {
    status: Arc<Status>,
    config: Config,
    next: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request that can run, with its place in the queue.
#[derive(Debug)]
struct Placed {
    request: Request,
    policy: usize,
    execution: Arc<Execution>,
    place: Place,
}

/// A running engine. Cheap to clone; every method may be called from any thread.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

impl EngineHandle {
    /// Hands a request in. Never waits.
    ///
    /// # Errors
    /// Why the request was not taken; nothing of it has run.
    pub fn submit(&self, request: Request) -> Result<Subscription, Rejection> {
        let submitted = self.place(request, 0).and_then(|placed| {
            // Held over the send: a drain that has begun comes after every request that was taken before it.
            let phase = self.shared.status.phase();
            phase.refusal()?;
            self.send(placed)
        });
        self.shared.status.count_submission(submitted.is_ok());
        submitted
    }

    /// Hands requests in together: all are taken, or none of them. Never waits.
    ///
    /// # Errors
    /// Why one was not taken; nothing of any has run.
    pub fn submit_all(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Subscription>, Rejection> {
        let placed = requests.into_iter().enumerate().map(|(held, request)| self.place(request, held));
        let submitted: Result<Vec<_>, _> = placed.collect::<Result<Vec<_>, _>>().and_then(|placed| {
            let phase = self.shared.status.phase();
            phase.refusal()?;
            placed.into_iter().map(|placed| self.send(placed)).collect()
        });
        match &submitted {
            Ok(all) => all.iter().for_each(|_| self.shared.status.count_submission(true)),
            Err(_) => self.shared.status.count_submission(false),
        }
        submitted
    }

    /// A place in the queue for a request that can run, beside as many as are `held` for others of the same submission.
    fn place(&self, request: Request, held: usize) -> Result<Placed, Rejection> {
        let (policy, execution) = self.check(&request)?;
        let limit = self.shared.config.max_queued.max(1);
        let full = if held < limit { Rejection::QueueFull { limit } } else { Rejection::TooMany { limit } };
        let place = Place::take(&self.shared.status, limit).ok_or(full)?;
        Ok(Placed { request, policy, execution, place })
    }

    /// How a request is kept, by the policy's number, and how it is run: resolved here for good.
    fn check(&self, request: &Request) -> Result<(usize, Arc<Execution>), Rejection> {
        self.phase().refusal()?;
        let loaded = self.shared.status.loaded();
        // An engine that takes requests has loaded.
        let Loaded { binding, longest } = loaded.ok_or(Rejection::Closed("its model is loading"))?;
        let policy = self.policy(request.state.as_ref()).ok_or(Rejection::UnknownState)?;
        self.validate(request, binding.model())?;
        let execution = binding.resolve(request, policy);
        if execution.mechanism == Mechanism::Unsupported {
            return Err(Rejection::Unsupported { reasons: execution.exclusions() });
        }
        let tokens = row::longest((request.prompt.len(), request.max_tokens), binding.model().context);
        if let Some(&longest) = longest.get(policy).filter(|longest| tokens > **longest) {
            return Err(Rejection::CacheExceeded { tokens, longest });
        }
        Ok((policy, Arc::new(execution)))
    }

    /// A way to keep rows by its number; the engine's own where none is named.
    fn policy(&self, state: Option<&StatePolicy>) -> Option<usize> {
        self.shared.config.policies().position(|policy| state.is_none_or(|wanted| wanted == policy))
    }

    fn validate(&self, request: &Request, model: &Capabilities) -> Result<(), Rejection> {
        let Capabilities { context, vocabulary, .. } = *model;
        request.sampling.validate()?;
        if request.max_tokens == 0 && request.scoring.prompt.is_none() {
            return Err(Rejection::NoTokens);
        }
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(Rejection::EmptyPrompt);
        }
        if prompt >= context {
            return Err(Rejection::ContextExceeded { prompt, context });
        }
        let vocabulary = self.shared.config.vocabulary.unwrap_or(usize::MAX).min(vocabulary);
        let biased = request.sampling.logit_bias.iter().map(|(token, _)| token);
        match request.prompt.iter().chain(biased).find(|&&token| token as usize >= vocabulary) {
            Some(&token) => Err(Rejection::UnknownToken { token, vocabulary }),
            None => Ok(()),
        }
    }

    /// Sends a request to the engine's thread, under the phase's lock.
    fn send(&self, placed: Placed) -> Result<Subscription, Rejection> {
        let Shared { config, next, .. } = &*self.shared;
        let Placed { request, policy, execution, place } = placed;
        let id = RequestId(next.fetch_add(1, Ordering::Relaxed));
        let (publisher, subscription) = channel(id, self.commands.clone(), config.idle_timeout);
        let submission = Submission { id, request, policy, execution, publisher, place };
        match self.commands.send(Command::Submit(Box::new(submission))) {
            Ok(()) => Ok(subscription),
            Err(_) => Phase::Failed.refusal().map(|()| subscription),
        }
    }

    /// Ends a request as cancelled within one step, in whatever state it is. Ended and unknown ones are no error.
    pub fn cancel(&self, id: RequestId) {
        // A thread that is gone runs nothing that could be cancelled.
        let _ = self.commands.send(Command::Cancel(id));
    }

    /// Stops taking and starting requests and waits until the running rows have ended. Requests that wait for a
    /// row end as failed. Blocks the calling thread.
    pub fn drain(&self) {
        let (reply, drained) = mpsc::channel();
        let mut phase = self.shared.status.phase();
        *phase = Phase::Draining.max(*phase);
        let sent = self.commands.send(Command::Drain(reply));
        drop(phase);
        if sent.is_ok() {
            // The reply is that the other end hangs up, as it also does when the thread ends.
            let _ = drained.recv();
        }
    }

    /// Starts no request more, waits until the running rows have ended, and keeps it so until the hold is dropped. Those who
    /// ask for one together get it one after another. None where the engine has ended, or ends before. Blocks the calling
    /// thread.
    pub fn hold(&self) -> Option<Hold> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (granted, wait) = mpsc::channel();
        // Made first, so that whoever is interrupted gives back what they may have been given.
        let hold = Hold { number, commands: self.commands.clone() };
        self.commands.send(Command::Hold(Waiter { number, granted })).ok()?;
        wait.recv().ok()?;
        Some(hold)
    }

    /// Ends everything now and waits for the thread. What still runs ends as failed. Blocks the calling thread.
    pub fn shutdown(&self) {
        self.shared.status.advance(Phase::Stopped);
        // A thread that is gone needs no telling.
        let _ = self.commands.send(Command::Shutdown);
        let mut thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner);
        // A stop matcher runs on the engine's thread, which cannot wait for itself.
        let other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = thread.take_if(other) {
            // A panic of the thread has been reported through the phase.
            let _ = thread.join();
        }
    }

    /// Where the engine is in its life.
    pub fn phase(&self) -> Phase {
        *self.shared.status.phase()
    }

    /// Whether requests are taken. False the moment the thread has died, and while loading or draining.
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }

    /// Facts about the model, once it is loaded.
    pub fn capabilities(&self) -> Option<&Capabilities> {
        self.shared.status.loaded().map(|loaded| loaded.binding.model())
    }

    /// Tokens that a request with this state may come to, its prompt and its answer: no more than the model's context, and
    /// than the caches could hold if it ran alone. None until the model is loaded, and for a state that the engine does not
    /// have.
    pub fn longest(&self, state: Option<&StatePolicy>) -> Option<usize> {
        self.shared.status.loaded()?.longest.get(self.policy(state)?).copied()
    }

    /// Counts and times so far.
    pub fn metrics(&self) -> Metrics {
        self.shared.status.metrics()
    }
}

/// Opens and builds, on the engine's thread.
fn load<B, M>(
    open: OpenDevice,
    build: B,
    config: Config,
    clock: Box<dyn Clock>,
) -> Result<(Binding, Parts), Error>
where
    B: FnOnce(&Device) -> tensor::Result<M>,
    M: Into<Models>,
{
    let device = open().map_err(|error| Error::new(ErrorKind::Device, error))?;
    let models: Models = build(&device).map_err(|error| Error::new(ErrorKind::Model, error))?.into();
    let Models { model: session, draft } = models;
    let binding = Binding::probe(session.as_ref(), &config, Mounted::of(&config))?;
    if config.drafting.draft == Draft::Mounted {
        fits(session.as_ref(), draft.as_ref(), &config)?;
    }
    Ok((binding, Parts { device, session, draft, config, clock }))
}

/// Whether something was mounted, and a draft model has every token of the model that it is to propose for.
fn fits(model: &dyn Session, draft: Option<&DraftSource>, config: &Config) -> Result<(), Error> {
    let drafter = match draft {
        None => return Err(Error::draft("none was built")),
        Some(DraftSource::Provider(_)) => return Ok(()),
        Some(DraftSource::Model(drafter)) => drafter.as_ref(),
    };
    let width = |session: &dyn Session| session.capabilities().vocabulary;
    let (needed, has) = (config.vocabulary.unwrap_or(usize::MAX).min(width(model)), width(drafter));
    match has >= needed {
        true => Ok(()),
        false => Err(Error::draft(&format!("the model has {needed} tokens, the draft model has: {has}"))),
    }
}

/// The thread's end of what is shared.
#[derive(Debug)]
struct Engine {
    status: Arc<Status>,
    inbox: Receiver<Command>,
}

impl Engine {
    fn run(self, load: impl FnOnce() -> Result<(Binding, Parts), Error>, ready: &Sender<Result<(), Error>>) {
        let loaded = catch_unwind(AssertUnwindSafe(load));
        match loaded.unwrap_or_else(|payload| Err(Error::panic(panic_message(payload.as_ref())))) {
            Ok((binding, parts)) => {
                let executor = Executor::new(parts);
                self.status.load(Loaded { binding, longest: executor.longest() });
                // Nobody may be waiting.
                let _ = ready.send(Ok(()));
                self.serve(executor);
            }
            Err(error) => {
                // Whoever waits for it has the error, and tells it.
                tracing::debug!(%error, "the engine did not start");
                self.status.advance(Phase::Failed);
                let _ = ready.send(Err(error));
            }
        }
    }

    fn serve(&self, mut executor: Executor) {
        // Dropped before the executor: the phase says so before any request ends with the thread.
        let mut death = Death { status: &self.status, phase: Phase::Failed };
        loop {
            let mut first = None;
            if executor.is_idle() {
                match self.inbox.recv() {
                    Ok(command) => first = Some(command),
                    Err(_) => return death.phase = Phase::Stopped,
                }
            }
            executor.turn(|| first.take().or_else(|| self.inbox.try_recv().ok()));
            self.status.publish(executor.metrics());
            match executor.course() {
                Course::Open | Course::Draining => {}
                Course::Stopped => return death.phase = Phase::Stopped,
                Course::Broken => {
                    tracing::error!("the model's state cannot be trusted any more, the engine ends");
                    return;
                }
            }
        }
    }
}

/// Says how the thread has ended, also in a panic.
struct Death<'a> {
    status: &'a Status,
    phase: Phase,
}

impl Drop for Death<'_> {
    fn drop(&mut self) {
        self.status.advance(self.phase);
    }
}
