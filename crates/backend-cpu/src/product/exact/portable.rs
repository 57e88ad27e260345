//! Exact products in plain Rust.

use super::{DEPTH, Stretch};
use crate::product::format::{Affine, Code, LANES, Number};

pub(super) fn decode_affine(affine: Affine, block: &[u8], panel: &mut [f32]) {
    let (scales, biases) = affine.factors(block);
    // The weights of one input from one byte of each of a line's words.
    let put = |weights: &mut [f32], line: &[u8], byte: usize, code: fn(u8) -> u8| {
        for (lane, weight) in weights.iter_mut().enumerate() {
            let code = f32::from(code(line[lane * 4 + byte]));
            *weight = scales[lane].mul_add(code, biases[lane]);
        }
    };
    let lines = block[..affine.code_bytes()].chunks_exact(LANES * 4);
    match affine.code {
        Code::Nibble => {
            for (line, weights) in lines.zip(panel.chunks_exact_mut(LANES * 8)) {
                for (input, weights) in weights.chunks_exact_mut(LANES).enumerate() {
                    put(
                        weights,
                        line,
                        input % 4,
                        if input < 4 { |byte| byte & 15 } else { |byte| byte >> 4 },
                    );
                }
            }
        }
        Code::Byte => {
            for (line, weights) in lines.zip(panel.chunks_exact_mut(LANES * 4)) {
                for (input, weights) in weights.chunks_exact_mut(LANES).enumerate() {
                    put(weights, line, input, |byte| byte);
                }
            }
        }
    }
}

pub(super) fn decode_dense(number: Number, bytes: &[u8], panel: &mut [f32]) {
    for (index, weight) in panel.iter_mut().enumerate() {
        *weight = number.read(bytes, index);
    }
}

pub(super) fn accumulate(stretch: Stretch<'_>) {
    let Stretch { panel, tiles, depth, x, stride, rows, sums } = stretch;
    for (row, sums) in sums.chunks_exact_mut(tiles * LANES).enumerate().take(rows) {
        let x = &x[row * stride..][..depth];
        for (panel, sums) in panel.chunks_exact(DEPTH * LANES).zip(sums.chunks_exact_mut(LANES)) {
            for (x, weights) in x.iter().zip(panel.chunks_exact(LANES)) {
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = x.mul_add(*weight, *sum);
                }
            }
        }
    }
}
