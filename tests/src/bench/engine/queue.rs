//! What waiting requests cost the rows that run.

use super::{
    Rig,
    client::{Stream, read_until},
    decode::finish,
    figure::{Bar, Figure},
};
use crate::{Result, host::request};

/// Few waiting requests, and many.
const WAITING: [usize; 2] = [20, 2000];
/// Tokens of every prompt.
const PROMPT: usize = 8;
/// Tokens of a row before the count begins, so that the waiting ones have been taken in.
const BEFORE: usize = 4;
/// Tokens of a row that count.
const TOKENS: usize = 32;
/// Most that a step with many waiting may take, of one with few: as much as steps scatter on a shared machine.
const STEP: f64 = 1.05;

/// Few waiting, many waiting, few waiting, many waiting.
pub(super) fn measure(rig: &mut Rig) -> Result<Vec<Figure>> {
    let (mut steps, mut owns) = (Vec::new(), Vec::new());
    for _ in 0..rig.repeat {
        let [few, many] = WAITING;
        let (few, many) = (with(rig, few)?, with(rig, many)?);
        steps.push(many.step / few.step);
        owns.push(many.own / few.own);
    }
    let [few, many] = WAITING;
    let name = |what: &str| format!("{what}, {many} waiting, of that with {few}");
    Ok(vec![
        Figure::new(name("a step"), "", steps, Bar::AtMost(STEP)),
        Figure::new(name("engine's own time"), "", owns, Bar::None),
    ])
}

/// Seconds of a step.
struct Cost {
    step: f64,
    own: f64,
}

fn with(rig: &mut Rig, waiting: usize) -> Result<Cost> {
    let open = |rig: &mut Rig, tokens| {
        let prompt = rig.prompt(PROMPT);
        Stream::open(&rig.engine, request(prompt, tokens))
    };
    let full = BEFORE + TOKENS;
    let rows = rig.rows;
    let mut streams = (0..rows).map(|_| open(rig, 8 * full)).collect::<Result<Vec<_>>>()?;
    read_until(&mut streams, |all| all.iter().all(|stream| !stream.tokens.is_empty()))?;
    let queued = (0..waiting).map(|_| open(rig, 1)).collect::<Result<Vec<_>>>()?;
    let reach = |streams: &mut [Stream], count: usize| {
        let goal = streams[0].tokens.len() + count;
        read_until(streams, |all| all[0].tokens.len() >= goal)
    };
    reach(&mut streams, BEFORE)?;
    let before = rig.engine.metrics();
    reach(&mut streams, TOKENS)?;
    let after = rig.engine.metrics();
    if after.queued != waiting {
        return Err(format!("{} of {waiting} requests wait", after.queued).into());
    }
    // Those that wait go first, so that none of them starts.
    drop(queued);
    finish(&rig.engine, streams)?;

    let steps = (after.steps - before.steps) as f64;
    let (from, to) = (before.times, after.times);
    let own = (to.sampling + to.other).saturating_sub(from.sampling + from.other).as_secs_f64();
    let model = to.model.saturating_sub(from.model).as_secs_f64();
    Ok(Cost { step: (model + own) / steps, own: own / steps })
}
