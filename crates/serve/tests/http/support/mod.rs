//! A server over a real engine whose model answers by script, and a client that sees every byte.
//!
//! The model's vocabulary is bytes. It answers a prompt that holds `say: TEXT` and a line's end with that text and
//! its end token; every other prompt with the alphabet, over and over.

mod client;
mod session;

pub(crate) use client::{Connection, Response};
pub(crate) use session::{CONTEXT, Control};

use serde_json::{Value as Json, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tandem_contracts::{
    fake,
    model::{Session, StatePolicy},
    sampling::Sampling,
    schedule::Clock,
    tensor::Device,
    text::Vocabulary,
};
use tandem_engine::{Config, EngineHandle, PrefixLimits};
use tandem_serve::{
    http::{Compat, Host, Keys, Origin, Server},
    model::{Defaults, Filling, ModelText, ServedModel},
    text::Tokenizer,
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::oneshot,
};

/// Name of the served model.
pub(crate) const MODEL: &str = "scripted";

/// Renders each message as a line, so that prompts can be counted by hand; refuses tools' results.
const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('No tools, please!') }}\
    {% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if enable_thinking is defined %}think: \
    {{ enable_thinking }}\n{% endif %}assistant: ";

/// Keeps those apart that measure time and those that leave others little of it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TIME: Mutex<()> = Mutex::new(());
    TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a test may choose.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) defaults: Defaults,
    /// Ways to keep keys and values, by their names.
    pub(crate) states: Vec<(String, StatePolicy)>,
    pub(crate) template: Option<String>,
    pub(crate) fill: Filling,
    pub(crate) keep_alive: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) keys: Keys,
    pub(crate) origins: Vec<Origin>,
    pub(crate) hosts: Vec<Host>,
    /// Bytes that bodies weigh at once.
    pub(crate) bodies: usize,
    /// Names of the models.
    pub(crate) names: Vec<&'static str>,
    /// Whether each has an engine of its own.
    pub(crate) apart: bool,
    /// Whether the model's loading waits for [`Control::release`].
    pub(crate) loading: bool,
    /// Tokens that a row may hold.
    pub(crate) context: usize,
    pub(crate) compat: Option<Compat>,
    /// Threads that take and answer requests, if not as many as there are cores.
    pub(crate) threads: Option<usize>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::default(),
            // Greedy, so that answers are the script's.
            defaults: Defaults { sampling: Sampling::greedy(), max_tokens: None },
            states: Vec::new(),
            template: Some(TEMPLATE.to_owned()),
            fill: Filling::Off,
            keep_alive: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(60),
            keys: Keys::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            bodies: 256 << 20,
            names: vec![MODEL],
            apart: false,
            loading: false,
            context: CONTEXT,
            compat: None,
            threads: None,
        }
    }
}

/// Time from the machine.
#[derive(Debug)]
struct Machine(std::time::Instant);

impl Clock for Machine {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A running server. Dropping it shuts it down.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) engine: EngineHandle,
    pub(crate) control: Arc<Control>,
    shutdown: Option<oneshot::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let control = Arc::new(Control::default());
        control.hold(setup.loading);
        let tokenizer = Tokenizer::bytes().expect("a tokeniser");
        // The scripted session knows its rows by how they came, so that none begins with another's state.
        let vocabulary = Some(tokenizer.len());
        let config = Config { vocabulary, prefix: PrefixLimits::OFF, ..setup.config.clone() };
        let (waits, context) = (setup.loading, setup.context);
        let start = || {
            let shared = Arc::clone(&control);
            let build = move |device: &Device| {
                if waits {
                    shared.wait_while_held();
                }
                Ok(Box::new(session::Scripted::new(device, shared, context)) as Box<dyn Session>)
            };
            let clock = Box::new(Machine(std::time::Instant::now()));
            let open = Box::new(|| Ok(fake::open()));
            let starting = tandem_engine::start(open, build, config.clone(), clock).expect("a thread");
            if waits { starting.handle() } else { starting.wait().expect("a model") }
        };
        let engine = start();
        let models = setup.names.iter().enumerate().map(|(index, name)| {
            let engine = if setup.apart && index > 0 { start() } else { engine.clone() };
            let text = ModelText::new(Tokenizer::bytes().expect("a tokeniser"), setup.template.as_deref());
            let text = text.expect("a template");
            ServedModel {
                created: 1_700_000_000,
                states: setup.states.clone(),
                fill: setup.fill,
                ..ServedModel::new((*name).to_owned(), engine, text, setup.defaults.clone())
            }
        });
        let server = Server::new(models.collect(), setup.drain_timeout)
            .keep_alive(setup.keep_alive)
            .patience(setup.patience)
            .keys(setup.keys)
            .origins(setup.origins)
            .hosts(setup.hosts)
            .bodies(setup.bodies)
            .compat(setup.compat);
        let mut threads = Builder::new_multi_thread();
        setup.threads.map(|count| threads.worker_threads(count));
        Self::run(server, (engine, control), threads.enable_all().build().expect("a runtime"))
    }

    fn run(server: Server, (engine, control): (EngineHandle, Arc<Control>), runtime: Runtime) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (shutdown, told) = oneshot::channel::<()>();
        let server = thread::spawn(move || {
            let told = async { drop(told.await) };
            runtime.block_on(server.run(listener, told)).expect("the server ends well");
        });
        Self { address, engine, control, shutdown: Some(shutdown), server: Some(server) }
    }

    /// Tells the server to end, without waiting for it.
    pub(crate) fn begin_shutdown(&mut self) {
        drop(self.shutdown.take());
    }

    /// Tells the server to end and waits for it.
    pub(crate) fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.begin_shutdown();
        self.control.release();
        if let Some(server) = self.server.take() {
            server.join().expect("the server did not panic");
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.connect().exchange("GET", path, b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Response {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub(crate) fn post_bytes(&self, path: &str, body: &[u8]) -> Response {
        self.connect().exchange("POST", path, body)
    }

    /// A chat of one message, with more fields.
    pub(crate) fn chat(&self, content: &str, more: Json) -> Response {
        self.post("/v1/chat/completions", &chat(content, more))
    }

    /// Waits until nothing of any request is left.
    pub(crate) fn await_idle(&self) {
        self.await_metrics(|metrics| {
            let ended = metrics.outcomes.total() == metrics.accepted;
            metrics.active == 0 && metrics.queued == 0 && metrics.cache_bytes == 0 && ended
        });
    }

    /// Waits until the engine's counts satisfy a condition.
    pub(crate) fn await_metrics(&self, condition: impl Fn(&tandem_engine::Metrics) -> bool) {
        for _ in 0..500 {
            if condition(&self.engine.metrics()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("waited in vain: {:?}", self.engine.metrics());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.end();
    }
}

/// The body of a chat of one message, with more fields.
pub(crate) fn chat(content: &str, more: Json) -> Json {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Replaces what differs from run to run.
pub(crate) fn stable(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"id\":\"") {
        let (before, from) = rest.split_at(at + 6);
        out.push_str(before);
        let end = from.find('"').expect("an id's end");
        out.push_str(from[..end].split('-').next().unwrap_or_default());
        out.push_str("-ID");
        rest = &from[end..];
    }
    out.push_str(rest);
    let mut parts = out.split("\"created\":");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "\"created\":0" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}
