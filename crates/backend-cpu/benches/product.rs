//! Speed of linear products on the shapes of a small model (SmolLM2-135M, groups of 32).
//!
//! `cargo bench -p tandem-backend-cpu --bench product -- [FILTER] [isa=NAME] [threads=1,2] [rows=1,4,512]`
//!
//! Each weight is there as often as a model of 30 layers has it, so that one row finds it where decoding finds it,
//! in the outermost cache or in memory. One row is printed as GB of weights read in a second, beside a plain
//! read of the same bytes; several rows as GFLOP in a second; quantising as billions of inputs in a second. Figures are the median (and best) of runs that
//! alternate.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use half::f16;
use tandem_backend_cpu::isa::Isa;
use tandem_backend_cpu::memory::{Block, Memory};
use tandem_backend_cpu::pool::Pool;
use tandem_backend_cpu::product::{Part, Prepared, Values, Weight};

const GROUP: usize = 32;
const SAMPLES: usize = 9;

struct Shape {
    name: &'static str,
    rows: usize,
    width: usize,
    bits: u32,
    copies: usize,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "qkv", rows: 960, width: 576, bits: 4, copies: 30 },
    Shape { name: "attention out", rows: 576, width: 576, bits: 4, copies: 30 },
    Shape { name: "gate-up", rows: 3072, width: 576, bits: 4, copies: 30 },
    Shape { name: "down", rows: 576, width: 1536, bits: 4, copies: 30 },
    Shape { name: "head", rows: 49152, width: 576, bits: 8, copies: 1 },
];

/// What the command line asks for.
struct Options {
    filter: String,
    isas: Vec<Isa>,
    threads: Vec<usize>,
    rows: Vec<usize>,
}

fn numbers(list: &str) -> Result<Vec<usize>, String> {
    list.split(',').map(|number| number.parse().map_err(|_| list.to_owned())).collect()
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Self {
            filter: String::new(),
            isas: vec![Isa::detected()],
            threads: vec![1, 2],
            rows: vec![1, 2, 4, 8, 16, 64, 512],
        };
        for argument in std::env::args().skip(1) {
            match argument.split_once('=') {
                Some(("isa", "all")) => options.isas = Isa::available().collect(),
                Some(("isa", name)) => {
                    options.isas = vec![name.parse::<Isa>().map_err(|error| error.to_string())?];
                }
                Some(("threads", list)) => options.threads = numbers(list)?,
                Some(("rows", list)) => options.rows = numbers(list)?,
                // What cargo itself hands to benchmarks.
                None if argument == "--bench" => {}
                _ => options.filter = argument,
            }
        }
        Ok(options)
    }
}

/// Small numbers without a pattern.
fn noise(count: usize) -> impl Iterator<Item = u32> {
    (0..count as u32).map(|index| {
        let mixed = (index ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
        (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35)
    })
}

fn prepare(pool: &Pool, memory: &Memory, shape: &Shape) -> Vec<Prepared> {
    let codes: Vec<u32> = noise(shape.rows * shape.width * shape.bits as usize / 32).collect();
    let scales: Vec<f16> = noise(shape.rows * shape.width / GROUP)
        .map(|word| f16::from_f32(0.01 + (word >> 8) as f32 / (1 << 24) as f32 * 0.02))
        .collect();
    let biases: Vec<f16> = scales.iter().map(|scale| f16::from_f32(scale.to_f32() * -7.7)).collect();
    let (scales, biases) = (Values::F16(&scales), Values::F16(&biases));
    let weight = Weight::Affine { bits: shape.bits, group: GROUP, codes: &codes, scales, biases };
    let part = Part { rows: shape.rows, width: shape.width, weight };
    (0..shape.copies).map(|_| Prepared::new(pool, memory, &[part]).expect("a sound weight")).collect()
}

/// Reads as many bytes as the weights have, in the parts that a product would use.
fn read(pool: &Pool, blocks: &[Block]) {
    for block in blocks {
        let words = block.of::<u64>();
        let part = words.len().div_ceil(pool.threads());
        pool.run(pool.threads(), |index, _| {
            let words = &words[(index * part).min(words.len())..((index + 1) * part).min(words.len())];
            let mut sums = [0u64; 16];
            for line in words.chunks_exact(16) {
                for (sum, word) in sums.iter_mut().zip(line) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
        });
    }
}

/// One thing to time: a name, the work of one run, and that work in bytes or operations.
struct Candidate<'a> {
    name: String,
    run: Box<dyn FnMut() + 'a>,
    work: f64,
}

/// Seconds that this thread has had a processor: what one thread takes, however busy the machine is.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Unix, and the time is there to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds of one run each, median and best of alternating samples.
fn race(candidates: &mut [Candidate<'_>], threads: usize) -> Vec<(f64, f64)> {
    let mut samples = vec![Vec::new(); candidates.len()];
    for round in 0..=SAMPLES {
        for (candidate, samples) in candidates.iter_mut().zip(&mut samples) {
            let (start, processor) = (Instant::now(), processor_seconds());
            (candidate.run)();
            if round > 0 && threads == 1 {
                samples.push(processor_seconds() - processor);
            } else if round > 0 {
                samples.push(start.elapsed().as_secs_f64());
            }
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        (samples[samples.len() / 2], samples[0])
    };
    samples.into_iter().map(median).collect()
}

fn measure(shape: &Shape, isa: Isa, threads: usize, options: &Options) {
    let pool = Pool::new(NonZeroUsize::new(threads).expect("a thread"), isa).expect("a pool");
    let pool = &pool;
    let memory = Memory::default();
    let weights = &prepare(pool, &memory, shape);
    let bytes = weights[0].bytes();
    let blocks: Vec<Block> = (0..shape.copies)
        .map(|_| {
            let mut block = memory.keep(bytes).expect("memory");
            block.of_mut::<u8>().fill(1);
            block
        })
        .collect();
    let all = (bytes * shape.copies) as f64;
    let mut candidates =
        vec![Candidate { name: "read".into(), run: Box::new(|| read(pool, &blocks)), work: all }];
    for exact in [false, true] {
        for rows in options.rows.iter().copied().filter(|rows| !exact || matches!(rows, 1 | 512)) {
            let x: Vec<f32> = noise(rows * shape.width).map(|word| word as f32 / 2e9 - 1.0).collect();
            let mut out = memory.take(rows * shape.rows * size_of::<f32>()).expect("memory");
            let operations = 2.0 * (rows * shape.rows * shape.width) as f64;
            let copies = ((2e9 / operations) as usize).clamp(1, shape.copies);
            let work = if rows == 1 { all } else { operations * copies as f64 };
            let run = move || {
                let out = out.of_mut();
                for weight in &weights[..copies] {
                    let outcome = if exact {
                        weight.exact(pool, &x, rows, out)
                    } else {
                        weight.fast(pool, &x, rows, out)
                    };
                    outcome.expect("a product");
                }
            };
            let name = format!("{}{rows}", if exact { "exact " } else { "" });
            candidates.push(Candidate { name, run: Box::new(run), work });
        }
    }
    for rows in [1, 512] {
        let x: Vec<f32> = noise(rows * shape.width).map(|word| word as f32 / 2e9 - 1.0).collect();
        let run = move || {
            for _ in 0..1024 / rows {
                black_box(weights[0].quantise(pool, &x, rows).expect("quantised"));
            }
        };
        let work = (rows * shape.width * (1024 / rows)) as f64;
        candidates.push(Candidate { name: format!("quantise {rows}"), run: Box::new(run), work });
    }
    let seconds = race(&mut candidates, threads);
    print!("{:13} {isa} x{threads}", shape.name);
    for (candidate, (median, best)) in candidates.iter().zip(seconds) {
        let rate = |seconds: f64| candidate.work / seconds / 1e9;
        print!(" | {}: {:.1} ({:.1})", candidate.name, rate(median), rate(best));
    }
    println!();
}

fn main() {
    let options = match Options::read() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("not understood: {error}");
            std::process::exit(2);
        }
    };
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&options.filter)) {
        for isa in &options.isas {
            for threads in &options.threads {
                measure(shape, *isa, *threads, &options);
            }
        }
    }
}
