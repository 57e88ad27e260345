//! How fast this machine reads memory: the ceiling of decoding, whose every token reads all weights once.
//!
//! Each thread reads a share that it alone wrote, in huge pages where the system gives them, as several streams at
//! once, again and again. All threads begin each pass together. The best pass counts, as every disturbance only slows.

use crate::Result;
use std::{
    hint::{self, black_box},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use tandem_backend_cpu::memory::Memory;

/// Passes over the memory.
const PASSES: usize = 40;

/// Places in a share that are read in turns: one place alone leaves a core waiting.
const STREAMS: usize = 4;

/// Words of a cache line.
const LINE: usize = 8;

/// Bytes per second that `threads` threads read together, each its share of `bytes` bytes.
///
/// # Errors
/// The memory is not there.
pub fn read(bytes: usize, threads: usize) -> Result<f64> {
    let threads = threads.max(1);
    let share = bytes.div_ceil(threads).next_multiple_of(8 * LINE * STREAMS);
    let gate = Gate { threads, arrived: AtomicUsize::new(0) };
    let passes = thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(|| read_share(share, &gate))).collect();
        let join = |reader: thread::ScopedJoinHandle<'_, Result<Vec<Duration>>>| {
            reader.join().unwrap_or_else(|_| Err("a thread that reads memory panicked".into()))
        };
        readers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    // A pass has ended when its slowest thread has.
    let slowest = |pass: usize| passes.iter().map(|times| times[pass]).max().unwrap_or_default();
    let best = (0..PASSES).map(slowest).min().unwrap_or_default();
    Ok((share * threads) as f64 / best.as_secs_f64())
}

fn read_share(bytes: usize, gate: &Gate) -> Result<Vec<Duration>> {
    let block = Memory::default().keep(bytes);
    let mut times = Vec::with_capacity(PASSES);
    // Whoever has no memory still passes the gates, or the others would wait for ever.
    let words = block.map(|mut block| {
        block.of_mut::<u64>().fill(1);
        block
    });
    for pass in 0..PASSES {
        gate.pass(pass);
        let start = Instant::now();
        if let Ok(block) = &words {
            black_box(sum(black_box(block.of::<u64>())));
        }
        times.push(start.elapsed());
    }
    words.map(|_| times).map_err(Into::into)
}

/// The sum of all words of whole lines in all streams.
fn sum(words: &[u64]) -> u64 {
    let length = words.len() / STREAMS / LINE * LINE;
    let (a, b) = words[..STREAMS * length].split_at(2 * length);
    let ((a, b), (c, d)) = (a.split_at(length), b.split_at(length));
    let mut lanes = [0u64; STREAMS * LINE];
    let lines =
        a.chunks_exact(LINE).zip(b.chunks_exact(LINE)).zip(c.chunks_exact(LINE).zip(d.chunks_exact(LINE)));
    for ((a, b), (c, d)) in lines {
        for lane in 0..LINE {
            lanes[lane] = lanes[lane].wrapping_add(a[lane]);
            lanes[LINE + lane] = lanes[LINE + lane].wrapping_add(b[lane]);
            lanes[2 * LINE + lane] = lanes[2 * LINE + lane].wrapping_add(c[lane]);
            lanes[3 * LINE + lane] = lanes[3 * LINE + lane].wrapping_add(d[lane]);
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

/// Lets threads through together, pass after pass. They wait awake: sleep would cost part of a pass.
struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

impl Gate {
    fn pass(&self, pass: usize) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while self.arrived.load(Ordering::Acquire) < (pass + 1) * self.threads {
            hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_whole_lines_is_read_once() {
        let words: Vec<u64> = (1..=64).collect();
        assert_eq!(sum(&words), 64 * 65 / 2);
        // 40 words are one line in each of four streams; the last eight words are in none.
        assert_eq!(sum(&words[..40]), 32 * 33 / 2);
    }

    #[test]
    fn a_share_of_any_size_is_read() {
        assert!(read(1, 1).unwrap() > 0.0);
        assert!(read((1 << 16) + 3, 3).unwrap() > 0.0);
    }
}
