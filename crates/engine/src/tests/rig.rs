//! What the tests stand on: an executor with a hand-driven clock, requests, and readers.

use super::session::{Control, Scripted, VOCABULARY};
use crate::{
    binding::{Binding, Mounted},
    command::{Command, Submission},
    config::{Config, Gap, Mixing, PrefixLimits},
    executor::{Executor, Parts},
    status::{Metrics, Place, Status},
    subscription::{Subscription, channel},
};
use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tandem_contracts::{
    execution::Execution,
    fake::Fake,
    model::StatePolicy,
    request::{Event, Outcome, Request, RequestId, Score, Scoring, Usage},
    sampling::Sampling,
    schedule::Clock,
    tensor::Device,
    text::{Delta, StopMatcher, TokenId},
};

/// A clock that a test moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(crate) fn pass(&self, seconds: u64) {
        self.pass_millis(seconds * 1_000);
    }

    pub(crate) fn pass_millis(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Writes tokens as numbers, each with a space that is held back until the next.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Completes the stop string of index 3.
    pub(crate) stop: Option<TokenId>,
    pub(crate) panic: Option<TokenId>,
    /// The stop string that the end of the text completes.
    pub(crate) ends_with: Option<usize>,
    pub(crate) held: &'static str,
}

impl StopMatcher for Numbers {
    fn push(&mut self, token: TokenId) -> Delta {
        assert_ne!(self.panic, Some(token), "as scripted");
        if self.stop == Some(token) {
            return Delta { text: String::new(), stopped: Some(3) };
        }
        let text = format!("{}{token}", self.held);
        self.held = " ";
        Delta { text, stopped: None }
    }

    fn finish(&mut self) -> Delta {
        Delta { text: self.held.to_owned(), stopped: self.ends_with }
    }
}

/// A greedy request.
pub(crate) fn request(prompt: &[TokenId], max_tokens: usize) -> Request {
    Request {
        prompt: prompt.to_vec(),
        max_tokens,
        sampling: Sampling::greedy(),
        state: None,
        scoring: Scoring::default(),
        end_tokens: Vec::new(),
        ignore_end: false,
        text: Box::new(Numbers::default()),
        grammar: None,
        fill: None,
    }
}

pub(crate) fn config() -> Config {
    // Time stands still in most scripts.
    let mixing = Mixing::Packed(Gap::Any);
    Config { vocabulary: Some(VOCABULARY), prefix: PrefixLimits::OFF, mixing, ..Config::default() }
}

/// An executor without a thread.
pub(crate) struct Rig {
    pub(crate) executor: Executor,
    pub(crate) control: Arc<Control>,
    pub(crate) clock: Hand,
    pub(crate) fake: Rc<Fake>,
    pub(crate) commands: Sender<Command>,
    pub(crate) binding: Binding,
    status: Arc<Status>,
    inbox: Receiver<Command>,
    next: u64,
    idle_timeout: Duration,
    policies: Vec<StatePolicy>,
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        Self::over(config, Control::default())
    }

    pub(crate) fn over(config: Config, control: Control) -> Self {
        Self::on(Fake::open(), config, control)
    }

    pub(crate) fn on(fake: Rc<Fake>, config: Config, control: Control) -> Self {
        let device: Device = fake.clone();
        let control = Arc::new(control);
        let clock = Hand::default();
        let session = Box::new(Scripted::new(&device, Arc::clone(&control)));
        let mounted = Mounted::of(&config);
        let binding = Binding::probe(session.as_ref(), &config, mounted).expect("windows can be verified");
        let idle_timeout = config.idle_timeout;
        let policies = config.policies().cloned().collect();
        let parts = Parts { device, session, draft: None, config, clock: Box::new(clock.clone()) };
        let (commands, inbox) = mpsc::channel();
        let executor = Executor::new(parts);
        let status = Arc::new(Status::new());
        Self {
            executor,
            control,
            clock,
            fake,
            commands,
            binding,
            status,
            inbox,
            next: 0,
            idle_timeout,
            policies,
        }
    }

    pub(crate) fn submit(&mut self, request: Request) -> Subscription {
        let execution = self.binding.resolve(&request, self.policy(&request));
        self.submit_as(request, execution)
    }

    fn policy(&self, request: &Request) -> usize {
        let wanted = |policy: &StatePolicy| request.state.as_ref().is_none_or(|wanted| wanted == policy);
        self.policies.iter().position(wanted).expect("a policy of the engine")
    }

    /// Submits a request that is to be run in this way.
    pub(crate) fn submit_as(&mut self, request: Request, execution: Execution) -> Subscription {
        let id = RequestId(self.next);
        self.next += 1;
        let place = Place::take(&self.status, usize::MAX).expect("no bound");
        let (publisher, subscription) = channel(id, self.commands.clone(), self.idle_timeout);
        let policy = self.policy(&request);
        let execution = Arc::new(execution);
        let submission = Submission { id, request, policy, execution, publisher, place };
        self.send(Command::Submit(Box::new(submission)));
        subscription
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.send(command).expect("the inbox lives");
    }

    pub(crate) fn turn(&mut self) {
        let inbox = &self.inbox;
        self.executor.turn(|| inbox.try_recv().ok());
    }

    /// Turns until nothing is left to do.
    pub(crate) fn finish(&mut self) {
        self.turn();
        for _ in 0..10_000 {
            if self.executor.is_idle() {
                return;
            }
            self.turn();
        }
        panic!("it never ends");
    }

    pub(crate) fn metrics(&mut self) -> Metrics {
        Metrics { queued: self.status.metrics().queued, ..self.executor.metrics().clone() }
    }

    /// Steps so far, one a line.
    pub(crate) fn steps(&self) -> String {
        self.control.script().steps.join("\n")
    }

    /// Every lease is back: slots, bytes, queue places, rows.
    pub(crate) fn assert_balanced(&mut self) {
        let metrics = self.metrics();
        assert_eq!((metrics.queued, metrics.active, metrics.cache_bytes), (0, 0, 0));
        let script = self.control.script();
        assert_eq!(script.opened, script.closed);
    }
}

/// Everything that a request's consumer has seen.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) scores: Vec<Score>,
    pub(crate) prompt_scores: Vec<Score>,
    pub(crate) progress: Vec<(usize, usize)>,
    pub(crate) ends: Vec<(Outcome, Usage)>,
}

impl Answer {
    fn add(&mut self, event: Event) {
        assert!(self.ends.is_empty(), "an event after the end: {event:?}");
        match event {
            Event::Progress { done, total } => self.progress.push((done, total)),
            Event::Prompt { scores } => self.prompt_scores.extend(scores),
            Event::Delta { text, tokens, scores } => {
                self.text.push_str(&text);
                self.tokens.extend(tokens);
                self.scores.extend(scores);
            }
            Event::Finished { outcome, usage } => self.ends.push((outcome, usage)),
        }
    }

    /// Takes what is there now.
    pub(crate) fn read(&mut self, subscription: &mut Subscription) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = subscription.poll_recv(&mut context) {
            self.add(event);
        }
    }

    /// Reads to the end, blocking.
    pub(crate) fn wait(mut subscription: Subscription) -> Self {
        let mut answer = Self::default();
        while let Some(event) = subscription.recv() {
            answer.add(event);
        }
        answer
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        let [(outcome, _)] = self.ends.as_slice() else { panic!("not one end: {:?}", self.ends) };
        outcome
    }

    pub(crate) fn usage(&self) -> Usage {
        let [(_, usage)] = self.ends.as_slice() else { panic!("not one end: {:?}", self.ends) };
        *usage
    }

    pub(crate) fn failure(&self) -> &str {
        let Outcome::Failed(failure) = self.outcome() else { panic!("no failure: {:?}", self.ends) };
        &failure.message
    }
}

/// Reads a request that has ended already.
pub(crate) fn read(subscription: &mut Subscription) -> Answer {
    let mut answer = Answer::default();
    answer.read(subscription);
    answer
}
