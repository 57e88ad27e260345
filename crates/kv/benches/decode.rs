//! What a row's tokens cost, by how they are stored: bytes, appends, and attention of one query over them.
//!
//! `cargo bench -p tandem-kv [-- threads=1,2 tokens=8192]`
//!
//! The model has 30 layers of 3 key heads, 9 query heads and a width of 64; each layer has planes of its own, so that
//! caches see what they would see. All candidates are alive at once and take turns, so that what else the machine does
//! falls on all of them; figures are medians of five such turns with the best and the worst, ratios are medians of the
//! ratios within a turn. One thread is timed by the processor's time that it had, where the system tells.

use std::{collections::BTreeMap, error::Error, num::NonZeroUsize, rc::Rc, time::Instant};
use tandem_backend_cpu::Options;
use tandem_contracts::{
    model::Slot,
    tensor::{Affine, Attend, Device, Dtype, Precision, Tensor},
};
use tandem_kv::{
    Blueprint, Kind, LayerShape,
    codec::Scheme,
    policy::{Encoding, Request},
    ragged::{Kit, RaggedRow, RaggedRows},
    rows::{Part, Rows},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LAYERS: usize = 30;
/// Of a candidate's only row.
const SLOT: Slot = Slot(0);
const QUERY_HEADS: usize = 9;
const SHAPE: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 64 };
/// Turns of which medians are taken.
const TURNS: usize = 5;
/// Tokens appended in a turn. The processor's time is told in steps of some milliseconds, so that a turn has to last.
const APPENDED: usize = 250;
/// Queries of every layer in a turn.
const ATTENDED: usize = 8;
/// Tokens of a step while the row is filled.
const CHUNK: usize = 512;

/// Plain bf16 first: what the others are compared with.
fn candidates() -> Vec<(&'static str, Scheme)> {
    let affine = |bits| Scheme::affine(Affine { bits, group: 64 }, Dtype::Bf16);
    vec![
        ("bf16", Scheme::plain(Dtype::Bf16)),
        ("f16", Scheme::plain(Dtype::F16)),
        ("f32", Scheme::plain(Dtype::F32)),
        ("affine 8", affine(8)),
        ("affine 4", affine(4)),
        ("k8v3", Scheme::turbo(8, 3)),
        ("k4v3", Scheme::turbo(4, 3)),
    ]
}

struct Settings {
    threads: Vec<usize>,
    tokens: usize,
}

impl Settings {
    fn read() -> Outcome<Self> {
        let mut settings = Self { threads: vec![1, 2], tokens: 8192 };
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            match argument.split_once('=') {
                Some(("threads", list)) => {
                    settings.threads = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                Some(("tokens", count)) => settings.tokens = count.parse()?,
                _ => return Err(format!("not understood: {argument}").into()),
            }
        }
        Ok(settings)
    }
}

/// Seconds: of the processor for one thread, where the system tells, else of the wall.
struct Clock {
    alone: bool,
    start: Instant,
    processor: Option<f64>,
}

impl Clock {
    fn start(threads: usize) -> Self {
        Self { alone: threads == 1, start: Instant::now(), processor: Self::processor() }
    }

    fn processor() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(text.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
    }

    fn seconds(&self) -> f64 {
        match (self.processor, Self::processor()) {
            (Some(start), Some(end)) if self.alone => end - start,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

/// A row of one scheme, and what was measured of it.
struct Candidate {
    name: &'static str,
    rows: RaggedRows,
    bytes: usize,
    attention: Vec<f64>,
    append: Vec<f64>,
    /// Bytes beyond the row's own while it took a step.
    extra: usize,
}

/// `[tokens, heads, width]` without a pattern, about normal in size.
fn numbers(device: &Device, tokens: usize, heads: usize, seed: u32) -> Outcome<Tensor> {
    let number = |i: u32| {
        let mixed = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
        (mixed >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    let count = tokens * heads * SHAPE.key_width;
    let values: Vec<f32> = (0..count as u32).map(number).collect();
    Ok(device.upload_f32(&values, &[tokens, heads, SHAPE.key_width])?)
}

impl Candidate {
    fn new(device: &Device, name: &'static str, scheme: Scheme, tokens: usize) -> Outcome<Self> {
        let request = Request { plain: Dtype::Bf16, encoding: Encoding::Uniform(scheme), start: 0 };
        let (blueprint, _) = Blueprint::new(vec![Kind::Full(SHAPE); LAYERS], &request)?;
        let kit = Kit::open(device, blueprint)?;
        let bytes = kit.blueprint().bytes(tokens + APPENDED);
        let mut rows = RaggedRows::new(Rc::clone(&kit));
        rows.join(SLOT, RaggedRow::new(kit))?;
        for first in (0..tokens).step_by(CHUNK) {
            let count = CHUNK.min(tokens - first);
            let keys = numbers(device, count, SHAPE.heads, first as u32)?;
            let values = numbers(device, count, SHAPE.heads, first as u32 + 1)?;
            write(&mut rows, &keys, &values)?;
            rows.commit(&[count])?;
        }
        Ok(Self { name, rows, bytes, attention: Vec::new(), append: Vec::new(), extra: 0 })
    }

    /// Seconds for one token in one layer, with what says whether it is finite; the row is as long afterwards as before.
    fn append(&mut self, threads: usize) -> Outcome<f64> {
        let (device, length) = (Rc::clone(self.rows.kit().device()), self.rows.tokens(SLOT)?);
        let (keys, values) = (numbers(&device, 1, SHAPE.heads, 5)?, numbers(&device, 1, SHAPE.heads, 6)?);
        let clock = Clock::start(threads);
        for _ in 0..APPENDED {
            write(&mut self.rows, &keys, &values)?;
            self.rows.sound()?;
            self.rows.commit(&[1])?;
        }
        let seconds = clock.seconds();
        self.rows.trim(SLOT, length)?;
        Ok(seconds / (APPENDED * LAYERS) as f64)
    }

    /// Seconds of one query's attention in one layer; the step is given up.
    fn attend(&mut self, threads: usize) -> Outcome<f64> {
        let device = Rc::clone(self.rows.kit().device());
        let q = numbers(&device, 1, QUERY_HEADS, 7)?;
        let (keys, values) = (numbers(&device, 1, SHAPE.heads, 8)?, numbers(&device, 1, SHAPE.heads, 9)?);
        let before = device.memory().active;
        device.reset_peak();
        write(&mut self.rows, &keys, &values)?;
        let views = (0..LAYERS).map(|layer| self.rows.views(layer)).collect::<Result<Vec<_>, _>>()?;
        let clock = Clock::start(threads);
        let how = Attend { precision: Precision::Fast, ..Attend::causal(0.125) };
        for view in (0..ATTENDED).flat_map(|_| views.iter().flatten()) {
            device.attend(&q, &[view.span(0..1)], &how)?;
        }
        let seconds = clock.seconds();
        self.extra = device.memory().peak.saturating_sub(before);
        drop(views);
        self.rows.roll_back();
        Ok(seconds / (ATTENDED * LAYERS) as f64)
    }
}

/// Opens a step and appends the same tokens to every layer.
fn write(rows: &mut RaggedRows, keys: &Tensor, values: &Tensor) -> Outcome<()> {
    rows.begin(&[Part { slot: SLOT, tokens: 0..keys.shape()[0] }])?;
    (0..LAYERS).try_for_each(|layer| rows.append(layer, keys, values))?;
    Ok(())
}

/// The median of some figures, with the best and the worst.
fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}

/// How many times as fast as the first, turn by turn.
fn ratio(first: &[f64], own: &[f64]) -> f64 {
    spread(&first.iter().zip(own).map(|(first, own)| first / own).collect::<Vec<_>>()).0
}

fn measure(threads: usize, tokens: usize) -> Outcome<()> {
    let count = NonZeroUsize::new(threads).ok_or("no threads")?;
    let device = tandem_backend_cpu::open(Options { threads: count, ..Options::default() })?;
    let mut all = candidates()
        .into_iter()
        .map(|(name, scheme)| Candidate::new(&device, name, scheme, tokens))
        .collect::<Outcome<Vec<_>>>()?;
    for turn in 0..=TURNS {
        for candidate in &mut all {
            let (attention, append) = (candidate.attend(threads)?, candidate.append(threads)?);
            // The first turn warms up.
            if turn > 0 {
                candidate.attention.push(attention);
                candidate.append.push(append);
            }
        }
    }
    println!("\n{tokens} tokens, {threads} threads; us for one layer: median (best, worst)");
    println!("{:10} {:>23} {:>9} {:>21} {:>10}", "", "attention", "x bf16", "append a token", "extra");
    for candidate in &all {
        let show = |figures: &[f64]| {
            let (median, best, worst) = spread(figures);
            format!("{:.1} ({:.1}, {:.1})", median * 1e6, best * 1e6, worst * 1e6)
        };
        println!(
            "{:10} {:>23} {:>9.2} {:>21} {:>9.2}%",
            candidate.name,
            show(&candidate.attention),
            ratio(&all[0].attention, &candidate.attention),
            show(&candidate.append),
            100.0 * candidate.extra as f64 / candidate.bytes as f64
        );
    }
    Ok(())
}

fn bytes() -> Outcome<()> {
    println!("{LAYERS} layers of {} heads, {} wide; bytes of a token", SHAPE.heads, SHAPE.key_width);
    let bytes: BTreeMap<_, _> = candidates()
        .into_iter()
        .map(|(name, scheme)| Ok((name, LAYERS * scheme.bytes_per_token(SHAPE)?)))
        .collect::<Outcome<_>>()?;
    for (name, own) in candidates().iter().map(|(name, _)| (name, bytes[name])) {
        println!("{name:10} {own:>6}, {:.2} times smaller than bf16", bytes["bf16"] as f64 / own as f64);
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let settings = Settings::read()?;
    bytes()?;
    settings.threads.iter().try_for_each(|&threads| measure(threads, settings.tokens))
}
