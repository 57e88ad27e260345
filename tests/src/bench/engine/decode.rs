//! Decoding through the engine between two runs of a bare loop of steps, and the engine's own time between the steps.

use super::{
    Rig,
    client::{Stream, read_until},
    figure::{Bar, Figure},
    usual,
};
use crate::{Result, bench::case::Case, host::request};
use std::time::Instant;
use tandem_engine::{Config, EngineHandle, Gap, Mixing};

/// Rows that decode together.
const ROWS: [usize; 4] = [1, 4, 8, 16];
/// Tokens of each row's prompt.
const PROMPT: usize = 128;
/// Tokens measured of each row.
const TOKENS: usize = 64;
/// Tokens of the first row before the last row has begun: prompts share some steps.
const AHEAD: usize = 8;
/// Least speed, of that of a loop that does nothing but steps.
const SPEED: f64 = 0.95;

/// Most of a step's time that the engine may take for itself; nothing is asked between few rows and many.
fn own(rows: usize) -> Bar {
    match rows {
        1 => Bar::AtMost(0.03),
        16 => Bar::AtMost(0.02),
        _ => Bar::None,
    }
}

/// The bare loop, the engine, the bare loop: a machine that gets slower meanwhile is as slow for both. Prompts take all of a step, so that rows begin together.
pub(super) fn measure(rig: &mut Rig) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mixing = Mixing::Packed(Gap::Any);
    rig.configured(Config { mixing, ..usual() }, |rig| {
        figures = figures_of(rig)?;
        Ok(())
    })?;
    Ok(figures)
}

fn figures_of(rig: &mut Rig) -> Result<Vec<Figure>> {
    let (mut speeds, mut owns) = (Vec::new(), Vec::new());
    for rows in ROWS {
        let case = Case::Batch { rows, prompt: PROMPT, tokens: TOKENS };
        let (mut speed, mut own_time) = (Vec::new(), Vec::new());
        // The first turn grows buffers; it does not count.
        for turn in 0..=rig.repeat {
            let before = rig.direct.run(case)?;
            let through = window(rig, rows)?;
            let after = rig.direct.run(case)?;
            if turn > 0 {
                speed.push(2.0 * through.speed / (before + after));
                own_time.push(through.own);
            }
        }
        let name = format!("decode, {rows} rows, of the bare loop's speed");
        speeds.push(Figure::new(name, "", speed, Bar::AtLeast(SPEED)));
        let name = format!("engine's own time, {rows} rows, of the step's");
        owns.push(Figure::new(name, "", own_time, own(rows)));
    }
    speeds.append(&mut owns);
    Ok(speeds)
}

/// While all rows decode.
struct Window {
    /// Tokens per second of all together.
    speed: f64,
    /// The engine's own time through that of the model's steps.
    own: f64,
}

fn window(rig: &mut Rig, rows: usize) -> Result<Window> {
    let total = TOKENS + AHEAD;
    let mut streams = Vec::new();
    for _ in 0..rows {
        let prompt = rig.prompt(PROMPT);
        streams.push(Stream::open(&rig.engine, request(prompt, total))?);
    }
    read_until(&mut streams, |all| all.iter().all(|stream| !stream.tokens.is_empty()))?;
    let before = rig.engine.metrics().times;
    read_until(&mut streams, |all| all.iter().any(|stream| stream.tokens.len() == total))?;
    let after = rig.engine.metrics().times;

    let begin = streams.iter().filter_map(|stream| stream.tokens.first()).map(|token| token.1).max();
    let end = streams.iter().filter_map(|stream| stream.tokens.get(total - 1)).map(|token| token.1).min();
    let (begin, end) = begin.zip(end).ok_or("no row decoded")?;
    let within = |time: Instant| begin < time && time <= end;
    let tokens = streams.iter().flat_map(|stream| &stream.tokens).filter(|token| within(token.1)).count();
    let inside = after.model.saturating_sub(before.model);
    let beside = (after.sampling + after.other).saturating_sub(before.sampling + before.other);
    finish(&rig.engine, streams)?;
    Ok(Window {
        speed: tokens as f64 / (end - begin).as_secs_f64(),
        own: beside.as_secs_f64() / inside.as_secs_f64(),
    })
}

/// Lets rows go, and waits until they are gone.
pub(super) fn finish(engine: &EngineHandle, streams: Vec<Stream>) -> Result<()> {
    drop(streams);
    super::await_idle(engine)
}
