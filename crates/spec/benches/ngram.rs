//! What a proposal costs, by the length of the history.
//!
//! `cargo bench -p tandem-spec --bench ngram`
//!
//! The history is that of a text that repeats itself now and then, over a vocabulary of 49,152. Medians of 1,000 turns, each
//! of one token and one proposal; fails where a median is over 20 microseconds.

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};
use tandem_contracts::text::TokenId;
use tandem_spec::ngram::{Past, Runs};

const LENGTHS: [usize; 3] = [1_000, 10_000, 100_000];
const TURNS: usize = 1_000;
const BAR: Duration = Duration::from_micros(20);

/// Words of a fixed sequence, of which every fourth hundred stood before.
fn history(length: usize) -> Vec<TokenId> {
    let mut state = 1_u64;
    let mut history: Vec<TokenId> = Vec::with_capacity(length);
    while history.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = history.len();
        let copied = (at / 100 % 4 == 3).then(|| history[at - 300]);
        history.push(copied.unwrap_or((state >> 33) as TokenId % 49_152));
    }
    history
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for length in LENGTHS {
        let history = history(length + TURNS);
        let (before, after) = history.split_at(length);
        let begun = Instant::now();
        let mut past = Past::new(Runs::default(), before);
        let built = begun.elapsed();
        let mut times = Vec::with_capacity(TURNS);
        for token in after {
            let begun = Instant::now();
            past.extend(&[*token]);
            black_box(past.propose(10));
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let median = times[TURNS / 2];
        println!(
            "{length:>7} tokens: {median:>8.2?} for a token and a proposal, the slowest {:.2?}, {built:.2?} to begin",
            times[TURNS - 1]
        );
        if median > BAR {
            eprintln!("over {BAR:?}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
