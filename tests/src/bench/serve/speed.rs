//! Tokens per second and the first token: from the engine directly, through HTTP, and directly again, so that a machine that
//! gets slower meanwhile is as slow for both.
//!
//! Both sides get the same tokens to read and give as many; through HTTP they come as JSON, are made of messages by template
//! and tokeniser, and leave as text in events.

use super::{
    Rig,
    client::{Client, PATIENCE, body},
    crowd,
    stream::Reading,
};
use crate::{
    Result,
    bench::{
        engine::{
            client::{Stream, read_until},
            figure::{Bar, Figure},
        },
        report::median,
    },
    host::request,
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};
use tandem_contracts::text::TokenId;
use tandem_engine::Hold;
use tandem_serve::text::template::Conversation;

/// Clients at once, the least speed through HTTP of the engine's own, and how many times as many turns are taken as of other
/// measurements: one turn of one client is a second of work, in which a shared machine may well differ by more than the bar.
const CLIENTS: [(usize, f64, usize); 2] = [(1, 0.97, 4), (16, 0.95, 2)];
/// Tokens of each answer.
const TOKENS: usize = 128;
/// With the starter model's template a prompt of 32 tokens.
const SHORT: &str = "Hello!";
/// Between two looks at the engine's queue.
const LOOK: Duration = Duration::from_micros(50);
/// There is no hold on an engine that has ended.
const GONE: &str = "the engine has ended";
/// First tokens that are timed in a turn.
const FIRSTS: usize = 9;
/// Milliseconds that the first token of a short prompt may come later than from the engine.
const LATER: f64 = 3.0;

/// Tokens per second, of the engine's own.
pub(super) fn tokens(rig: &mut Rig) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (clients, least, times) in CLIENTS {
        let mut ratios = Vec::new();
        // The first turn grows buffers; it does not count.
        for turn in 0..=rig.repeat * times {
            let before = directly(rig, clients)?;
            let through = through(rig, clients)?;
            let after = directly(rig, clients)?;
            if turn > 0 {
                ratios.push(2.0 * through / (before + after));
            }
        }
        let name = format!("tokens per second, {clients} clients, of the engine's");
        figures.push(Figure::new(name, "", ratios, Bar::AtLeast(least)));
    }
    Ok(figures)
}

/// A message that begins like no other.
fn message(rig: &mut Rig) -> String {
    rig.prompts += 1;
    format!("{} is the number of a tale about a lighthouse and its keeper. Tell it at length.", rig.prompts)
}

/// The tokens that a message becomes.
fn prompt(rig: &Rig, message: &str) -> Result<Vec<TokenId>> {
    let messages = vec![json!({"role": "user", "content": message})];
    let conversation = Conversation { messages, add_generation_prompt: true, ..Conversation::default() };
    Ok(rig.text.chat_prompt(&conversation)?)
}

/// Lets the engine begin when so many requests wait for it.
///
/// It begins with all of them on both sides. Else which of them came a millisecond earlier decided how many steps there
/// are: those that come while others decode are read a few tokens a step (134 steps of 16 answers become up to 180).
fn begin(rig: &Rig, requests: usize, hold: Hold) -> Result<()> {
    let asked = Instant::now();
    while rig.engine.metrics().queued < requests {
        if asked.elapsed() > PATIENCE {
            return Err("requests do not come to the engine".into());
        }
        thread::sleep(LOOK);
    }
    drop(hold);
    Ok(())
}

/// Tokens per second of all requests together, from the engine.
fn directly(rig: &mut Rig, clients: usize) -> Result<f64> {
    let messages: Vec<String> = (0..clients).map(|_| message(rig)).collect();
    let prompts = messages.iter().map(|message| prompt(rig, message)).collect::<Result<Vec<_>>>()?;
    let hold = rig.engine.hold().ok_or(GONE)?;
    let begun = Instant::now();
    let streams = prompts.into_iter().map(|prompt| Stream::open(&rig.engine, request(prompt, TOKENS)));
    let mut streams = streams.collect::<Result<Vec<_>>>()?;
    begin(rig, clients, hold)?;
    read_until(&mut streams, |all| all.iter().all(|stream| stream.outcome.is_some()))?;
    Ok((clients * TOKENS) as f64 / begun.elapsed().as_secs_f64())
}

/// The same through HTTP.
fn through(rig: &mut Rig, clients: usize) -> Result<f64> {
    let bodies: Vec<Value> = (0..clients).map(|_| body(&message(rig), TOKENS)).collect();
    let hold = rig.engine.hold().ok_or(GONE)?;
    let readings = crowd::streams(rig.address, &bodies, || begin(rig, clients, hold))?;
    if let Some(Reading { tokens, .. }) = readings.iter().find(|reading| reading.tokens.1 != TOKENS) {
        return Err(format!("not {TOKENS} tokens: {tokens:?}").into());
    }
    let begun = readings.iter().map(|reading| reading.begun).min();
    let end = readings.iter().map(|reading| reading.end).max();
    let (begun, end) = begun.zip(end).ok_or("nobody asked")?;
    Ok((clients * TOKENS) as f64 / (end - begun).as_secs_f64())
}

/// Milliseconds to the first token from the engine, and how many more through HTTP.
pub(super) fn firsts(rig: &mut Rig) -> Result<[Figure; 2]> {
    let short = prompt(rig, SHORT)?;
    let mut client = Client::connect(rig.address)?;
    let (mut own, mut later) = (Vec::new(), Vec::new());
    for turn in 0..=rig.repeat {
        let (mut direct, mut served) = (Vec::new(), Vec::new());
        for _ in 0..FIRSTS {
            let mut streams = vec![Stream::open(&rig.engine, request(short.clone(), 2))?];
            read_until(&mut streams, |all| all[0].outcome.is_some())?;
            direct.push(streams[0].first()? * 1e3);
            let reading = client.stream(&body(SHORT, 2))?;
            if reading.tokens.0 != short.len() {
                return Err(format!("the prompts differ: {} and {:?}", short.len(), reading.tokens).into());
            }
            served.push((reading.first - reading.begun).as_secs_f64() * 1e3);
        }
        let (direct, served) = median(&direct).zip(median(&served)).ok_or("nothing was timed")?;
        if turn > 0 {
            own.push(direct);
            later.push(served - direct);
        }
    }
    let name = format!("first token of {} from the engine", short.len());
    Ok([
        Figure::new(name, "ms", own, Bar::None),
        Figure::new("the same through HTTP, later by", "ms", later, Bar::AtMost(LATER)),
    ])
}
