//! What it costs to find out which tokens may come next, by the size of the vocabulary.
//!
//! `cargo bench -p tandem-spec --bench mask`
//!
//! Along an answer of each schema of the tests, whose tokens are drawn from the masks: the medians, and the slowest in a hundred.
//! Fails where a median is over 100 microseconds.

mod vocabulary;

use serde_json::Value;
use std::{
    hint::black_box,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tandem_contracts::{grammar::Progress, text::TokenId};
use tandem_spec::grammar::{Compiled, Compiler, Grammar};
use vocabulary::Synthetic;

const SIZES: [usize; 2] = [49_152, 151_936];
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

fn main() -> ExitCode {
    let schemas: Vec<Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    let mut code = ExitCode::SUCCESS;
    for size in SIZES {
        let begun = Instant::now();
        let compiler = Compiler::new(Arc::new(Synthetic::new(size))).expect("an end");
        let built = begun.elapsed();
        let mut all = Vec::new();
        for (index, entry) in schemas.iter().enumerate() {
            let compiled = compiler.compile(&Grammar::Schema(entry["schema"].clone())).expect("it compiles");
            all.extend((0..4).flat_map(|turn| times(&compiled, (4 * index + turn) as u64)));
        }
        all.sort_unstable();
        let (median, slow) = (all[all.len() / 2], all[all.len() * 99 / 100]);
        println!(
            "{size:>7} tokens: {median:>8.2?} for a mask, one in a hundred over {slow:.2?}, of {}; {built:.2?} to begin",
            all.len()
        );
        if median > BAR {
            eprintln!("over {BAR:?}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
