//! What it costs to find out which tokens may come next, by the size of the vocabulary.
//!
//! `TANDEM_VOCABULARY=~/.cache/tandem/qwen-vocabulary/dashscope/resources/qwen.tiktoken cargo bench -p tandem-spec --bench mask`,
//! behind a `cargo xtask bench spec`, which fetches that file.
//!
//! Along an answer of each schema of the tests, whose tokens are drawn from the masks: the medians, and the slowest in a hundred.
//! Fails where a median is over 100 microseconds.

mod vocabulary;

use serde_json::Value;
use std::{
    env,
    hint::black_box,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tandem_contracts::{grammar::Progress, text::TokenId};
use tandem_spec::grammar::{Compiled, Compiler, Grammar};
use vocabulary::Ranks;

/// Tokens that are learnt, and those of the table: half the vocabularies of these days, and Qwen's.
const SIZES: [(usize, usize); 2] = [(49_000, 49_152), (151_643, 151_936)];
const SCHEMAS: &str = include_str!("../tests/data/apis.json");
/// Tokens of an answer.
const LONGEST: usize = 200;
const BAR: Duration = Duration::from_micros(100);

/// Times of the masks along an answer.
fn times(compiled: &Compiled, seed: u64) -> Vec<Duration> {
    let (mut matcher, mut state, mut times) = (compiled.matcher(), seed, Vec::new());
    while times.len() < LONGEST {
        let begun = Instant::now();
        let mask = black_box(matcher.allowed().expect("no limit is met"));
        times.push(begun.elapsed());
        let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let ids = (0..mask.len() as TokenId * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1);
        let token =
            ids.clone().nth((state >> 33) as usize % count.max(1) as usize).expect("something may come");
        if matcher.accept(token).expect("it may come") == Progress::Complete {
            break;
        }
    }
    times
}

/// Whether the median holds the bar.
fn measure(file: &Path, ranks: usize, size: usize) -> Result<bool, String> {
    let schemas: Vec<Value> = serde_json::from_str(SCHEMAS).map_err(|error| error.to_string())?;
    let vocabulary = Arc::new(Ranks::read(file, ranks, size)?);
    let begun = Instant::now();
    let compiler = Compiler::new(vocabulary).map_err(|error| error.to_string())?;
    let built = begun.elapsed();
    let mut all = Vec::new();
    for (index, entry) in schemas.iter().enumerate() {
        let compiled = compiler.compile(&Grammar::Schema(entry["schema"].clone()));
        let compiled = compiled.map_err(|error| error.to_string())?;
        all.extend((0..4).flat_map(|turn| times(&compiled, (4 * index + turn) as u64)));
    }
    all.sort_unstable();
    let (median, slow) = (all[all.len() / 2], all[all.len() * 99 / 100]);
    println!(
        "{size:>7} tokens: {median:>8.2?} for a mask, one in a hundred over {slow:.2?}, of {}; {built:.2?} to begin",
        all.len()
    );
    Ok(median <= BAR)
}

fn main() -> ExitCode {
    let Some(file) = env::var_os("TANDEM_VOCABULARY").map(PathBuf::from) else {
        println!("nothing is measured: TANDEM_VOCABULARY names no file of ranks");
        return ExitCode::SUCCESS;
    };
    let held = |(ranks, size)| {
        measure(&file, ranks, size).unwrap_or_else(|error| {
            eprintln!("{error}");
            false
        })
    };
    // Both are measured, also where the first is over its bar.
    match SIZES.map(held) {
        [true, true] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
