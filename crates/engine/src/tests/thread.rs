//! The engine on its thread, through its handle.

use super::{
    rig::{Answer, Hand, config, request},
    session::{CONTEXT, Control, POISON, Scripted, TOKEN_BYTES, Trouble, VOCABULARY, continuation},
};
use crate::{
    Config, Draft, DraftSource, Drafting, EngineHandle, ErrorKind, Models, Phase, Subscription, spawn, start,
};
use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tandem_contracts::{
    execution::Reason,
    fake,
    model::{Code, Codes, Session, StatePolicy},
    request::{Event, Outcome, Rejection, Request, RequestId, Scoring},
    sampling::Sampling,
    schedule::Clock,
    tensor::{self, Affine, Device, OpenDevice},
};

fn open() -> OpenDevice {
    Box::new(|| Ok(fake::open()))
}

fn build(control: &Arc<Control>) -> impl FnOnce(&Device) -> tensor::Result<Box<dyn Session>> + Send + use<> {
    let control = Arc::clone(control);
    move |device| Ok(Box::new(Scripted::new(device, control)))
}

fn engine(config: Config) -> (EngineHandle, Arc<Control>) {
    let control = Arc::new(Control::default());
    let handle = spawn(open(), build(&control), config, Box::new(Hand::default())).expect("it starts");
    (handle, control)
}

fn submit(handle: &EngineHandle, request: Request) -> Subscription {
    handle.submit(request).expect("it is taken")
}

#[test]
fn handles_and_subscriptions_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<EngineHandle>();
    check::<Subscription>();
}

#[test]
fn a_request_is_answered() {
    let (handle, _) = engine(config());
    assert_eq!((handle.phase(), handle.is_ready()), (Phase::Ready, true));
    let answer = Answer::wait(submit(&handle, request(&[1, 2, 3], 5)));
    assert_eq!((answer.outcome(), &answer.tokens), (&Outcome::Length, &continuation(&[1, 2, 3], 5)));
    handle.shutdown();
    let metrics = handle.metrics();
    assert_eq!((metrics.accepted, metrics.outcomes.length, metrics.steps), (1, 1, 5));
}

#[test]
fn a_draft_that_is_missing_or_has_fewer_tokens_is_refused_at_start() {
    let drafting = Drafting { draft: Draft::Mounted, ..Drafting::default() };
    for (narrow, message) in [
        (None, "the draft could not be mounted: none was built"),
        (Some(31), "the draft could not be mounted: the model has 32 tokens, the draft model has: 31"),
    ] {
        let control = Arc::new(Control::default());
        let build = move |device: &Device| {
            let session = |control: &Arc<Control>| Scripted::new(device, Arc::clone(control));
            let draft = narrow.map(|width| DraftSource::Model(Box::new(session(&control).narrowed(width))));
            Ok(Models { model: Box::new(session(&control)), draft })
        };
        let config = Config { drafting, ..config() };
        let error = spawn(open(), build, config, Box::new(Hand::default())).expect_err("refused");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Draft, message));
    }
}

#[test]
fn start_failures_are_typed() {
    let broken = || tensor::Error::new(tensor::ErrorKind::Data, "load", "truncated");
    let clock = || Box::new(Hand::default());
    let control = Arc::new(Control::default());
    let closed: OpenDevice = Box::new(move || Err(broken()));
    let error = spawn(closed, build(&control), config(), clock()).expect_err("no device");
    assert_eq!(error.kind(), ErrorKind::Device);
    let error = spawn(open(), move |_| Err::<Models, _>(broken()), config(), clock()).expect_err("no model");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Model, "the model could not be loaded: load: truncated")
    );
    let starting = start(open(), |_| -> tensor::Result<Models> { panic!("as scripted") }, config(), clock())
        .expect("a thread");
    let handle = starting.handle();
    let error = starting.wait().expect_err("a panic");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Panic, "loading the model panicked: as scripted")
    );
    assert_eq!(handle.phase(), Phase::Failed);
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Closed("it has failed")));
}

#[test]
fn loading_is_seen_and_requests_are_refused_meanwhile() {
    let control = Arc::new(Control::default());
    let (go, gate) = mpsc::channel::<()>();
    let build = build(&control);
    let slow = move |device: &Device| {
        gate.recv().expect("the test lives");
        build(device)
    };
    let starting = start(open(), slow, config(), Box::new(Hand::default())).expect("a thread");
    let handle = starting.handle();
    assert_eq!((handle.phase(), handle.is_ready(), handle.capabilities()), (Phase::Loading, false, None));
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Closed("its model is loading")));
    go.send(()).expect("the thread waits");
    let handle = starting.wait().expect("it loads");
    assert_eq!(handle.capabilities().map(|facts| facts.context), Some(CONTEXT));
    assert_eq!(Answer::wait(submit(&handle, request(&[1], 1))).outcome(), &Outcome::Length);
    handle.shutdown();
}

/// The budget is ten tokens.
#[test]
fn what_can_never_be_cached_is_rejected() {
    let (handle, _) = engine(Config { cache_bytes: Some(10 * TOKEN_BYTES), ..config() });
    assert_eq!(handle.longest(None), Some(10));
    let exceeded = Rejection::CacheExceeded { tokens: 11, longest: 10 };
    assert_eq!(handle.submit(request(&[1; 8], 3)).err(), Some(exceeded));
    assert_eq!(Answer::wait(submit(&handle, request(&[1; 8], 2))).outcome(), &Outcome::Length);
    handle.shutdown();
    let (handle, _) = engine(config());
    assert_eq!(handle.longest(None), Some(CONTEXT));
    handle.shutdown();
}

#[test]
fn what_cannot_run_is_rejected() {
    let (handle, _) = engine(config());
    let reject = |request: Request| handle.submit(request).err();
    assert_eq!(reject(request(&[], 1)), Some(Rejection::EmptyPrompt));
    assert_eq!(reject(request(&[1], 0)), Some(Rejection::NoTokens));
    let scoring = Scoring { answer: Some(1), prompt: None };
    assert_eq!(reject(Request { scoring, ..request(&[1], 0) }), Some(Rejection::NoTokens));
    let unknown = Rejection::UnknownToken { token: VOCABULARY as u32, vocabulary: VOCABULARY };
    assert_eq!(reject(request(&[1, VOCABULARY as u32], 1)), Some(unknown.clone()));
    let sampling = Sampling { logit_bias: vec![(VOCABULARY as u32, 1.0)], ..Sampling::greedy() };
    assert_eq!(reject(Request { sampling, ..request(&[1], 1) }), Some(unknown));
    let exceeded = Rejection::ContextExceeded { prompt: CONTEXT, context: CONTEXT };
    assert_eq!(reject(request(&[1; CONTEXT], 1)), Some(exceeded));
    let sampling = Sampling { top_p: 2.0, ..Sampling::default() };
    assert!(matches!(reject(Request { sampling, ..request(&[1], 1) }), Some(Rejection::Sampling(_))));
    let longest = Answer::wait(submit(&handle, request(&[1; CONTEXT - 1], 9)));
    assert_eq!((longest.outcome(), longest.tokens.len()), (&Outcome::Length, 1));
    assert_eq!((handle.metrics().rejected, handle.metrics().accepted), (7, 1));
    handle.shutdown();
}

#[test]
fn what_the_model_cannot_run_is_rejected_with_every_reason() {
    let control = Arc::new(Control::default());
    control.script().unkept = true;
    let codes = Codes::ByLayer(vec![
        (0, Code::Affine(Affine { bits: 8, group: 64 })),
        (1, Code::Turbo { keys: 8, values: 3 }),
    ]);
    let config = Config { state: StatePolicy::Encoded { codes, start: 0 }, ..config() };
    let clock = Box::new(Hand::default());
    let handle = spawn(open(), build(&control), config, clock).expect("it starts");
    let reasons = vec![Reason::KvSchemeBatchUnsupported, Reason::TurboKvBatchUnsupported];
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Unsupported { reasons }));
    // What is wrong in itself is told first.
    assert_eq!(handle.submit(request(&[], 1)).err(), Some(Rejection::EmptyPrompt));
    assert_eq!(handle.metrics().rejected, 2);
    handle.shutdown();
}

#[test]
fn requests_that_belong_together_are_all_taken_or_none() {
    let (handle, control) = engine(Config { max_queued: 3, max_rows: 1, ..config() });
    control.script().held = true;
    let running = submit(&handle, request(&[1], 1));
    control.await_steps(1);
    let together = |count: u32| handle.submit_all((0..count).map(|first| request(&[first], 1)));
    let taken = together(2).expect("there are three places");
    assert_eq!(together(2).err(), Some(Rejection::QueueFull { limit: 3 }));
    assert_eq!(handle.metrics().queued, 2);
    control.release();
    for subscription in [running].into_iter().chain(taken) {
        assert_eq!(Answer::wait(subscription).outcome(), &Outcome::Length);
    }
    assert_eq!(together(4).err(), Some(Rejection::TooMany { limit: 3 }));
    let unfit = handle.submit_all([request(&[1], 1), request(&[], 1)]);
    assert_eq!(unfit.err(), Some(Rejection::EmptyPrompt));
    let metrics = handle.metrics();
    assert_eq!((metrics.queued, metrics.accepted, metrics.rejected), (0, 3, 3));
}

#[test]
fn the_queue_has_a_bound() {
    let (handle, control) = engine(Config { max_queued: 2, max_rows: 1, ..config() });
    control.script().held = true;
    let running = submit(&handle, request(&[1], 1));
    control.await_steps(1);
    let waiting = [submit(&handle, request(&[2], 1)), submit(&handle, request(&[3], 1))];
    assert_eq!(handle.submit(request(&[4], 1)).err(), Some(Rejection::QueueFull { limit: 2 }));
    assert_eq!(handle.metrics().queued, 2);
    control.release();
    for subscription in [running].into_iter().chain(waiting) {
        assert_eq!(Answer::wait(subscription).outcome(), &Outcome::Length);
    }
    assert_eq!(Answer::wait(submit(&handle, request(&[4], 1))).outcome(), &Outcome::Length);
    handle.shutdown();
    assert_eq!(handle.metrics().queued, 0);
}

#[test]
fn a_drain_waits_for_rows_and_refuses_the_rest() {
    let (handle, control) = engine(Config { max_rows: 1, ..config() });
    control.script().held = true;
    let running = submit(&handle, request(&[1], 3));
    control.await_steps(1);
    let queued = submit(&handle, request(&[2], 3));
    let draining = handle.clone();
    let waiter = thread::spawn(move || draining.drain());
    while handle.phase() == Phase::Ready {
        thread::yield_now();
    }
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Closed("it is draining")));
    assert!(!waiter.is_finished());
    control.release();
    waiter.join().expect("it drains");
    assert_eq!(Answer::wait(running).tokens, continuation(&[1], 3));
    assert!(Answer::wait(queued).failure().ends_with("had not started"));
    assert_eq!(handle.phase(), Phase::Draining);
    handle.shutdown();
    handle.drain();
    assert_eq!(handle.phase(), Phase::Stopped);
}

#[test]
fn a_hold_is_the_device_alone() {
    let (handle, control) = engine(config());
    let hold = handle.hold().expect("it runs");
    let queued = submit(&handle, request(&[1], 2));
    thread::sleep(Duration::from_millis(20));
    assert!(control.script().steps.is_empty());
    drop(hold);
    assert_eq!(Answer::wait(queued).outcome(), &Outcome::Length);
    handle.shutdown();
    assert!(handle.hold().is_none());
}

#[test]
fn a_shutdown_ends_what_runs_and_is_final() {
    let (handle, control) = engine(config());
    // Asked for on the engine's own thread, where it must not wait for itself.
    let inside = handle.clone();
    control.script().hook = Some(Box::new(move |step| {
        if step == 3 {
            inside.shutdown()
        }
    }));
    let answer = Answer::wait(submit(&handle, request(&[1], 60)));
    assert_eq!((answer.failure(), answer.tokens.len()), ("the engine is shutting down", 2));
    handle.shutdown();
    handle.shutdown();
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Closed("it has stopped")));
    let script = control.script();
    assert_eq!((script.opened, script.closed), (1, 1));
}

#[test]
fn a_broken_session_ends_the_engine_and_its_requests() {
    let (handle, control) = engine(config());
    control.script().at_close = Some(Trouble::Panic);
    let first = submit(&handle, request(&[1], 1));
    assert_eq!(Answer::wait(first).outcome(), &Outcome::Length);
    while handle.phase() == Phase::Ready {
        thread::yield_now();
    }
    assert_eq!(handle.submit(request(&[1], 1)).err(), Some(Rejection::Closed("it has failed")));
    handle.cancel(RequestId(0));
    handle.drain();
    handle.shutdown();
    assert_eq!(handle.phase(), Phase::Failed);
}

/// A clock that panics when it is told to: nothing guards the thread against that.
#[derive(Debug)]
struct Bomb(Arc<Control>);

impl Clock for Bomb {
    fn now(&self) -> Duration {
        assert!(self.0.script().steps.len() < 3, "as scripted");
        Duration::ZERO
    }
}

#[test]
fn when_the_thread_dies_health_says_so_before_the_requests_end() {
    let control = Arc::new(Control::default());
    let bomb = Box::new(Bomb(Arc::clone(&control)));
    let handle = spawn(open(), build(&control), Config { max_rows: 1, ..config() }, bomb).expect("it starts");
    control.script().held = true;
    let mut running = submit(&handle, request(&[1], 50));
    control.await_steps(1);
    let queued = submit(&handle, request(&[1], 50));
    control.release();
    loop {
        match running.recv() {
            Some(Event::Finished { outcome: Outcome::Failed(_), .. }) => break,
            Some(Event::Finished { outcome, .. }) => panic!("{outcome:?}"),
            Some(_) => {}
            None => panic!("no end"),
        }
    }
    assert_eq!((handle.phase(), handle.is_ready()), (Phase::Failed, false));
    assert_eq!(Answer::wait(queued).failure(), "the engine stopped before the request ended");
    handle.shutdown();
}

#[test]
fn without_handles_and_subscriptions_the_thread_ends() {
    let (handle, control) = engine(config());
    drop(submit(&handle, request(&[1], 50)));
    drop(handle);
    while Arc::strong_count(&control) > 1 {
        thread::yield_now();
    }
    let script = control.script();
    assert_eq!(script.opened, script.closed);
}

#[test]
fn many_clients_at_once_some_of_which_leave() {
    let (handle, control) = engine(Config { max_queued: 500, max_rows: 4, ..config() });
    thread::scope(|scope| {
        for client in 0..8_u32 {
            let handle = &handle;
            scope.spawn(move || {
                for round in 0..25_u32 {
                    let prompt = [client, round, (client * round) % 29];
                    let mut subscription = submit(handle, request(&prompt, 10));
                    if round % 3 == 0 {
                        assert!(subscription.recv().is_some());
                        continue;
                    }
                    assert_eq!(Answer::wait(subscription).tokens, continuation(&prompt, 10));
                }
            });
        }
    });
    let poisoned = Answer::wait(submit(&handle, request(&[POISON; 7], 10)));
    assert!(matches!(poisoned.outcome(), Outcome::Failed(_)));
    handle.drain();
    handle.shutdown();
    let metrics = handle.metrics();
    assert_eq!((metrics.accepted, metrics.outcomes.total()), (201, 201));
    assert_eq!((metrics.queued, metrics.active, metrics.cache_bytes), (0, 0, 0));
    let script = control.script();
    assert_eq!(script.opened, script.closed);
}
