//! Exact products in plain Rust.

use super::{DEPTH, Stretch};
use crate::product::format::{Affine, LANES, Number};

pub(super) fn decode_affine(affine: Affine, block: &[u8], panel: &mut [f32]) {
    let (scales, biases) = affine.factors(block);
    for (input, weights) in panel.chunks_exact_mut(LANES).enumerate() {
        for (lane, weight) in weights.iter_mut().enumerate() {
            let code = f32::from(affine.code(block, lane, input));
            *weight = scales[lane].mul_add(code, biases[lane]);
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
