//! Fast products in plain Rust.

use std::ops::Range;

use super::Fast;
use crate::product::format::{Affine, Code, LANES};
use crate::product::quantised::BLOCK_ROWS;

/// # Safety
///
/// As [`Fast::run`].
pub(super) unsafe fn run(product: &Fast<'_>, tiles: Range<usize>, block: usize) {
    // SAFETY: the caller's promise.
    unsafe { run_with(product, tiles, block, dots) }
}

/// The same with another way to the integer products of a block and a group, high parts and then low ones.
///
/// # Safety
///
/// As [`Fast::run`].
#[inline]
pub(super) unsafe fn run_with(
    product: &Fast<'_>,
    tiles: Range<usize>,
    block: usize,
    dots: impl Fn(Affine, &[u8], &[i8]) -> [i32; LANES],
) {
    let affine = product.affine;
    let rows = product.input.block(block);
    for tile in tiles {
        let weights = product.blocks(tile..tile + 1);
        for row in 0..rows.rows {
            let mut sums = [0.0; LANES];
            for (group, block) in weights.chunks_exact(affine.block_bytes()).enumerate() {
                let codes = &rows.codes[(group * rows.rows + row) * 2 * affine.group..][..2 * affine.group];
                let factors = &rows.factors[group * 2 * rows.rows + row..];
                let (d, d_sum) = (factors[0], factors[rows.rows]);
                let dots = dots(affine, block, codes);
                let (scales, biases) = affine.factors(block);
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum = (dots[lane] as f32).mul_add(scales[lane] * d, *sum);
                    *sum = biases[lane].mul_add(d_sum, *sum);
                }
            }
            // SAFETY: the caller's promise.
            let cells = unsafe { product.output.lanes(block * BLOCK_ROWS + row, tile) };
            cells.copy_from_slice(&sums[..cells.len()]);
        }
    }
}

/// The integer products of a block's rows with a group of activations, high parts and then low ones.
fn dots(affine: Affine, block: &[u8], codes: &[i8]) -> [i32; LANES] {
    let (high, low) = codes.split_at(affine.group);
    let mut dots = part_dots(affine, block, high);
    for (dot, low) in dots.iter_mut().zip(part_dots(affine, block, low)) {
        *dot = 16 * *dot + low;
    }
    dots
}

fn part_dots(affine: Affine, block: &[u8], codes: &[i8]) -> [i32; LANES] {
    let mut dots = [0; LANES];
    let mut add = |line: &[u8], codes: &[i8], shift: u32, mask: u8| {
        for (dot, weights) in dots.iter_mut().zip(line.chunks_exact(4)) {
            for (weight, code) in weights.iter().zip(codes) {
                *dot += i32::from(weight >> shift & mask) * i32::from(*code);
            }
        }
    };
    let lines = block[..affine.code_bytes()].chunks_exact(64);
    match affine.code {
        Code::Nibble => {
            for (line, codes) in lines.zip(codes.chunks_exact(8)) {
                add(line, &codes[..4], 0, 15);
                add(line, &codes[4..], 4, 15);
            }
        }
        Code::Byte => lines.zip(codes.chunks_exact(4)).for_each(|(line, codes)| add(line, codes, 0, 255)),
    }
    dots
}
