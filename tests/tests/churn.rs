//! A server whose clients come together, read, and vanish in the middle of their answers: nothing of them stays.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use tandem_contracts::{
    tensor::{Device, Error, ErrorKind},
    text::Vocabulary,
};
use tandem_engine::{Config, EngineHandle, Metrics, PrefixLimits};
use tandem_models::Options;
use tandem_serve::{
    http::Server,
    model::{Defaults, ModelText, ServedModel},
    text::Tokenizer,
};
use tandem_tests::{device::Backend, fixtures, host::Machine, parity::Case};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot};

/// Requests in all.
const REQUESTS: usize = 500;
/// Clients at once.
const CLIENTS: usize = 32;
/// Most that the device's memory may have grown, of what it was before: what the allocator rounds.
const GROWTH: f64 = 0.02;

fn engine(config: Config) -> EngineHandle {
    let broken = |error: &dyn ToString| Error::new(ErrorKind::Data, "load", error.to_string());
    let open = Box::new(move || Backend::Cpu.open().map_err(|error| broken(&error)));
    let build = move |device: &Device| {
        let case = Case::read(&fixtures().join("tiny/llama")).map_err(|error| broken(&error))?;
        let checkpoint = case.checkpoint().map_err(|error| broken(&error))?;
        checkpoint.load(device, Options::default()).map_err(|error| broken(&error))
    };
    tandem_engine::spawn(open, build, config, Machine::clock()).unwrap()
}

/// A fixed random number for each `index`: SplitMix64 (Steele, Lea and Flood, 2014).
fn random(index: usize) -> usize {
    let mut word = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) as usize
}

/// Asks for a streamed answer. Reads all of it, or as far as `cut` bytes and is gone then.
fn ask(server: SocketAddr, index: usize, cut: Option<usize>) {
    let prompt = "Many hands make light work. ".repeat(1 + random(index) % 4) + &index.to_string();
    let tokens = 8 + random(index + REQUESTS) % 40;
    let body =
        format!(r#"{{"prompt": "{prompt}", "max_tokens": {tokens}, "ignore_eos": true, "stream": true}}"#);
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = Vec::new();
    match cut {
        Some(cut) => {
            stream.take(cut as u64).read_to_end(&mut answer).unwrap();
        }
        None => {
            stream.read_to_end(&mut answer).unwrap();
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains("\"finish_reason\":\"length\"") && answer.contains("[DONE]"), "{answer}");
        }
    }
}

/// Waits until no request is left.
fn idle(engine: &EngineHandle) -> Metrics {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let metrics = engine.metrics();
        if metrics.outcomes.total() == metrics.accepted && metrics.active == 0 {
            return metrics;
        }
        assert!(Instant::now() < patience, "{metrics:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn churn(prefix: PrefixLimits) {
    let text = ModelText::new(Tokenizer::bytes().unwrap(), None).unwrap();
    let vocabulary = Some(text.tokenizer.len());
    let engine = engine(Config { max_queued: REQUESTS, vocabulary, prefix, ..Config::default() });
    let model = ServedModel::new("tiny".to_owned(), engine.clone(), text, Defaults::default());
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, told) = oneshot::channel::<()>();
    let server = Server::new(vec![model], Duration::from_secs(30));
    let server = thread::spawn(move || {
        runtime.block_on(server.run(listener, async { drop(told.await) })).unwrap();
    });

    // The first request makes what stays for good.
    ask(address, REQUESTS, None);
    let before = idle(&engine);
    let (next, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= REQUESTS {
                        return;
                    }
                    let leaves = random(index).is_multiple_of(3);
                    cut.fetch_add(usize::from(leaves), Ordering::Relaxed);
                    // An answer is some thousand bytes long, its head some hundred.
                    ask(address, index, leaves.then(|| random(index + 2 * REQUESTS) % 4000));
                }
            });
        }
    });
    let after = idle(&engine);
    assert_eq!((after.queued, after.active, after.cache_bytes, after.failed_steps), (0, 0, 0, 0));
    assert_eq!((after.rejected, after.outcomes.failed), (0, 0));
    assert!((REQUESTS / 4..REQUESTS / 2).contains(&cut.into_inner()));
    assert!(after.outcomes.cancelled > 0, "{:?}", after.outcomes);
    let kept = |metrics: &Metrics| metrics.memory.active.saturating_sub(metrics.stored_bytes) as f64;
    assert!(kept(&after) <= kept(&before) * (1.0 + GROWTH), "{before:?} {after:?}");
    drop(shutdown);
    server.join().unwrap();
}

#[test]
fn clients_that_vanish_leave_nothing() {
    churn(PrefixLimits::OFF);
}

#[test]
fn clients_that_vanish_leave_no_more_than_is_stored() {
    churn(PrefixLimits { bytes: 256 << 10, shortest: 8, boundary: 8 });
}
