//! What it costs that caches grow: the worst step beside the median one while four rows decode together.
//!
//! `cargo bench -p tandem-kv --bench growth [-- threads=2 tokens=2000 steps=600]`
//!
//! Four rows of one length are the worst case, as each comes to the end of its planes in the same step. A step appends
//! one token to each of 30 layers and attends over it; products of a model's weights, which would hide some of the
//! growth, are left out. How a step would do without any growth is its median.

use std::{error::Error, num::NonZeroUsize, rc::Rc, time::Instant};
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
const ROWS: usize = 4;
const QUERY_HEADS: usize = 9;
const SHAPE: LayerShape = LayerShape { heads: 3, key_width: 64, value_width: 64 };
/// Tokens of a row in a step while it is filled.
const CHUNK: usize = 500;

struct Settings {
    threads: NonZeroUsize,
    tokens: usize,
    steps: usize,
}

impl Settings {
    fn read() -> Outcome<Self> {
        let threads = NonZeroUsize::MIN.saturating_add(1);
        let mut settings = Self { threads, tokens: 2000, steps: 600 };
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            match argument.split_once('=') {
                Some(("threads", count)) => settings.threads = count.parse()?,
                Some(("tokens", count)) => settings.tokens = count.parse()?,
                Some(("steps", count)) => settings.steps = count.parse()?,
                _ => return Err(format!("not understood: {argument}").into()),
            }
        }
        Ok(settings)
    }
}

fn numbers(device: &Device, tokens: usize, heads: usize) -> Outcome<Tensor> {
    let count = tokens * heads * SHAPE.key_width;
    let values: Vec<f32> = (0..count).map(|i| (i * 7919 % 4093) as f32 / 2046.5 - 1.0).collect();
    Ok(device.upload_f32(&values, &[tokens, heads, SHAPE.key_width])?)
}

/// One step of `count` tokens in each row; attends where it is one.
fn step(rows: &mut RaggedRows, count: usize, [q, keys, values]: [&Tensor; 3]) -> Outcome<()> {
    let device = Rc::clone(rows.kit().device());
    let part = |row: usize| Part { slot: Slot(row as u32), tokens: row * count..(row + 1) * count };
    let how = Attend { precision: Precision::Fast, ..Attend::causal(0.125) };
    rows.begin(&(0..ROWS).map(part).collect::<Vec<_>>())?;
    for layer in 0..LAYERS {
        rows.append(layer, keys, values)?;
        if count == 1 {
            let views = rows.views(layer)?;
            let spans: Vec<_> = views.iter().enumerate().map(|(row, view)| view.span(row..row + 1)).collect();
            device.attend(q, &spans, &how)?;
        }
    }
    rows.commit(&[count; ROWS])?;
    Ok(())
}

fn measure(settings: &Settings, name: &str, scheme: Scheme) -> Outcome<()> {
    let device = tandem_backend_cpu::open(Options { threads: settings.threads, ..Options::default() })?;
    let request = Request { plain: Dtype::Bf16, encoding: Encoding::Uniform(scheme), start: 0 };
    let (blueprint, _) = Blueprint::new(vec![Kind::Full(SHAPE); LAYERS], &request)?;
    let kit = Kit::open(&device, blueprint)?;
    let mut rows = RaggedRows::new(Rc::clone(&kit));
    for row in 0..ROWS {
        rows.join(Slot(row as u32), RaggedRow::new(Rc::clone(&kit)))?;
    }
    let tensors = |count: usize| -> Outcome<[Tensor; 3]> {
        let of = |heads| numbers(&device, ROWS * count, heads);
        Ok([of(QUERY_HEADS)?, of(SHAPE.heads)?, of(SHAPE.heads)?])
    };
    for first in (0..settings.tokens).step_by(CHUNK) {
        let count = CHUNK.min(settings.tokens - first);
        step(&mut rows, count, tensors(count)?.each_ref())?;
    }
    let tensors = tensors(1)?;
    let mut times = Vec::new();
    for _ in 0..settings.steps {
        let start = Instant::now();
        step(&mut rows, 1, tensors.each_ref())?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, worst) = (at(0.5), at(1.0));
    println!("{name:10} {median:>9.2} {:>9.2} {worst:>9.2} {:>7.1}", at(0.99), worst / median);
    Ok(())
}

fn main() -> Outcome<()> {
    let settings = Settings::read()?;
    let Settings { threads, tokens, steps } = settings;
    println!("{ROWS} rows from {tokens} tokens on, {steps} steps, {threads} threads; ms for a step");
    println!("{:10} {:>9} {:>9} {:>9} {:>7}", "", "median", "p99", "worst", "times");
    measure(&settings, "bf16", Scheme::plain(Dtype::Bf16))?;
    measure(&settings, "affine 8", Scheme::affine(Affine { bits: 8, group: 64 }, Dtype::Bf16))
}
