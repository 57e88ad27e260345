//! A long prompt that arrives while other rows decode: what it costs them, and what they cost it.

use super::{
    Rig,
    client::{Stream, read_until},
    decode::finish,
    figure::{Bar, Figure, quantile},
    usual,
};
use crate::{Result, bench::report::median, host::request};
use tandem_engine::{Config, Mixing};

/// Tokens of the prompt that arrives.
const PROMPT: usize = 2048;
/// Rows that decode.
const ROWS: usize = 4;
/// Tokens of each of their prompts.
const SHORT: usize = 128;
/// Tokens of each before the prompt arrives.
const BEFORE: usize = 48;
/// More than they get while it is processed.
const MOST: usize = 4096;
/// Most that all but one in a hundred gaps between tokens may be, of the undisturbed median.
const GAP: f64 = 4.0;
/// Most time to the prompt's first token, of that on an idle device.
const FIRST: f64 = 2.5;

/// Ratios of one arrival.
struct Arrival {
    /// The 99th percentile of gaps.
    usual: f64,
    worst: f64,
    first: f64,
}

/// The prompt alone, then amid rows, in turns; the same where steps carry either prompts or decoding rows.
pub(super) fn measure(rig: &mut Rig) -> Result<Vec<Figure>> {
    let packed = turns(rig)?;
    let mut alternating = Vec::new();
    rig.configured(Config { mixing: Mixing::Alternating, ..usual() }, |rig| {
        alternating = turns(rig)?;
        Ok(())
    })?;
    let mut figures = figures("", &packed, [Bar::AtMost(GAP), Bar::None, Bar::AtMost(FIRST)]);
    figures.append(&mut self::figures(", alternating", &alternating, [Bar::None; 3]));
    Ok(figures)
}

/// The first turn fills the store and does not count.
fn turns(rig: &mut Rig) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    for turn in 0..=rig.repeat {
        let alone = alone(rig)?;
        let arrival = amid(rig, alone)?;
        arrivals.extend((turn > 0).then_some(arrival));
    }
    Ok(arrivals)
}

fn figures(how: &str, arrivals: &[Arrival], bars: [Bar; 3]) -> Vec<Figure> {
    let [usual, worst, first] = bars;
    let figure = |name: &str, of: fn(&Arrival) -> f64, bar| {
        let values = arrivals.iter().map(of).collect();
        Figure::new(format!("prompt amid {ROWS} rows{how}: {name}"), "", values, bar)
    };
    vec![
        figure("99th percentile of gaps, of the usual gap", |it| it.usual, usual),
        figure("worst gap, of the usual gap", |it| it.worst, worst),
        figure("first token, of that alone", |it| it.first, first),
    ]
}

/// Seconds to the first token on an idle device.
fn alone(rig: &mut Rig) -> Result<f64> {
    let prompt = rig.prompt(PROMPT);
    let mut streams = vec![Stream::open(&rig.engine, request(prompt, 1))?];
    read_until(&mut streams, |all| all[0].outcome.is_some())?;
    let first = streams[0].first()?;
    finish(&rig.engine, streams)?;
    Ok(first)
}

fn amid(rig: &mut Rig, alone: f64) -> Result<Arrival> {
    let mut streams = Vec::new();
    for _ in 0..ROWS {
        let prompt = rig.prompt(SHORT);
        streams.push(Stream::open(&rig.engine, request(prompt, MOST))?);
    }
    read_until(&mut streams, |all| all.iter().all(|stream| stream.tokens.len() > BEFORE))?;
    let prompt = rig.prompt(PROMPT);
    streams.push(Stream::open(&rig.engine, request(prompt, 1))?);
    read_until(&mut streams, |all| !all[ROWS].tokens.is_empty())?;

    let begun = streams[ROWS].begun;
    let gaps = streams[..ROWS].iter().flat_map(|stream| stream.tokens.windows(2));
    let gaps = gaps.map(|pair| (pair[1].1 > begun, (pair[1].1 - pair[0].1).as_secs_f64()));
    let (disturbed, undisturbed): (Vec<_>, Vec<_>) = gaps.partition(|(disturbed, _)| *disturbed);
    let seconds = |gaps: Vec<(bool, f64)>| gaps.into_iter().map(|(_, gap)| gap).collect::<Vec<_>>();
    let (disturbed, undisturbed) = (seconds(disturbed), seconds(undisturbed));
    let usual = median(&undisturbed).ok_or("no row decoded before the prompt")?;
    let most = |share| quantile(&disturbed, share).ok_or("no row decoded beside the prompt");
    let arrival = Arrival {
        usual: most(0.99)? / usual,
        worst: most(1.0)? / usual,
        first: streams[ROWS].first()? / alone,
    };
    finish(&rig.engine, streams)?;
    Ok(arrival)
}
