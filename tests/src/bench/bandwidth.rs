//! How fast this machine reads memory: the ceiling of decoding, whose every token reads all weights once.

use std::{hint::black_box, num::Wrapping, thread, time::Instant};

/// Passes over the buffer; the best one counts, as every disturbance only slows.
const PASSES: usize = 5;

/// Bytes per second that `threads` threads read together, each its share of a buffer of `bytes` bytes.
pub fn read(bytes: usize, threads: usize) -> f64 {
    let words: Vec<u64> = (0..bytes as u64 / 8).collect();
    let share = words.len().div_ceil(threads.max(1)).max(1);
    let pass = || {
        let start = Instant::now();
        thread::scope(|scope| {
            words.chunks(share).for_each(|words| drop(scope.spawn(move || black_box(sum(words)))))
        });
        size_of_val(&words[..]) as f64 / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [Wrapping(0u64); 32];
    for block in words.chunks_exact(lanes.len()) {
        lanes.iter_mut().zip(block).for_each(|(lane, word)| *lane += word);
    }
    lanes.iter().sum::<Wrapping<u64>>().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_any_size_is_read() {
        assert_eq!(sum(&[1; 64]), 64);
        assert!(read(1 << 16, 3) > 0.0);
    }
}
