//! Speed of linear products on the shapes of a small model (SmolLM2-135M).
//!
//! `cargo bench -p tandem-backend-cpu --bench product -- [FILTER] [isa=NAME,...|all] [threads=1,2] [rows=1,4,512]
//! [group=32]`
//!
//! Each weight is there as often as a model of 30 layers has it, so that one row finds it where decoding finds it,
//! in the outermost cache or in memory. One row is printed as GB of weights read in a second, beside a plain
//! read of the same bytes; several rows as GFLOP in a second; quantising as billions of inputs in a second. Figures are
//! the median (and best) of runs that alternate.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use half::{bf16, f16};
use tandem_backend_cpu::isa::Isa;
use tandem_backend_cpu::memory::{Block, Memory};
use tandem_backend_cpu::pool::Pool;
use tandem_backend_cpu::product::{Part, Prepared, Values, Weight};

const SAMPLES: usize = 9;

struct Shape {
    name: &'static str,
    rows: usize,
    width: usize,
    bits: u32,
    copies: usize,
}

/// Bits of a weight in bf16, without codes.
const DENSE: u32 = 16;

const SHAPES: [Shape; 6] = [
    Shape { name: "qkv", rows: 960, width: 576, bits: 4, copies: 30 },
    Shape { name: "attention out", rows: 576, width: 576, bits: 4, copies: 30 },
    Shape { name: "gate-up", rows: 3072, width: 576, bits: 4, copies: 30 },
    Shape { name: "down", rows: 576, width: 1536, bits: 4, copies: 30 },
    Shape { name: "dense gate-up", rows: 3072, width: 576, bits: DENSE, copies: 30 },
    Shape { name: "head", rows: 49152, width: 576, bits: 8, copies: 1 },
];

/// What the command line asks for.
struct Options {
    filter: String,
    isas: Vec<Isa>,
    threads: Vec<usize>,
    rows: Vec<usize>,
    group: usize,
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
            group: 32,
        };
        for argument in std::env::args().skip(1) {
            match argument.split_once('=') {
                Some(("isa", "all")) => options.isas = Isa::available().collect(),
                Some(("isa", list)) => {
                    let isa = |name: &str| name.parse::<Isa>().map_err(|error| error.to_string());
                    options.isas = list.split(',').map(isa).collect::<Result<_, _>>()?;
                }
                Some(("threads", list)) => options.threads = numbers(list)?,
                Some(("rows", list)) => options.rows = numbers(list)?,
                Some(("group", size)) => options.group = size.parse().map_err(|_| size.to_owned())?,
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

fn prepare(pool: &Pool, memory: &Memory, shape: &Shape, group: usize) -> Vec<Prepared> {
    let (rows, width, bits) = (shape.rows, shape.width, shape.bits);
    let prepare = |weight| -> Vec<Prepared> {
        let part = Part { rows, width, weight };
        (0..shape.copies).map(|_| Prepared::new(pool, memory, &[part]).expect("a sound weight")).collect()
    };
    if bits == DENSE {
        let weights: Vec<bf16> =
            noise(rows * width).map(|word| bf16::from_f32(word as f32 / 2e9 - 1.0)).collect();
        return prepare(Weight::Dense(Values::Bf16(&weights)));
    }
    let codes: Vec<u32> = noise(rows * width * bits as usize / 32).collect();
    let scales: Vec<f16> = noise(rows * width / group)
        .map(|word| f16::from_f32(0.01 + (word >> 8) as f32 / (1 << 24) as f32 * 0.02))
        .collect();
    let biases: Vec<f16> = scales.iter().map(|scale| f16::from_f32(scale.to_f32() * -7.7)).collect();
    let (scales, biases) = (Values::F16(&scales), Values::F16(&biases));
    prepare(Weight::Affine { bits, group, codes: &codes, scales, biases })
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

/// One thing to time: where its figure goes in the table, the work of one run in billions, and the run.
struct Candidate<'a> {
    line: String,
    column: String,
    work: f64,
    run: Box<dyn FnMut() + 'a>,
}

/// Seconds that this thread has had a processor: what one thread takes, however busy the machine is.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Unix, and the time is there to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Billions of work in a second, median and best of alternating samples.
fn race(candidates: &mut [Candidate<'_>], threads: usize) -> Vec<(f64, f64)> {
    let mut samples = vec![Vec::new(); candidates.len()];
    for round in 0..=SAMPLES {
        for (candidate, samples) in candidates.iter_mut().zip(&mut samples) {
            let (start, processor) = (Instant::now(), processor_seconds());
            (candidate.run)();
            let seconds =
                if threads == 1 { processor_seconds() - processor } else { start.elapsed().as_secs_f64() };
            if round > 0 {
                samples.push(candidate.work / seconds);
            }
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        (samples[samples.len() / 2], samples[samples.len() - 1])
    };
    samples.into_iter().map(median).collect()
}

/// A shape's weights and what is needed to use them.
struct Subject<'a> {
    shape: &'a Shape,
    weights: Vec<Prepared>,
    memory: Memory,
}

impl Subject<'_> {
    /// Gigabytes of all its weights.
    fn gigabytes(&self) -> f64 {
        self.weights.iter().map(Prepared::bytes).sum::<usize>() as f64 / 1e9
    }

    fn product<'a>(&'a self, pool: &'a Pool, rows: usize, exact: bool) -> Candidate<'a> {
        let shape = self.shape;
        let x: Vec<f32> = noise(rows * shape.width).map(|word| word as f32 / 2e9 - 1.0).collect();
        let mut out = self.memory.take(rows * shape.rows * size_of::<f32>()).expect("memory");
        let operations = 2e-9 * (rows * shape.rows * shape.width) as f64;
        let copies = ((2.0 / operations) as usize).clamp(1, shape.copies);
        let (unit, work) =
            if rows == 1 { ("GB/s", self.gigabytes()) } else { ("GF/s", operations * copies as f64) };
        let run = move || {
            for weight in &self.weights[..copies] {
                let out = out.of_mut();
                let outcome =
                    if exact { weight.exact(pool, &x, rows, out) } else { weight.fast(pool, &x, rows, out) };
                outcome.expect("a product");
            }
        };
        let line = format!("{}{rows} rows, {unit}", if exact { "exact " } else { "" });
        Candidate { line, column: pool.isa().to_string(), work, run: Box::new(run) }
    }

    fn quantising<'a>(&'a self, pool: &'a Pool, rows: usize) -> Candidate<'a> {
        let x: Vec<f32> = noise(rows * self.shape.width).map(|word| word as f32 / 2e9 - 1.0).collect();
        let turns = 1024 / rows;
        let run = move || {
            for _ in 0..turns {
                black_box(self.weights[0].quantise(pool, &x, rows).expect("quantised"));
            }
        };
        let line = format!("quantise {rows} rows, G/s");
        let work = 1e-9 * (turns * rows * self.shape.width) as f64;
        Candidate { line, column: pool.isa().to_string(), work, run: Box::new(run) }
    }
}

fn measure(shape: &Shape, threads: usize, options: &Options) {
    let pool = |isa: &Isa| {
        let threads = NonZeroUsize::new(threads).expect("a thread");
        Pool::new(threads, *isa).expect("a pool")
    };
    let pools: Vec<Pool> = options.isas.iter().map(pool).collect();
    let memory = Memory::default();
    let weights = prepare(&pools[0], &memory, shape, options.group);
    let subject = Subject { shape, weights, memory };
    let plain: Vec<Block> = subject
        .weights
        .iter()
        .map(|weight| {
            let mut block = subject.memory.keep(weight.bytes()).expect("memory");
            block.of_mut::<u8>().fill(1);
            block
        })
        .collect();
    let mut candidates = Vec::new();
    let run = Box::new(|| read(&pools[0], &plain));
    let column = pools[0].isa().to_string();
    candidates.push(Candidate { line: "plain read, GB/s".into(), column, work: subject.gigabytes(), run });
    for rows in &options.rows {
        candidates.extend(pools.iter().map(|pool| subject.product(pool, *rows, false)));
        if matches!(rows, 1 | 512) && shape.bits != DENSE {
            candidates.extend(pools.iter().map(|pool| subject.product(pool, *rows, true)));
            candidates.extend(pools.iter().map(|pool| subject.quantising(pool, *rows)));
        }
    }
    let rates = race(&mut candidates, threads);
    println!("{}, {} x {}, {} threads: median (best)", shape.name, shape.rows, shape.width, threads);
    for (index, (candidate, (median, best))) in candidates.iter().zip(rates).enumerate() {
        if index == 0 || candidates[index - 1].line != candidate.line {
            print!("{}  {:24}", if index == 0 { "" } else { "\n" }, candidate.line);
        }
        print!(" {}: {median:7.1} ({best:7.1})", candidate.column);
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
    let wanted =
        |shape: &&Shape| shape.name.contains(&options.filter) && shape.width.is_multiple_of(options.group);
    for shape in SHAPES.iter().filter(wanted) {
        for threads in &options.threads {
            measure(shape, *threads, &options);
        }
    }
}
